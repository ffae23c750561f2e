"""Every verdict can be read in words."""

from __future__ import annotations

from fleet.domain.explain import STATES, ends_of, explain
from fleet.domain.rules import load_rules
from fleet.domain.verdicts import State, Verdict


def test_every_reason_of_the_rule_set_can_be_explained() -> None:
    rules = load_rules()
    for reason in rules.reasons.values():
        (said,) = explain(Verdict(State.OBSERVED, 100, 100, 100, (reason.code,)), rules)
        assert said.title == reason.title
        if reason.lasts == "condition":
            assert ends_of(reason)


def test_a_pending_79_says_what_it_needs_and_what_ends_it() -> None:
    (said,) = explain(Verdict(State.PENDING, 100, 100, 0, (), ("XID_79",)), load_rules())
    assert said.holds == "possible"
    assert said.needs == "the GPU missing by NVML or PCI"
    assert "a new boot" in said.ends


def test_a_code_that_no_rule_knows_is_said_to_be_unknown() -> None:
    (said,) = explain(Verdict(State.OBSERVED, 100, 100, 100, ("XID_1234",)), load_rules())
    assert "does not know" in said.explanation
    assert said.weight == 100


def test_every_state_has_words() -> None:
    assert set(STATES) == set(State)
