"""The org's own rules: amended and adopted by date, said by every verdict, compared before they are adopted."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from datetime import timedelta
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.test import Client
from django.utils import timezone
from django_tenants.utils import tenant_context

from fleet.dated import get_org_dated, hour_at
from fleet.domain import rules
from fleet.domain.rules import LATEST, load_rules
from fleet.models import Amendment, Incident, NodeHour, NodeLive, RuleAdoption, RuleVariant
from fleet.selectors_rules import find_rules, get_difference, get_rules_page
from fleet.services_dated import DatedInvalid
from fleet.services_incidents import Actor
from fleet.services_rules import (
    adopt_rules,
    amend_rule,
    end_amendment,
    full_hour,
    withdraw_adoption,
    withdraw_amendment,
)
from fleet.tests.test_dated import (
    HOUR_MS,
    NOW,
    START,
    START_MS,
    at,
    bodies,
    fold,
    same_after_a_whole_refold,
    send,
    verdict,
)
from orgs.models import AuditEntry

pytestmark = pytest.mark.django_db


@pytest.fixture
def inside(alpha: Any) -> Iterator[Any]:
    """The test runs inside alpha's schema."""
    with tenant_context(alpha):
        yield alpha


@pytest.fixture
def actor(inside: Any) -> Actor:
    """Whoever writes."""
    return Actor("ada@alpha.example", inside)


@pytest.fixture
def missing(inside: Any) -> Any:
    """Three hours of n1, GPU 1 gone from 10:30 on, and n2 in good health."""
    for minute in range(180):
        send(inside, minute, **({"without": 1} if minute >= 30 else {}))
    for minute in range(5):
        send(inside, minute, node="n2")
    fold()
    assert verdict(100, "g1").nominal == 0
    return inside


HALF = {"weight": 50}


