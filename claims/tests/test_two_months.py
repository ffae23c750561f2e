"""Three contracts through two months, by pages and again by API, to the same numbers; the packs verify elsewhere.

A month with a change of clocks, a restatement, a claim that is paid and one that is refused. Alpha goes through pages
with a browser's session and form tokens, beta through the API; both have the same uploads.
"""

from __future__ import annotations

import io
import json
import os
import subprocess
import zipfile
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from django.apps import apps
from django.core import mail
from django.db import connection
from django.utils import timezone
from django_tenants.utils import tenant_context

from claims.anchors.making import anchor_org
from claims.models import Anchor, Claim
from claims.tests.authority import Authority, served
from claims.tests.story import CONTRACTS, CUT, FIRST_WINDOW, LOST, SECOND_WINDOW, Fleet, Pages
from claims.verify.build import build
from claims.verify.checks import FAIL, PASS, answers, check_pack
from claims.verify.pack_file import read_pack

pytestmark = pytest.mark.django_db
JSON = "application/json"
#: What finance should get for each contract and month; counted by hand below.
WANTED = {
    ("Instance tier", "2026-10"): "700.00",
    ("Hardware pro rata", "2026-09"): "22.08",
    ("Hardware pro rata", "2026-10"): "0.00",
    ("Weighted", "2026-09"): "350.00",
    ("Weighted", "2026-10"): "0.00",
}


def test_the_wanted_numbers_by_hand() -> None:
    """Beyond doubt is what begins a slot later and ends one earlier: an edge slot has bad evidence on one side only."""
    september, lost = 30 * 5760, 3 * 240
    assert LOST[1] - LOST[0] == timedelta(hours=3)
    sure = lost - 2
    credited = Decimal(sure) - Decimal(september) / 1000
    assert f"{7000 * credited / september:.6f}".startswith(WANTED["Hardware pro rata", "2026-09"])
    uptime = 1 - Decimal(sure) / (8 * september)
    assert Decimal("0.99") < uptime < Decimal("0.9995")
    assert Decimal(WANTED["Weighted", "2026-09"]) == 7000 * 5 / Decimal(100)
    assert CUT[1] - CUT[0] == timedelta(minutes=90)
    assert Decimal("0.99") < 1 - Decimal(360) / 178_800 < 1 - Decimal(350) / 178_800 < Decimal("0.999")


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch, settings: Any, tmp_path: Path) -> Any:
    """The story's own time, which the whole server lives in."""
    settings.GOODPUT_VAR = tmp_path
    settings.EMAIL_BACKEND = "django.core.mail.backends.locmem.EmailBackend"
    found = SimpleNamespace(now=datetime(2026, 8, 31, 12, tzinfo=UTC))
    real = timezone.now
    monkeypatch.setattr("django.utils.timezone.now", lambda: found.now)
    for model in apps.get_app_config("claims").get_models():
        for field in model._meta.concrete_fields:
            if field.default is real:
                monkeypatch.setattr(field, "_get_default", lambda: found.now)
    return found


def live(org: Any, clock: Any, authority: Authority) -> None:
    """Two months of uploads, with the log anchored every day around them."""

    def anchored(at: datetime) -> None:
        clock.now = authority.now = at
        anchor_org(org, at)

    with tenant_context(org):
        anchored(datetime(2026, 8, 31, 20, tzinfo=UTC))  # the terms, before the first month
        fleet = Fleet(org)
        fleet.upload(FIRST_WINDOW[0], LOST[0] - timedelta(hours=1))
        anchored(LOST[0] - timedelta(minutes=50))
        fleet.upload(LOST[0] - timedelta(hours=1), FIRST_WINDOW[1])
        anchored(FIRST_WINDOW[1] + timedelta(days=1))
        fleet.probe()
        fleet.upload(SECOND_WINDOW[0], CUT[0])
        anchored(CUT[0] - timedelta(minutes=1))
        fleet.upload(CUT[0], SECOND_WINDOW[1])
        anchored(SECOND_WINDOW[1] + timedelta(days=1))
        fleet.fill()
    connection.set_schema_to_public()
    clock.now = datetime(2026, 11, 9, 8, tzinfo=UTC)


def numbers(org: Any) -> dict[tuple[str, str], str]:
    """(contract, month) → the newest issued claim."""
    from claims.models import Report

    with tenant_context(org):
        return {
            (one.contract.name, one.month): one.result["assessment"]["result"]["claim"]
            for one in Report.objects.exclude(status="draft").order_by("number")
        }


