"""Whose the death of a node was, over all nodes of a computation; everything else stays as the fold said it."""

from __future__ import annotations

from claims.domain.evaluate import evaluate
from claims.domain.facts import Reason, Standing
from claims.domain.lost_nodes import with_parties
from claims.tests.domain.test_traps import XID, bad, inputs, line, terms

LOST = Reason("NODE_LOST", 0, "hardware_failure", "ambiguous", Standing.CERTAIN)


def parties(given):
    """Node → the parties of its NODE_LOST."""
    return {
        name: {reason.party for run in runs for reason in run.facts.reasons if reason.code == "NODE_LOST"}
        for name, runs in given.facts.items()
    }


def lost(*nodes, **more):
    """Each node dead from a slot on for a hundred slots."""
    return inputs({name: line((at, at + 100, bad(LOST))) for name, at in nodes} | more)


def test_one_and_two_deaths_say_nothing_three_within_two_minutes_do():
    assert parties(with_parties(lost(("n1", 10), ("n2", 12)))) == {"n1": {"ambiguous"}, "n2": {"ambiguous"}}
    found = parties(with_parties(lost(("n1", 10), ("n2", 12), ("n3", 18), ("n4", 400))))
    assert found == {"n1": {"infrastructure"}, "n2": {"infrastructure"}, "n3": {"infrastructure"}, "n4": {"ambiguous"}}


def test_a_node_that_dies_three_times_is_no_three_nodes():
    thrice = inputs({"n1": line((10, 12, bad(LOST)), (14, 16, bad(LOST)), (17, 18, bad(LOST)))})
    assert with_parties(thrice) is thrice


def test_a_fault_of_a_gpu_just_before_is_a_cause_an_old_one_and_a_mere_possibility_are_none():
    for at, reason, party in (
        (60, XID, "infrastructure"),
        (59, XID, "ambiguous"),
        (95, XID._replace(standing=Standing.PENDING), "infrastructure"),
        (95, XID._replace(standing=Standing.POSSIBLE), "ambiguous"),
        (95, XID._replace(standing=Standing.CONTESTED), "ambiguous"),
        (95, XID._replace(party="ambiguous"), "ambiguous"),
        (95, XID._replace(category="degraded"), "ambiguous"),
    ):
        given = lost(("n1", 100), **{"n1/gpu0": line((at, 101, bad(reason)))})
        assert parties(with_parties(given))["n1"] == {party}, (at, reason)


def test_a_fault_of_another_node_is_no_cause():
    given = lost(("n1", 100), n2=line((95, 101, bad(XID))))
    assert with_parties(given) is given


def test_what_the_org_calls_the_customers_stays_so():
    mine = LOST._replace(party="customer")
    given = inputs({name: line((10, 110, bad(mine))) for name in ("n1", "n2", "n3")})
    assert set().union(*parties(with_parties(given)).values()) == {"customer"}


def test_the_contract_counts_it_then_without_counting_what_is_ambiguous():
    contract = terms(units=[{"name": "n1"}, {"name": "n2"}, {"name": "n3"}])
    for shift, counted in ((0, 100), (40, 0)):
        given = lost(("n1", 10), ("n2", 12), ("n3", 14 + shift))
        found = evaluate(contract, given).units[0].readings
        assert (found["lower"].lost, found["upper"].lost) == (counted, 100)
