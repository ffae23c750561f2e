"""The pages: viewers read, owners and admins issue, finance files, outsiders get nothing."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
from django.db import connection
from django_tenants.utils import tenant_context

from claims.models import CalendarFeed, Claim, Contract, Overlay
from claims.services import Actor, add_contract, add_overlay, read_terms
from claims.services_reports import draft_report, issue_report
from claims.tests.conftest import NOW
from claims.tests.months import fill, terms
from orgs.models import Membership
from orgs.services import create_user, set_role

pytestmark = pytest.mark.django_db
HOSTILE = '<script>alert("x")</script>'


@pytest.fixture
def person(alpha: Any, client_of: Any) -> Callable[[str], Any]:
    """A function: the client of a member with this role."""

    def of(role: str) -> Any:
        user = create_user(f"{role}@alpha.example", actor="test")
        set_role(user, alpha, role, actor="test")
        return client_of(user)

    return of


@pytest.fixture
def issued(contract: Any, actor: Actor) -> Any:
    """October, issued, with its draft claim; outside the org's schema."""
    report = issue_report(contract, "2026-10", actor, now=NOW)
    claim = Claim.objects.get()
    connection.set_schema_to_public()
    return contract, report, claim


def pages(contract: Any, report: Any, claim: Any) -> list[str]:
    return [
        "sla/?all=1&month=2026-10",
        f"sla/{contract.pk}/?month=2026-10",
        "sla/catalog/",
        "sla/new/",
        "reports/",
        f"reports/{report.pk}/",
        "claims/",
        f"claims/{claim.pk}/",
    ]


def test_every_page_shows_the_same_numbers(issued: Any, person: Any) -> None:
    client = person("viewer")
    contract, report, claim = issued
    for path in pages(*issued):
        response = client.get(f"/o/alpha/{path}")
        assert response.status_code == 200, path
    page = client.get(f"/o/alpha/sla/{contract.pk}/?month=2026-10").content.decode()
    for number in ("99.46", "99.86", "€ 719.60", "XID_79", "4 h", "Coverage 100.00 %"):
        assert number in page, number
    page = client.get(f"/o/alpha/claims/{claim.pk}/").content.decode()
    assert "€ 719.60" in page
    assert "We expressly request the service credit for 2026-10: 719.60 EUR" in page
    assert client.get(f"/o/alpha/reports/{report.pk}/result.json").json() == report.result
    text = client.get(f"/o/alpha/reports/{report.pk}/counted.csv").content.decode()
    assert "gpu-017,2026-10-02" in text
    assert "719.60" in client.get("/o/alpha/claims/claims.csv").content.decode()


def test_a_viewer_changes_nothing_and_finance_does_not_issue(issued: Any, person: Any) -> None:
    contract, _, claim = issued
    viewer, finance = person("viewer"), person("finance")
    posts = ["sla/new/", f"sla/{contract.pk}/rows/", f"sla/{contract.pk}/issue/", f"claims/{claim.pk}/filed/"]
    for path in [*posts, "claims/calendar/", f"sla/{contract.pk}/invoice/"]:
        assert viewer.post(f"/o/alpha/{path}").status_code == 403, path
    for path in posts[:3]:
        assert finance.post(f"/o/alpha/{path}").status_code == 403, path
    assert "Filed</button>" not in viewer.get(f"/o/alpha/claims/{claim.pk}/").content.decode()


def test_finance_files_a_claim_and_writes_down_the_money(issued: Any, person: Any, alpha: Any) -> None:
    claim = issued[2]
    finance = person("finance")
    base = f"/o/alpha/claims/{claim.pk}"
    finance.post(f"{base}/filed/", {"where": "portal", "reference": "T-1"})
    finance.post(f"{base}/acknowledged/")
    finance.post(f"{base}/paid/", {"amount": "nonsense"})
    finance.post(f"{base}/paid/", {"amount": "700.00", "on": "2026-12-02"})
    page = finance.get(f"{base}/").content.decode()
    assert "€ -19.60 to what was claimed" in page
    assert "2 Dec" in finance.get("/o/alpha/claims/").content.decode()
    assert finance.post(f"{base}/nowhere/").status_code == 404
    with tenant_context(alpha):
        assert Claim.objects.get().status == "paid"