def claims_of(org: Any) -> list[tuple[str, str, str, str, str, str]]:
    """Every claim with its money."""
    with tenant_context(org):
        return sorted(
            (c.report.contract.name, c.report.month, c.status, f"{c.amount:.2f}", f"{c.received:.2f}", c.refusal)
            for c in Claim.objects.all()
        )


def test_by_pages_and_by_api_to_the_same_numbers(
    clock: Any, alpha: Any, beta: Any, ada: Any, bo: Any, client_of: Any, tmp_path: Path
) -> None:
    authority = Authority()
    with served(authority) as url:
        paged = by_pages(clock, alpha, ada, client_of, authority, url)
        called = by_api(clock, beta, bo, client_of, authority, url)
    assert numbers(alpha) == numbers(beta)
    assert numbers(alpha) == {**WANTED, ("Weighted", "2026-09"): "0.00"}  # restated: see below
    assert claims_of(alpha) == claims_of(beta) == [
        ("Hardware pro rata", "2026-09", "paid", "22.08", "22.08", ""),
        ("Instance tier", "2026-10", "refused", "700.00", "0.00", "Our probes saw the node."),
        ("Weighted", "2026-09", "written_off", "350.00", "0.00", ""),
    ]  # fmt: skip
    for packs in (paged, called):
        for name, body in packs.items():
            check(name, body)
    elsewhere(paged["Instance tier"], tmp_path)


def by_pages(clock: Any, org: Any, person: Any, client_of: Any, authority: Authority, url: str) -> dict[str, bytes]:
    """The whole story with a browser's means; the packs of the two claims that are filed."""
    pages = Pages(client_of(person), org.slug)
    pages.send("claims/anchors/", "claims/anchors/", notice_address="notices@northwind.example",
               finance_address="finance@alpha.example", tsa_url=url, tsa_certificate=authority.pem)  # fmt: skip
    for terms in CONTRACTS.values():
        places = {key: str(terms[key]) for key in ("name", "effective_from", "zone", "currency", "fee_charged")}
        rest = {key: value for key, value in terms.items() if key not in places and key != "pooling"}
        pages.send("sla/new/", "sla/new/", **places, pooling="each", entitled_from="2026-08-31", terms=json.dumps(rest))
    live(org, clock, authority)
    pages = Pages(client_of(person), org.slug)
    with tenant_context(org):
        from claims.models import Contract

        ids = dict(Contract.objects.values_list("name", "pk"))
    for name, pk in ids.items():
        for month in ("2026-09", "2026-10"):
            page = pages.send(f"sla/{pk}/?month={month}", f"sla/{pk}/issue/", month=month)
            if (name, month) in WANTED:
                assert "is issued" in page, (name, month)
            else:  # nobody watched from outside in September: never 100 %, never down
                assert "Not measurable" in page
    row = {"kind": "maintenance", "resource": "gpu-017", "starts_at": "2026-09-12T09:00", "ends_at": "2026-09-12T13:30",
           "notice_h": "48", "reference": "MW-1", "provider_word": "1", "month": "2026-09"}  # fmt: skip
    weighted = ids["Weighted"]
    pages.send(f"sla/{weighted}/?month=2026-09", f"sla/{weighted}/rows/", **row)
    page = pages.send(f"sla/{weighted}/?month=2026-09", f"sla/{weighted}/issue/", month="2026-09",
                      reason="The provider showed its notice.")  # fmt: skip
    assert "is restated" in page
    packs = {}
    for number, name in open_claims(org):
        base = f"claims/{number}/"
        pages.send(base, f"{base}filed/", where="support portal", reference="48102")
        if name == "Hardware pro rata":
            pages.send(base, f"{base}acknowledged/", note="received")
            page = pages.send(base, f"{base}paid/", amount="22.08", on="2026-11-20")
            assert "as claimed" in page
        else:
            page = pages.send(base, f"{base}refused/", note="Our probes saw the node.")
            assert "Refused: Our probes saw the node." in page
        packs[name] = pages.client.get(f"{pages.base}{base}pack.zip").content
    assert mail.outbox
    return packs


