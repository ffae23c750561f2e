"""The provider sees what its customers filed, answers in their record, and touches nothing else; one group's credits
do not add.
"""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest
from django.db import connection
from django_tenants.utils import tenant_context

from claims.domain.result import OK
from claims.domain.stacking import better_of_documents
from claims.models import Claim
from claims.services import Actor, add_contract, read_terms
from claims.services_claims import file_claim, refuse_claim
from claims.services_reports import issue_report
from claims.tests.conftest import NOW
from claims.tests.months import terms
from orgs.models import AuditEntry

pytestmark = pytest.mark.django_db


@pytest.fixture
def draft(contract: Any, actor: Actor) -> Claim:
    """October's claim, not filed yet."""
    issue_report(contract, "2026-10", actor, now=NOW)
    return Claim.objects.select_related("report__contract").get()


def test_the_provider_sees_what_was_filed_and_no_draft(
    draft: Claim, actor: Actor, alpha: Any, pat: Any, ada: Any, client_of: Any
) -> None:
    connection.set_schema_to_public()
    provider = client_of(pat)
    base, label = f"/provider/claims/{alpha.pk}/{draft.pk}/", draft.label
    assert label not in provider.get("/provider/claims/").content.decode()
    assert provider.get(base).status_code == 404
    assert provider.post(base, {"kind": "dispute", "note": "x"}).status_code == 404
    with tenant_context(alpha):
        file_claim(draft, actor, where="portal", reference="48102")
    assert label in provider.get("/provider/claims/").content.decode()
    page = provider.get(base).content.decode()
    assert "719.60" in page
    assert "XID_79" in page
    assert provider.get(f"{base}pack.zip")["Content-Type"] == "application/zip"
    for path in ("/provider/claims/", base, f"{base}pack.zip"):
        assert client_of(ada).get(path).status_code == 404
        assert client_of(None).get(path).status_code == 302
    assert client_of(ada).post(base, {"kind": "answer", "note": "x"}).status_code == 404


def test_the_provider_answers_and_disputes_in_the_customers_record(
    draft: Claim, actor: Actor, alpha: Any, pat: Any, ada: Any, client_of: Any
) -> None:
    file_claim(draft, actor, where="portal", reference="48102")
    connection.set_schema_to_public()
    provider, base = client_of(pat), f"/provider/claims/{alpha.pk}/{draft.pk}/"
    provider.post(base, {"kind": "acknowledge", "note": "We look into it."})
    provider.post(base, {"kind": "dispute", "note": "<b>Our</b> logs differ."})
    page = provider.post(base, {"kind": "dispute", "note": " "}, follow=True).content.decode()
    assert "Write what the customer should read." in page
    mine = client_of(ada).get(f"/o/alpha/claims/{draft.pk}/").content.decode()
    assert "The provider disputes this claim" in mine
    assert "&lt;b&gt;Our&lt;/b&gt; logs differ." in mine
    shown = client_of(ada).get(f"/v1/claims/{draft.pk}?org=alpha").json()
    assert [(one["side"], one["after"]) for one in shown["events"]] == [
        ("customer", "draft"), ("customer", "filed"), ("provider", "acknowledged"), ("provider", "acknowledged"),
    ]  # fmt: skip
    assert shown["disputed_at"] is not None
    audit = AuditEntry.objects.filter(org_slug="alpha", actor=pat.email).values_list("action", flat=True)
    assert set(audit) == {"claim.acknowledged", "claim.dispute"}
    with tenant_context(alpha):
        draft.refresh_from_db()
        refuse_claim(draft, actor, reason="As disputed.")
        assert draft.disputed_at is None


def result(credits: dict[str, str], **units: str) -> dict[str, Any]:
    """One contract's result: its credits by reading, and each unit's credit, the same in every reading."""
    readings = ("lower", "nominal", "upper")
    return {
        "status": OK,
        "credits": {name: credits.get(name, credits["all"]) for name in readings},
        "units": [
            {"name": name, "covered": True, "readings": dict.fromkeys(readings, {"credit": credit})}
            for name, credit in units.items()
        ],
    }


def test_of_a_group_each_unit_has_the_better_credit() -> None:
    one = result({"all": "130"}, n1="100", n2="30")
    other = result({"all": "90"}, n1="40", n2="50")
    assert better_of_documents([one]) == 130
    assert better_of_documents([one, other]) == 150
    capped = result({"all": "60"}, n1="100", n2="30")  # a cap on its whole claim bounds the group as well
    assert better_of_documents([capped, result({"all": "0"}, n3="0")]) == 60


def test_a_second_contract_of_a_group_asks_only_for_what_it_gives_more(contract: Any, actor: Actor) -> None:
    grouped = terms(fee_charged='"7196.00"\nstacking_group = "node"')
    add_contract(read_terms(grouped), actor)
    first = issue_report(contract, "2026-10", actor, now=NOW)
    amounts = {}
    for name, fee in (("Support plan", "10000.00"), ("Small plan", "100.00")):
        text = terms(fee_charged=f'"{fee}"\nstacking_group = "node"').replace("Bare metal H100", name)
        other = add_contract(read_terms(text), actor, entitled_from="2026-09-01T00:00:00Z").contract
        report = issue_report(other, "2026-10", actor, now=NOW)
        claim = Claim.objects.filter(report=report).first()
        amounts[other.name] = None if claim is None else claim.amount
        if claim is not None:
            assert "719.6" in claim.events.get().note
    assert Claim.objects.get(report=first).amount == Decimal("719.60")
    assert amounts == {"Support plan": Decimal("280.40"), "Small plan": None}
