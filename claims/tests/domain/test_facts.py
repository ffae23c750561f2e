"""From the fold's verdicts to facts: standing, weight, and what an unknown slot still says."""

from __future__ import annotations

import json

import pytest

from claims.domain.evaluate import evaluate
from claims.domain.facts import FactRun, Standing, ancestors, facts_of, parent, runs_of
from claims.domain.rule_spans import RuleSpan, Translator, always, plain_spans, read_spans
from claims.errors import InputsError
from claims.tests.domain.test_traps import inputs, line, terms
from fleet.domain.rules import amend, amendment, load_rules
from fleet.domain.verdicts import HEALTHY, UNKNOWN_PROVISIONAL, State, Verdict, unknown

RULES = load_rules().reasons


def weights(verdict):
    return {reason.code: reason.weight for reason in facts_of(verdict, RULES).reasons}


def standings(verdict):
    return {reason.code: reason.standing for reason in facts_of(verdict, RULES).reasons}


@pytest.mark.parametrize(
    ("verdict", "standing"),
    [
        (Verdict(State.OBSERVED, 0, 0, 0, ("XID_79",)), Standing.CERTAIN),
        (Verdict(State.EDGE, 0, 100, 0, (), ("XID_79",)), Standing.EDGE_BAD),
        (Verdict(State.EDGE, 100, 100, 0, (), ("XID_79",)), Standing.EDGE),
        (Verdict(State.PENDING, 100, 100, 0, (), ("XID_79",)), Standing.PENDING),
        (Verdict(State.CONTESTED, 100, 100, 0, (), ("XID_79",)), Standing.CONTESTED),
        (Verdict(State.HELD, 0, 100, 0, (), ("XID_79",)), Standing.HELD),
        (Verdict(State.OBSERVED, 100, 100, 0, (), ("XID_79",)), Standing.POSSIBLE),
        (Verdict(State.UNKNOWN, None, 100, 0, ("NO_DATA",), ("XID_79",)), Standing.POSSIBLE),
    ],
)
def test_the_state_gives_the_standing_of_what_is_not_certain(verdict, standing):
    assert standings(verdict) == {"XID_79": standing}


def test_a_hidden_ports_share_never_counts_in_a_binary_contract_and_a_mapped_port_does():
    shared = Verdict(State.OBSERVED, 88, 88, 88, ("IB_PORT_DOWN",))
    mapped = Verdict(State.OBSERVED, 0, 0, 0, ("IB_PORT_DOWN",))
    contract = terms(counts=["network"])
    for verdict, lost in ((shared, 0), (mapped, 100)):
        given = inputs({"n1": line((0, 100, facts_of(verdict, RULES)))})
        assert evaluate(contract, given).units[0].readings["lower"].lost == lost
    # Beside a dead GPU nobody can tell what the port alone would weigh: it does not count.
    assert weights(Verdict(State.OBSERVED, 0, 0, 0, ("IB_PORT_DOWN", "XID_79"))) == {"IB_PORT_DOWN": 100, "XID_79": 0}


def test_a_throttled_share_weighs_what_the_verdict_says():
    assert weights(Verdict(State.OBSERVED, 90, 90, 90, ("SW_THERMAL",))) == {"SW_THERMAL": 90}
    assert weights(Verdict(State.OBSERVED, 30, 30, 30, ("HW_THERMAL", "SW_THERMAL"))) == {
        "HW_THERMAL": 30,
        "SW_THERMAL": 30,
    }
    both = Verdict(State.OBSERVED, 75, 75, 75, ("IB_PORT_DOWN", "SW_THERMAL"))
    assert weights(both) == {"IB_PORT_DOWN": 100, "SW_THERMAL": 100}


def test_a_slice_of_a_gpu_is_not_the_gpu():
    assert weights(Verdict(State.OBSERVED, 86, 86, 86, ("XID_79",))) == {"XID_79": 86}


def test_notes_and_customers_reasons_change_no_weight():
    assert weights(Verdict(State.OBSERVED, 100, 100, 100, ("RMA_DUE", "no_kernel_log"))) == {}
    customer = next(code for code, rule in RULES.items() if rule.party == "customer")
    assert weights(Verdict(State.OBSERVED, 0, 0, 0, ("XID_79", customer)))["XID_79"] == 0


def test_an_unknown_slot_keeps_its_cause_and_only_the_witnesses_word():
    facts = facts_of(Verdict(State.UNKNOWN, None, 100, 0, ("NODE_UNREACHABLE", "NO_DATA", "XID_79")), RULES)
    assert (facts.blind, facts.cause) == (True, "NO_DATA")
    assert [reason.code for reason in facts.reasons] == ["NODE_UNREACHABLE"]
    assert facts_of(UNKNOWN_PROVISIONAL, RULES).cause == "OPEN"


def test_a_code_that_no_rule_knows_is_skipped():
    assert facts_of(Verdict(State.OBSERVED, 0, 0, 0, ("XID_9999",)), RULES).reasons == ()


def test_runs_are_joined_where_the_facts_are_the_same():
    dead = Verdict(State.OBSERVED, 0, 0, 0, ("XID_79",))
    translator = always(load_rules())
    runs = runs_of(
        [(0, 240, HEALTHY), (240, 250, HEALTHY), (250, 260, dead), (300, 310, unknown("NO_DATA"))], translator.over
    )
    assert [(run.first_slot, run.end_slot) for run in runs] == [(0, 250), (250, 260), (300, 310)]
    assert isinstance(runs[0], FactRun)
    assert runs[1].facts is next(translator.over(250, 260, dead))[2]


def test_a_place_lies_in_its_node():
    assert (parent("n1/gpu0"), parent("n1")) == ("n1", "")
    assert ancestors("n1/gpu0") == ["n1/gpu0", "n1"]


def test_a_run_over_an_amendment_has_the_facts_of_each_time():
    rules = load_rules()
    changed = amendment("XID_79", {"party": "customer"}, "the owner pulls cards", from_ms=3_600_000)
    spans = [
        RuleSpan(0, rules.version, (), rules),
        RuleSpan(240, rules.version, (changed,), amend(rules, [changed])),
    ]
    dead = Verdict(State.OBSERVED, 0, 0, 0, ("XID_79",))
    for known in (spans, read_spans(json.loads(json.dumps(plain_spans(spans))), load_rules)):
        runs = runs_of([(100, 300, dead)], Translator(known).over)
        assert [(a, b, facts.reasons[0].party) for a, b, facts in runs] == [
            (100, 240, "infrastructure"), (240, 300, "customer"),
        ]  # fmt: skip
    plain = plain_spans(spans)
    plain[1]["amendments"][0]["reason"] = "another"
    with pytest.raises(InputsError, match="not those that the report"):
        read_spans(plain, load_rules)