def by_api(clock: Any, org: Any, person: Any, client_of: Any, authority: Authority, url: str) -> dict[str, bytes]:
    """The same by /v1/."""
    clock.now = datetime(2026, 8, 31, 12, tzinfo=UTC)
    client = client_of(person)

    def post(path: str, body: dict[str, Any]) -> Any:
        response = client.post(f"/v1/{path}?org={org.slug}", body, JSON)
        assert response.status_code in (200, 201), (path, response.content)
        return response.json()

    post("anchors", {"notice_address": "notices@northwind.example", "finance_address": "finance@alpha.example",
                     "tsa_url": url, "tsa_certificate": authority.pem})  # fmt: skip
    ids = {
        name: post("contracts", {"terms": terms, "entitled_from": "2026-08-31T00:00:00Z"})["id"]
        for name, terms in CONTRACTS.items()
    }
    live(org, clock, authority)
    client = client_of(person)
    for name, pk in ids.items():
        for month in ("2026-09", "2026-10"):
            if (name, month) in WANTED:
                post(f"contracts/{pk}/reports", {"month": month})
                continue
            refused = client.post(f"/v1/contracts/{pk}/reports?org={org.slug}", {"month": month}, JSON)
            assert (refused.status_code, refused.json()["code"]) == (409, "not_measurable")
    post(f"contracts/{ids['Weighted']}/rows", {
        "kind": "maintenance", "resource": "gpu-017", "starts_at": "2026-09-12T09:00:00Z",
        "ends_at": "2026-09-12T13:30:00Z", "notice_s": 48 * 3600, "reference": "MW-1", "provider_word": True,
    })  # fmt: skip
    restated = post(f"contracts/{ids['Weighted']}/reports",
                    {"month": "2026-09", "reason": "The provider showed its notice."})  # fmt: skip
    assert (restated["status"], restated["difference"]["claim"]) == ("restated", ["350.00", "0.00"])
    packs = {}
    for one in client.get(f"/v1/claims?org={org.slug}").json()["results"]:
        if one["status"] != "draft":
            continue
        steps = f"claims/{one['id']}/steps"
        post(steps, {"to": "filed", "where": "support portal", "reference": "48102"})
        if one["contract"] == "Hardware pro rata":
            post(steps, {"to": "acknowledged", "note": "received"})
            post(steps, {"to": "paid", "amount": "22.08"})
        else:
            post(steps, {"to": "refused", "note": "Our probes saw the node."})
        packs[one["contract"]] = client.get(f"/v1/claims/{one['id']}/pack?org={org.slug}").content
    return packs


def open_claims(org: Any) -> list[tuple[int, str]]:
    with tenant_context(org):
        assert Anchor.objects.filter(state="made").count() == 10  # five days, a mail and a stamp each
        return list(Claim.objects.filter(status="draft").order_by("pk").values_list("pk", "report__contract__name"))


def check(name: str, body: bytes) -> None:
    """The pack here: arithmetic and integrity hold, and all claimed time lies between the stamps."""
    files = read_pack(io.BytesIO(body))
    findings = {one.check: one for one in check_pack(files)}
    assert [one for one in findings.values() if one.verdict == FAIL] == []
    found = answers(list(findings.values()))
    assert (found["arithmetic"], found["integrity"], found["anchors"]) == (PASS, PASS, PASS), findings["anchors"].detail
    assert "100.0 % time stamps of Test TSA" in findings["anchors"].detail, name
    assert "documents (contract, rules, amendments) were anchored before they counted" in findings["terms"].detail
    assert json.loads(files["manifest.json"])["title"] == "Statement with outside anchors"
    assert json.loads(files["result.json"])["is_simulated"] is True


PYTHONS = ("3.12", "3.13")


def elsewhere(body: bytes, folder: Path) -> None:
    """The zipapp with nothing but a Python of another version: no package, no source, no network variable."""
    pack, tool = folder / "claim.zip", folder / "goodput-verify"
    pack.write_bytes(body)
    tool.write_bytes(build())
    found = [
        path for version in PYTHONS for path in sorted(Path.home().glob(f".pyenv/versions/{version}*/bin/python3"))[:1]
    ]
    if not found:
        pytest.skip(f"no Python {' or '.join(PYTHONS)} under ~/.pyenv/versions: the pack was verified here only")
    for number, python in enumerate(found):
        venv = folder / f"venv{number}"
        subprocess.run([python, "-m", "venv", "--without-pip", venv], check=True, env={"PATH": os.environ["PATH"]})
        run = subprocess.run(
            [venv / "bin" / "python", tool, pack, "--json"], capture_output=True, text=True, cwd=folder, env={}
        )
        assert run.returncode == 0, run.stdout + run.stderr
        assert json.loads(run.stdout)["answers"]["anchors"] == PASS
        with zipfile.ZipFile(pack) as archive:
            assert "anchors.json" in archive.namelist()
