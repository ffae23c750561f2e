"""Windows, and tickets that ask for the credit in so many words."""

from __future__ import annotations

from decimal import Decimal

from claims.domain.deadlines import claim_ticket, opening_ticket, windows
from claims.domain.evaluate import evaluate
from claims.domain.facts import HEALTHY, FactRun
from claims.domain.incidents import incidents
from claims.domain.periods import calendar_month, ms_of, utc_text
from claims.tests.domain.test_traps import FIRST, SEPTEMBER, XID, bad, inputs, line, terms

NOVEMBER = calendar_month("2026-11", "Europe/Berlin")


def computed(**more):
    contract = terms(**more)
    given = inputs({"n1": line((0, 200, bad(XID)), (5000, 5010, bad(XID)))})
    result = evaluate(contract, given)
    return contract, result, {"n1": incidents(contract, given, contract.units[0], result.units[0].outages)}


def test_a_window_after_the_period_in_months_of_the_calendar():
    contract = terms(zone="Europe/Berlin", deadline={"count": 3, "unit": "months", "after": "period_end"})
    (window,) = windows(contract, NOVEMBER, {})
    assert (utc_text(window.opens_ms), utc_text(window.closes_ms)) == ("2026-11-30T23:00:00Z", "2027-02-28T23:00:00Z")


def test_days_are_local_days_over_a_change_of_clocks():
    october = calendar_month("2026-09", "Europe/Berlin")
    contract = terms(zone="Europe/Berlin", deadline={"count": 30, "unit": "days", "after": "period_end"})
    (window,) = windows(contract, october, {})
    assert utc_text(window.closes_ms) == "2026-10-30T23:00:00Z"
    assert window.left_ms(window.closes_ms + 1) == 0


def test_each_incident_has_its_own_window_and_the_first_to_close_leads():
    contract, _, found = computed(deadline={"count": 3, "unit": "days", "after": "incident_start"})
    first, second = windows(contract, SEPTEMBER, found)
    assert utc_text(first.closes_ms) == "2026-09-04T00:00:00Z"
    assert first.closes_ms < second.closes_ms
    assert first.opens_ms == FIRST * 15_000
    late, _ = windows(terms(deadline={"count": 3, "unit": "days", "after": "incident_end"}), SEPTEMBER, found)
    assert late.closes_ms - first.closes_ms == 200 * 15_000


def test_a_contract_that_does_not_say_has_no_end_and_says_so():
    (window,) = windows(terms(claim_deadline="end of the second billing cycle"), SEPTEMBER, {})
    assert window.closes_ms is None
    assert "second billing cycle" in window.why
    assert window.left_ms(ms_of("2026-12-01T00:00:00Z")) is None


def test_the_opening_ticket_reserves_the_credit_and_names_what_is_missing():
    contract, _, found = computed(evidence=["serial number"], filing_channel="portal")
    draft = opening_ticket(contract, contract.units[0], found["n1"][0], {"account": "4242"})
    assert "since 2026-09-01T00:00:00Z (UTC)" in draft.body
    assert "expressly reserve the service credit" in draft.body
    assert "4242" in draft.body
    assert "serial number" in draft.missing
    assert not any("account" in one for one in draft.missing)


def test_the_claim_lists_each_outage_in_utc_and_the_amount():
    contract, result, found = computed(currency="EUR", filing_subject="SLA Credit Request", filing_channel="mail")
    draft = claim_ticket(contract, result, found, {"account": "1", "resource_ids": "i-1", "contact": "Ada"})
    assert result.claim == Decimal("1000.00")
    assert draft.subject == "SLA Credit Request"
    assert "expressly request the service credit for 2026-09: 1000.00 EUR" in draft.body
    assert "2026-09-01T00:00:00Z to 2026-09-01T00:50:00Z (UTC), 3000 s counted: XID_79 3000 s" in draft.body
    assert draft.missing == ()


def test_what_the_provider_asks_of_everybody_can_stand_in_the_contract():
    said = {"account": "sub-4242", "contact": "Ada, ada@example.org", "filing_channel": "portal"}
    named = {"units": [{"name": "n1", "provider_id": "i-0abc"}]}
    contract, result, found = computed(**said, **named)
    for draft in (
        claim_ticket(contract, result, found, {}),
        opening_ticket(contract, contract.units[0], found["n1"][0], {}),
    ):
        assert draft.missing == ()
        for wanted in (
            "Account, subscription or project: sub-4242",
            "The provider's own ids of the resources: n1 = i-0abc",
            "Name and address of the person who files: Ada, ada@example.org",
        ):
            assert wanted in draft.body.splitlines()
    assert "sub-9" in claim_ticket(contract, result, found, {"account": "sub-9"}).body


def test_units_without_an_id_of_the_providers_are_named_as_missing():
    units = [{"name": "n1", "provider_id": "i-1"}, {"name": "n2"}]
    contract = terms(units=units, filing_channel="portal")
    both = {name: line((0, 200, bad(XID))) for name in ("n1", "n2")}
    result = evaluate(contract, inputs(both))
    draft = claim_ticket(contract, result, {}, {"account": "1", "contact": "Ada"})
    assert draft.missing == ("the provider's own ids of the resources: n2",)


def test_a_result_without_a_claim_is_missing_from_the_ticket():
    contract = terms(minimum_coverage_percent="100")
    result = evaluate(contract, inputs({"n1": [FactRun(FIRST, FIRST + 1000, HEALTHY)]}))
    draft = claim_ticket(contract, result, {}, {})
    assert draft.missing[0] == "a result: it reads insufficient_data"
    assert "no credit" in draft.body
