"""A hang of the GPU's firmware counts for the contract whose provider owns the driver, and for no other."""

from __future__ import annotations

from decimal import Decimal

import pytest

from claims.domain.completeness import assess
from claims.domain.evaluate import evaluate
from claims.domain.facts import facts_of
from claims.domain.incidents import incidents
from claims.tests.domain.test_traps import TERMS, inputs, line, terms
from fleet.domain.rules import load_rules
from fleet.domain.verdicts import State, Verdict

RULES = load_rules().reasons
FIRMWARE = {"counts": ["firmware"], "owns_driver": True}


def month(code, weight=0):
    verdict = Verdict(State.OBSERVED, weight, weight, weight, (code,))
    return inputs({"n1": line((100, 300, facts_of(verdict, RULES)))})


@pytest.mark.parametrize("code", ["XID_46", "XID_119", "XID_120"])
def test_one_month_counts_for_one_contract_and_not_for_the_other(code):
    same = month(code)
    theirs, ours = terms(**FIRMWARE), terms(**{**FIRMWARE, "owns_driver": False})
    found = evaluate(theirs, same)
    assert (found.units[0].readings["lower"].lost, found.claim) == (200, Decimal("1000.00"))
    assert incidents(theirs, same, theirs.units[0], found.units[0].outages)[0].reasons == ((code, 3000),)
    found = evaluate(ours, same)
    assert [found.units[0].readings[name].lost for name in ("lower", "nominal", "upper")] == [0, 0, 200]
    assert found.claim == Decimal("0.00")


def test_a_weighted_contract_asks_the_same():
    for owns, lost in ((True, 200), (False, 0)):
        contract = terms(**{**FIRMWARE, "kind": "weighted", "owns_driver": owns})
        assert evaluate(contract, month("XID_119")).units[0].readings["lower"].lost == lost


def test_a_contract_that_does_not_say_who_owns_the_driver_is_incomplete_only_where_it_matters():
    silent = terms(counts=["firmware"])
    found = assess(silent, month("XID_119"))
    assert (found.status, found.missing) == ("incomplete", ("owns_driver",))
    assert (found.least.claim, found.most.claim) == (Decimal("0.00"), Decimal("1000.00"))
    assert assess(terms(), month("XID_119")).missing == ()  # it counts no firmware
    assert assess(silent, month("XID_79")).missing == ()


@pytest.mark.parametrize(
    ("code", "category", "owner"),
    [("XID_109", "firmware", "driver"), ("NVLINK_FABRIC", "degraded", "driver"), ("IB_PORT_INIT", "network", "fabric")],
)
def test_the_contract_alone_says_whose_a_fault_is_whose_rule_names_an_owner(code, category, owner):
    weight = RULES[code].weight
    same = month(code, weight)
    fields = {"counts": [category], "weights": [weight]}
    for says, lost in ((True, 200), (False, 0)):
        found = evaluate(terms(**fields, **{f"owns_{owner}": says}), same).units[0].readings
        assert (found["lower"].lost, found["upper"].lost) == (lost, 200)
    either = terms(**fields, **{f"owns_{owner}": False}, ambiguous_counts=True)
    assert evaluate(either, same).units[0].readings["lower"].lost == 200
    assert assess(terms(**fields), same).missing == (f"owns_{owner}",)


def test_every_rule_that_names_an_owner_names_one_that_a_contract_has():
    assert {rule.owner for rule in RULES.values()} == {"", "driver", "fabric"}
    assert "owns_driver" not in TERMS  # so the months above say it themselves