def test_an_amendment_holds_from_its_hour_on_and_rows_and_verdicts_say_so(missing: Any, actor: Actor) -> None:
    row = amend_rule(actor, code="GPU_MISSING", changes=HALF, reason="as agreed in order 12", from_at=at(60))
    assert NodeLive.objects.filter(dirty_hour=START_MS // HOUR_MS + 1).count() == 1
    fold()
    assert verdict(45, "g1").nominal == 0
    assert verdict(100, "g1").nominal == 50
    first, second, third = NodeHour.objects.filter(node__name="n1").order_by("hour")
    assert first.rules == LATEST
    assert second.rules == third.rules != LATEST
    found = find_rules(second.rules)
    assert found.is_found
    assert found.rules.reasons["GPU_MISSING"].weight == 50
    assert [one.pk for one in found.of("GPU_MISSING")] == [row.pk]
    assert found.of("XID_79") == ()
    same_after_a_whole_refold()
    entry = AuditEntry.objects.get(action="rules.amended")
    assert (entry.actor, entry.after["changes"]) == ("ada@alpha.example", HALF)


def test_the_end_of_an_amendment_leaves_its_earlier_hours_as_they_are(missing: Any, actor: Actor) -> None:
    row = amend_rule(actor, code="GPU_MISSING", changes=HALF, reason="for now", from_at=START)
    fold()
    before = bodies()
    assert end_amendment(row, at(120), actor)
    assert not end_amendment(row, at(180), actor)
    fold()
    after = bodies()
    hour = START_MS // HOUR_MS
    assert [before["n1", hour + k] == after["n1", hour + k] for k in range(3)] == [True, True, False]
    assert verdict(130, "g1").nominal == 0
    same_after_a_whole_refold()
    row.refresh_from_db()
    assert withdraw_amendment(row, actor)
    assert not withdraw_amendment(row, actor)
    fold()
    assert verdict(100, "g1").nominal == 0
    assert {hour.rules for hour in NodeHour.objects.all()} == {LATEST}
    assert find_rules(next(iter(RuleVariant.objects.all())).version).is_found  # an old row's name can still be read


@pytest.mark.parametrize(
    ("field", "values"),
    [
        ("changes", {"changes": {"weight": 101}}),
        ("changes", {"changes": {"explanation": "x"}}),
        ("changes", {"changes": {}}),
        ("changes", {"code": "NO_SUCH"}),
        ("changes", {"changes": {"party": "ambiguous", "needs": []}}),  # below 100 it must say what it needs
        ("reason", {"reason": "  "}),
        ("until_at", {"until_at": START}),
        ("until_at", {"from_at": at(1), "until_at": at(2)}),
    ],
)
def test_an_amendment_that_no_rule_may_say_is_refused_and_changes_nothing(
    inside: Any, actor: Actor, field: str, values: dict[str, Any]
) -> None:
    given = {"code": "GPU_MISSING", "changes": HALF, "reason": "because", "from_at": START, **values}
    with pytest.raises(DatedInvalid) as refused:
        amend_rule(actor, **given)
    assert refused.value.field == field
    assert not Amendment.objects.exists()
    assert get_org_dated().book.at(hour_at(NOW)).digest == load_rules().digest


def test_two_amendments_of_a_reason_may_not_begin_in_one_hour(inside: Any, actor: Actor) -> None:
    amend_rule(actor, code="GPU_MISSING", changes=HALF, reason="one", from_at=at(10))
    with pytest.raises(DatedInvalid, match="two begin"):
        amend_rule(actor, code="GPU_MISSING", changes={"weight": 20}, reason="other", from_at=at(50))
    amend_rule(actor, code="GPU_MISSING", changes={"weight": 20}, reason="other", from_at=at(70))
    book = get_org_dated().book
    weights = [book.at(START_MS // HOUR_MS + k).reasons["GPU_MISSING"].weight for k in range(4)]
    assert weights == [0, 50, 20, 20]


def test_the_first_rule_set_is_pinned_and_others_are_adopted_by_date(inside: Any, actor: Actor) -> None:
    first = RuleAdoption.objects.get()
    assert (first.version, first.author) == (LATEST, "system")
    with pytest.raises(DatedInvalid, match="first rule set stays"):
        withdraw_adoption(first, actor)
    with pytest.raises(DatedInvalid, match="One of"):
        adopt_rules(actor, version="1999-01-01", reason="old", from_at=START)
    row = adopt_rules(actor, version=LATEST, reason="again", from_at=at(5))
    assert row.from_at == full_hour(at(5)) == START + timedelta(hours=1)
    page = get_rules_page(NOW)
    assert [state for _, state in page.adoptions] == ["in force", "replaced"]
    assert withdraw_adoption(row, actor)
    assert [state for _, state in get_rules_page(NOW).adoptions] == ["withdrawn", "in force"]


def refold_command(*words: str) -> tuple[str, str]:
    """(stdout, stderr) of `manage.py refold --org alpha` with these words."""
    out, err = StringIO(), StringIO()
    call_command("refold", "--org", "alpha", *words, stdout=out, stderr=err)
    return out.getvalue(), err.getvalue()


def test_a_comparison_says_which_hours_gpus_and_incidents_change_and_why_and_writes_nothing(missing: Any) -> None:
    before, incidents = bodies(), list(Incident.objects.values())
    lives = list(NodeLive.objects.order_by("pk").values())
    out, err = refold_command("--amend", "GPU_MISSING:weight=50", "--compare", "--json")
    assert "2 of 2 nodes" in err
    said = json.loads(out)
    (only,) = said["nodes"]
    assert only["node"] == "n1"
    hour = START_MS // HOUR_MS
    assert {(one["hour"], one["subject"]) for one in only["hours"]} == {(hour + k, "g1") for k in range(3)}
    assert all(one["why"] == ["GPU_MISSING"] for one in only["hours"])
    second = next(one for one in only["hours"] if one["hour"] == hour + 1)
    assert second["seconds"] == 3600
    assert second["nominal"] == {"before": 0, "after": 50 * 3600}
    (incident,) = only["incidents"]
    assert (incident["kind"], incident["before"]["weight"], incident["after"]["weight"]) == ("changes", 0, 50)
    assert incident["before"]["lost_gpu_seconds"] // 2 == incident["after"]["lost_gpu_seconds"] > 4000
    assert said["rules"] == [
        {
            "code": "GPU_MISSING",
            "kind": "changed",
            "moves_verdicts": True,
            "keys": said["rules"][0]["keys"],
        }
    ]
    assert {"key": "weight", "before": 0, "after": 50} in said["rules"][0]["keys"]
    text, _ = refold_command("--amend", "GPU_MISSING:weight=50", "--compare")
    assert "incident changes: GPU_MISSING (infrastructure)" in text
    assert "3600 s come out otherwise, -1800 GPU-seconds lost (GPU_MISSING)" in text
    assert (bodies(), list(Incident.objects.values())) == (before, incidents)
    assert list(NodeLive.objects.order_by("pk").values()) == lives
    assert not Amendment.objects.exists()


def test_what_a_comparison_foretells_is_what_adopting_it_gives(missing: Any, actor: Actor) -> None:
    out, _ = refold_command("--amend", "GPU_MISSING:weight=50", "--compare", "--json", "--from", "2026-11-28T11:00:00Z")
    said = json.loads(out)["nodes"][0]["hours"]
    assert [one["hour"] for one in said] == [START_MS // HOUR_MS + 1, START_MS // HOUR_MS + 2]
    amend_rule(actor, code="GPU_MISSING", changes=HALF, reason="as compared", from_at=at(60))
    fold()
    for one in said:
        assert NodeHour.objects.get(node__name="n1", hour=one["hour"]).nominal_sum == (
            one["nominal"]["after"] + one["known_s"]["after"] * 100
        )


def test_a_comparison_with_the_same_rules_finds_nothing(missing: Any) -> None:
    text, _ = refold_command("--rules", LATEST, "--compare")
    assert "Nothing comes out otherwise." in text
    assert "2026-11-30 -> 2026-11-30: 4 node hours folded" in text


@pytest.mark.parametrize(
    "words",
    [
        ("--rules", LATEST),
        ("--compare",),
        ("--rules", "1999-01-01", "--compare"),
        ("--amend", "GPU_MISSING", "--compare"),
        ("--amend", "GPU_MISSING:weight=900", "--compare"),
        ("--rules", LATEST, "--compare", "--from", "yesterday"),
        ("--rules", LATEST, "--compare", "--node", "nobody"),
    ],
)
def test_a_comparison_that_means_nothing_is_refused(missing: Any, words: tuple[str, ...]) -> None:
    with pytest.raises(CommandError):
        refold_command(*words)


def test_amending_and_adopting_by_command(missing: Any) -> None:
    out = StringIO()
    words = ("--org", "alpha", "--from", "2026-11-28T11:00:00Z", "--by", "ada@alpha.example")
    call_command("amend_rule", *words, "--set", "GPU_MISSING:weight=50", "--reason", "agreed", stdout=out)
    row = Amendment.objects.get()
    assert f"amendment {row.pk} of GPU_MISSING is in force from 2026-11-28T11:00Z on" in out.getvalue()
    assert (row.changes, row.author) == (HALF, "ada@alpha.example")
    call_command("amend_rule", "--org", "alpha", "--end", str(row.pk), "--until", "2026-11-28T12:00:00Z", stdout=out)
    row.refresh_from_db()
    assert row.until_at == at(120)
    call_command("adopt_rules", *words, "--rules", LATEST, "--reason", "checked", stdout=out)
    assert RuleAdoption.objects.count() == 2
    for refused in (
        ("amend_rule", "--org", "alpha", "--set", "GPU_MISSING:weight=50"),
        ("amend_rule", "--org", "alpha", "--set", "GPU_MISSING", "--reason", "x"),
        ("amend_rule", "--org", "alpha", "--end", "999"),
        ("adopt_rules", "--org", "alpha", "--rules", "1999-01-01", "--reason", "x"),
        ("adopt_rules", "--org", "nobody", "--rules", LATEST, "--reason", "x"),
    ):
        with pytest.raises(CommandError):
            call_command(*refused)


def test_the_page_shows_what_a_rule_would_change_and_writes_nothing(
    inside: Any, ada: Any, client_of: Any, lan: Any, monkeypatch: Any
) -> None:
    hour_ms = int(timezone.now().timestamp() * 1000) // HOUR_MS * HOUR_MS - HOUR_MS
    for minute in range(40):
        gone = {"without": 1} if minute >= 20 else {}
        send(inside, minute + (hour_ms - START_MS) // 60_000, **gone)
    fold()
    before = bodies()
    client = client_of(ada)
    form = {"code": "GPU_MISSING", "key": "weight", "value": "50", "from_at": "2026-11-28T11:00", "reason": "x"}
    asked = client.post("/o/alpha/settings/rules/", {**form, "preview": "yes"})
    assert asked.status_code == 200
    words = asked.content.decode()
    assert "What it would have changed" in words
    assert "GPU_MISSING" in words
    lost = re.search(r'Lost before" class="num">(\d+)<.*?Lost after" class="num">(\d+)<', words, re.DOTALL)
    assert lost is not None
    assert 1000 < int(lost[1]) < 1300  # twenty minutes of one GPU
    assert int(lost[2]) == pytest.approx(int(lost[1]) / 2, abs=60)
    with tenant_context(inside):
        assert Amendment.objects.count() == 0
        assert bodies() == before
    refused = client.post("/o/alpha/settings/rules/", {**form, "value": "101", "preview": "yes"})
    assert refused.status_code == 422
    adoption = {"version": LATEST, "from_at": "2026-11-28T11:00", "reason": "x", "preview": "yes"}
    assert "No rule differs" in client.post("/o/alpha/settings/rules/adopt/", adoption).content.decode()
    with tenant_context(inside):
        assert RuleAdoption.objects.count() <= 1


def test_the_page_tells_what_a_newer_rule_set_says_otherwise(
    client: Client, lan: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two folders: a weight and a text changed, one reason added, one gone."""
    for version in (LATEST, "2027-01-31"):
        shutil.copytree(Path(rules.__file__).parent / LATEST, tmp_path / version)
    links, throttle = (tmp_path / "2027-01-31" / name for name in ("links.toml", "throttle.toml"))
    text = links.read_text()
    assert text.count("weight = 75") == 1
    links.write_text(text.replace("weight = 75", "weight = 60").replace('code = "TEMPERATURE"', 'code = "HEAT"'))
    throttle.write_text(throttle.read_text().replace('title = "Idle"', 'title = "No work"'))
    monkeypatch.setattr(rules, "_FOLDER", tmp_path)
    load_rules.cache_clear()
    try:
        host = {"host": "localhost"}
        page = client.get(f"/rules/?version=2027-01-31&against={LATEST}", headers=host).content.decode()
        assert "4 reasons differ" in page
        assert [(one.code, one.kind, one.is_weighty) for one in get_difference(LATEST, "2027-01-31")] == [
            ("GPU_IDLE", "changed", False),
            ("HEAT", "added", True),
            ("PCIE_WIDTH", "changed", True),
            ("TEMPERATURE", "removed", True),
        ]
        width = page[page.index("PCIE_WIDTH") :]
        assert re.search(r'"What">weight</td><td data-head="2026-11-30">75</td><td data-head="2027-01-31">60<', width)
        assert '"What">added<' in page
        assert '"What">removed<' in page
        whole = client.get("/rules/?version=2027-01-31", headers=host).content.decode()
        assert f"?version=2027-01-31&amp;against={LATEST}" in whole
    finally:
        load_rules.cache_clear()
