"""Two people at once: one report, one claim, one filing; the other is told so, and nothing is asked for twice."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest

from claims.errors import ClaimsError
from claims.models import Claim, ClaimEvent, Report
from claims.services import Actor, add_contract, add_overlay, read_terms
from claims.services_claims import file_claim, pay_claim, refuse_claim
from claims.services_reports import draft_report, issue_report
from claims.tests.conftest import NOW
from claims.tests.months import OCTOBER, terms
from orgs.models import AuditEntry
from orgs.tests import races
from orgs.tests.races import Act

pytestmark = pytest.mark.django_db(transaction=True)
PEOPLE = ("ada@alpha.example", "cy@alpha.example", "dee@alpha.example")


def at_once(org: Any, *acts: Act) -> list[Any]:
    """What came of each act; all start together."""
    return races.at_once(org, *acts, refusals=(ClaimsError,))


def beside(org: Any, first: Act, second: Act) -> tuple[Any, Any]:
    """The first act is not committed yet when the second begins."""
    return races.beside(org, first, second, refusals=(ClaimsError,))


def maintenance(contract: Any, actor: Actor) -> None:
    """A window that takes the second half of the outage out of what counts."""
    first, last = OCTOBER.first_slot + 10_480, OCTOBER.first_slot + 10_960
    add_overlay(
        actor, contract=contract, kind="maintenance", resource="gpu-017", notice_s=9 * 86400,
        starts_at=datetime.fromtimestamp(first * 15, UTC), ends_at=datetime.fromtimestamp(last * 15, UTC),
    )  # fmt: skip


def test_of_three_who_issue_file_and_pay_at_once_one_does(contract: Any, alpha: Any) -> None:
    def issue(name: str, reason: str = "") -> Act:
        return lambda: issue_report(contract, "2026-10", Actor(name, alpha), reason=reason, now=NOW).status

    assert sorted(at_once(alpha, *map(issue, PEOPLE))) == [
        "2026-10 is issued already. A restatement says why.",
        "2026-10 is issued already. A restatement says why.",
        "issued",
    ]
    (report,) = Report.objects.all()
    claim = Claim.objects.get()
    assert (report.number, claim.report_id, claim.amount) == (1, report.pk, Decimal("719.60"))
    assert AuditEntry.objects.filter(action="report.issued").get().actor == report.issued_by
    assert AuditEntry.objects.filter(action="claim.drafted").count() == 1

    def hand_in(name: str) -> Act:
        mine = Claim.objects.get()
        return lambda: file_claim(mine, Actor(name, alpha), where="portal", reference=f"ticket of {name}").status

    told_to = at_once(alpha, *map(hand_in, PEOPLE))
    assert sorted(told_to) == [f"{claim.label} was changed by somebody else just now. Look again."] * 2 + ["filed"]
    claim.refresh_from_db()
    winner = PEOPLE[told_to.index("filed")]
    assert claim.filed_reference == f"ticket of {winner}"
    assert ClaimEvent.objects.filter(after="filed").get().actor == winner
    assert AuditEntry.objects.filter(action="claim.filed").get().actor == winner

    paid, refused = Claim.objects.get(), Claim.objects.get()
    results = at_once(
        alpha,
        lambda: pay_claim(paid, Actor(PEOPLE[0], alpha), amount="719.60").status,
        lambda: refuse_claim(refused, Actor(PEOPLE[1], alpha), reason="not ours").status,
    )
    assert len({"paid", "refused"} & set(results)) == 1, "money that came and a refusal can't both stand"
    claim.refresh_from_db()
    assert (claim.status, claim.received) in (("paid", Decimal("719.60")), ("refused", Decimal(0)))

    maintenance(contract, Actor(PEOPLE[0], alpha))
    again = at_once(alpha, *(issue(name, "The provider showed its notice.") for name in PEOPLE[:2]))
    assert sorted(again) == ["Nothing changed since version 2 of 2026-10.", "restated"]
    assert sorted(Report.objects.exclude(status="draft").values_list("number", flat=True)) == [1, 2]


def test_a_claim_that_is_filed_while_its_month_is_restated_is_not_asked_for_twice(contract: Any, alpha: Any) -> None:
    actor = Actor(PEOPLE[0], alpha)
    issue_report(contract, "2026-10", actor, now=NOW)
    claim = Claim.objects.get()
    maintenance(contract, actor)  # two hours are left: the restatement owes less than the first
    filed, restated = beside(
        alpha,
        lambda: file_claim(claim, actor, where="portal", reference="48102").status,
        lambda: issue_report(contract, "2026-10", Actor(PEOPLE[1], alpha), reason="notice", now=NOW).status,
    )
    assert (filed, restated) == ("filed", "restated")
    first = Claim.objects.get(pk=claim.pk)
    assert (first.status, first.amount) == ("filed", Decimal("719.60"))
    assert [event.after for event in first.events.order_by("pk")] == ["draft", "filed"], "it was not written off"
    assert not Claim.objects.exclude(pk=claim.pk).exists(), "what was filed already covers what is owed"


def test_a_month_that_is_restated_while_its_claim_is_filed_takes_the_claim_back(contract: Any, alpha: Any) -> None:
    actor = Actor(PEOPLE[0], alpha)
    issue_report(contract, "2026-10", actor, now=NOW)
    claim = Claim.objects.get()
    maintenance(contract, actor)
    restated, filed = beside(
        alpha,
        lambda: issue_report(contract, "2026-10", Actor(PEOPLE[1], alpha), reason="notice", now=NOW).status,
        lambda: file_claim(claim, actor, where="portal", reference="48102").status,
    )
    assert restated == "restated"
    assert filed == f"{claim.label} was changed by somebody else just now. Look again."
    assert Claim.objects.get(pk=claim.pk).status == "written_off"
    assert not ClaimEvent.objects.filter(after="filed").exists()


def test_two_contracts_of_a_group_that_are_issued_at_once_ask_for_the_better_one(contract: Any, alpha: Any) -> None:
    actor = Actor(PEOPLE[0], alpha)
    text = terms(fee_charged='"7196.00"\nstacking_group = "node"')
    add_contract(read_terms(text), actor)
    other = add_contract(
        read_terms(text.replace("Bare metal H100", "Support plan")), actor, entitled_from="2026-09-01T00:00:00Z"
    ).contract
    for one in (contract, other):
        draft_report(one, "2026-10", NOW)  # what is derived of the nodes' months is there, so neither waits for that
    results = beside(
        alpha,
        lambda: issue_report(contract, "2026-10", actor, now=NOW).status,
        lambda: issue_report(other, "2026-10", Actor(PEOPLE[1], alpha), now=NOW).status,
    )
    assert results == ("issued", "issued")
    assert [one.amount for one in Claim.objects.all()] == [Decimal("719.60")], "credits of one group do not add"
