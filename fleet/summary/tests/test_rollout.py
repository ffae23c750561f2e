"""Rule sets in the console: who is on which, adopting one for an org or for all, later or now."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone
from django_tenants.utils import tenant_context

from fleet.domain import rules
from fleet.domain.rules import LATEST
from fleet.models import Amendment, RuleAdoption
from fleet.services_rules import full_hour
from fleet.summary import rollout
from orgs.models import AuditEntry

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("lan")]


@pytest.fixture
def staff(pat: Any, client_of: Any) -> Client:
    """Pat at the console."""
    return client_of(pat)


@pytest.fixture
def two_versions(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[str]:
    """An older rule set beside the newest, in which a GPU that fell off the bus weighs more."""
    here = rules._FOLDER
    (tmp_path / LATEST).symlink_to(here / LATEST)
    older = tmp_path / "2026-01-01"
    shutil.copytree(here / LATEST, older)
    text = (older / "xid.toml").read_text()
    entry = text.index('code = "XID_79"')
    at = text.index("weight = ", entry)
    (older / "xid.toml").write_text(text[:at] + "weight = 5" + text[text.index("\n", at) :])
    monkeypatch.setattr(rules, "_FOLDER", tmp_path)
    rules.load_rules.cache_clear()
    yield older.name
    rules.load_rules.cache_clear()


def adopted(org: Any) -> rollout.Adopted:
    """The org's line of the page."""
    return next(row for row in rollout.list_adopted(timezone.now()) if row.org == org)


def test_every_org_has_a_line_with_its_amendments(alpha: Any, staff: Client) -> None:
    now = timezone.now()
    with tenant_context(alpha):
        Amendment.objects.create(code="XID_79", changes={"weight": 5}, from_at=now - timedelta(days=1), author="ada")
        Amendment.objects.create(code="XID_79", changes={"weight": 5}, from_at=now + timedelta(days=1), author="ada")
    row = adopted(alpha)
    assert (row.version, row.amendments, row.is_latest) == (LATEST, 1, True)
    page = staff.get("/provider/rules/").content.decode()
    for slug in ("alpha", "beta", "local"):
        assert f">{slug}</a>" in page
    assert "all on the newest" in page
    assert len(staff.get("/provider/rules.csv").content.decode().splitlines()) == 4


def test_a_rule_set_is_adopted_later_for_one_org(alpha: Any, beta: Any, staff: Client, two_versions: str) -> None:
    later = full_hour(timezone.now() + timedelta(days=2))
    form = {"org": str(alpha.pk), "version": two_versions, "reason": "asked for it"}
    sent = staff.post("/provider/rules/", {**form, "from_at": later.strftime("%Y-%m-%dT%H:%M")})
    assert sent.status_code == 302
    row = adopted(alpha)
    assert (row.version, row.next_version, row.next_from) == (LATEST, two_versions, later)
    assert not row.is_latest
    assert adopted(beta).next_version is None
    entry = AuditEntry.objects.get(action="rules.adopted", org_id=alpha.pk)
    assert (entry.actor, entry.target) == ("pat@provider.example", two_versions)
    assert "1 on an older one" in staff.get("/provider/rules/").content.decode()


def test_every_org_that_is_behind_is_moved_at_once(alpha: Any, beta: Any, staff: Client, two_versions: str) -> None:
    now = timezone.now()
    with tenant_context(alpha):
        RuleAdoption.objects.create(version=two_versions, from_at=now - timedelta(days=3), author="x")
    assert adopted(alpha).version == two_versions
    page = staff.get("/provider/rules/").content.decode()
    assert f"What changes from {two_versions}" in page
    assert "weight 5 → 0" in page
    staff.post("/provider/rules/", {"org": "older", "version": LATEST, "reason": "new release", "from_at": ""})
    assert adopted(alpha).next_version == LATEST
    assert adopted(alpha).next_from == full_hour(now)
    assert adopted(beta).next_version is None  # was on it
    assert AuditEntry.objects.filter(action="rules.adopted").count() == 1


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"from_at": "2020-01-01T00:00"}, "adopted for the future"),
        ({"version": "1999-01-01"}, "not one of the available choices"),
        ({"org": "999999999"}, "not one of the available choices"),
        ({"reason": ""}, "required"),
    ],
)
def test_what_makes_no_sense_is_refused(change: dict[str, str], sentence: str, alpha: Any, staff: Client) -> None:
    form = {"org": str(alpha.pk), "version": LATEST, "reason": "x", "from_at": "", **change}
    answer = staff.post("/provider/rules/", form)
    assert answer.status_code == 422
    assert sentence in answer.content.decode()
    assert not AuditEntry.objects.filter(action="rules.adopted").exists()


def test_nobody_else_finds_it(ada: Any, client_of: Any) -> None:
    assert client_of(ada).get("/provider/rules/").status_code == 404
    assert (
        client_of(ada).post("/provider/rules/", {"org": "older", "version": LATEST, "reason": "x"}).status_code == 404
    )