def test_an_owner_adds_a_contract_from_the_catalogue_a_row_and_a_draft(contract: Any, person: Any, alpha: Any) -> None:
    connection.set_schema_to_public()
    owner = person("owner")
    page = owner.get("/o/alpha/sla/new/?entry=ionstream-bare-metal").content.decode()
    assert "must confirm" in page
    terms = re.search(r'name="terms"[^>]*>(.*?)</textarea>', page, re.DOTALL)[1]  # type: ignore[index]
    import html

    form = {
        "entry": "ionstream-bare-metal", "name": HOSTILE, "effective_from": "2026-09-01", "entitled_from": "2026-09-01",
        "zone": "UTC", "nodes": "gpu-017", "gpus": "8", "min_healthy": "7", "fee_charged": "1000", "currency": "USD",
        "pooling": "each", "ambiguous_counts": "no", "terms": html.unescape(terms),
    }  # fmt: skip
    bad = owner.post("/o/alpha/sla/new/", {**form, "zone": "Mars/Base"})
    assert bad.status_code == 422
    assert "Mars/Base" in bad.content.decode()
    made = owner.post("/o/alpha/sla/new/", form)
    assert made.status_code == 302, made.content.decode()
    page = owner.get(made["Location"] + "?month=2026-10").content.decode()
    assert HOSTILE not in page
    assert "&lt;script&gt;" in page
    with tenant_context(alpha):
        new = Contract.objects.get(name=HOSTILE)
        assert Overlay.objects.filter(contract=new).count() == 1
    owner.post(
        f"/o/alpha/sla/{new.pk}/rows/",
        {"kind": "ticket", "resource": "gpu-017", "starts_at": "2026-10-02T17:00", "reference": HOSTILE},
    )
    page = owner.get(f"/o/alpha/sla/{new.pk}/?month=2026-10").content.decode()
    assert HOSTILE not in page
    assert "owner@alpha.example" in page
    owner.post(f"/o/alpha/sla/{new.pk}/rows/", {"kind": "ticket", "resource": "", "starts_at": "2026-10-02T17:00"})
    assert "A row names a node or a place" in owner.get("/o/alpha/sla/?all=1").content.decode()
    with tenant_context(alpha):
        row = Overlay.objects.get(contract=new, kind="ticket")
    owner.post(f"/o/alpha/sla/{new.pk}/rows/{row.pk}/withdraw/")
    assert "withdrawn by" in owner.get(f"/o/alpha/sla/{new.pk}/").content.decode()


def test_an_owner_issues_a_month_once_and_restates_it_with_a_reason(contract: Any, person: Any, alpha: Any) -> None:
    connection.set_schema_to_public()
    owner = person("owner")
    done = owner.post(f"/o/alpha/sla/{contract.pk}/issue/", {"month": "2026-10"})
    assert "/reports/" in done["Location"]
    again = owner.post(f"/o/alpha/sla/{contract.pk}/issue/", {"month": "2026-10"}, follow=True)
    assert "A restatement says why" in again.content.decode()


def test_a_month_without_a_computation_says_why(contract: Any, person: Any) -> None:
    connection.set_schema_to_public()
    page = person("viewer").get(f"/o/alpha/sla/{contract.pk}/?month=2026-08").content.decode()
    assert "No version of Bare metal H100 was in force on 2026-08-01" in page


def test_the_calendar_is_read_by_its_address_until_it_ends(
    issued: Any, person: Any, alpha: Any, client_of: Any
) -> None:
    finance = person("finance")
    finance.post("/o/alpha/claims/calendar/")
    page = finance.get("/o/alpha/claims/").content.decode()
    address = re.search(r"/calendar/\d+/[\w-]+\.ics", page)[0]  # type: ignore[index]
    assert address not in finance.get("/o/alpha/claims/").content.decode()  # shown once
    nobody = client_of(None)
    text = nobody.get(address).content.decode()
    assert "DTSTART:20261130T230000Z" in text
    assert all(len(line.encode()) <= 75 for line in text.split("\r\n"))
    assert nobody.get(address.replace(f"/{alpha.pk}/", f"/{alpha.pk + 1}/")).status_code == 404
    assert nobody.get("/calendar/99999999999999999999/x.ics").status_code == 404
    finance.post("/o/alpha/claims/calendar/end/")
    assert nobody.get(address).status_code == 404
    with tenant_context(alpha):
        assert CalendarFeed.objects.count() == 1


def test_months_that_are_over_and_not_issued_stand_on_the_board(contract: Any, person: Any) -> None:
    draft_report(contract, "2026-10", NOW)
    connection.set_schema_to_public()
    assert "not issued" in person("viewer").get("/o/alpha/claims/").content.decode()


def test_outsiders_see_none_of_it(issued: Any, bo: Any, client_of: Any, lan: Any) -> None:
    for client, status in ((client_of(bo), 404), (client_of(None), 302)):
        for path in pages(*issued):
            assert client.get(f"/o/alpha/{path}").status_code == status, path


def test_a_member_restricted_to_a_cluster_is_refused(issued: Any, alpha: Any, client_of: Any) -> None:
    user = create_user("part@alpha.example", actor="test")
    set_role(user, alpha, Membership.Role.VIEWER, actor="test", clusters=["other"])
    contract, report, claim = issued
    for path in (f"sla/{contract.pk}/", "sla/new/", f"reports/{report.pk}/", f"claims/{claim.pk}/"):
        assert client_of(user).get(f"/o/alpha/{path}").status_code == 403, path
    for path in ("sla/", "reports/", "claims/"):  # lists of what lies within: nothing
        page = client_of(user).get(f"/o/alpha/{path}")
        assert page.status_code == 200
        assert "Bare metal H100" not in page.content.decode()


def test_a_number_that_too_little_is_known_for_never_stands_alone(actor: Actor, person: Any) -> None:
    fill(gap=(0, 800))
    version = add_contract(read_terms(terms(tiers='[["99.5", "10"]]\nminimum_coverage_percent = "90"')), actor)
    add_overlay(actor, contract=None, kind="entitlement", resource="gpu-017", starts_at="2026-09-01T00:00:00Z")
    connection.set_schema_to_public()
    client = person("viewer")
    row = client.get("/o/alpha/sla/?all=1&month=2026-10").content.decode()
    assert '100.00 %<br><span class="small late">too little is known</span>' in row
    assert "– %" not in row
    page = client.get(f"/o/alpha/sla/{version.contract.pk}/?month=2026-10").content.decode()
    assert "what the contract counts: nothing. All of its time is unknown." in page
