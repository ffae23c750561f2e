"""Every verdict can be read in words."""

from __future__ import annotations

from fleet.domain.explain import STATES, also_of, ends_of, explain, needs_of
from fleet.domain.rules import load_rules
from fleet.domain.verdicts import State, Verdict


def test_every_reason_of_the_rule_set_can_be_explained() -> None:
    rules = load_rules()
    for reason in rules.reasons.values():
        (said,) = explain(Verdict(State.OBSERVED, 100, 100, 100, (reason.code,)), rules)
        assert said.title == reason.title
        assert ends_of(reason)


def test_a_pending_79_says_what_it_needs_and_what_ends_it() -> None:
    (said,) = explain(Verdict(State.PENDING, 100, 100, 0, (), ("XID_79",)), load_rules())
    assert said.holds == "possible"
    assert said.needs == "the GPU missing by NVML or PCI"
    assert "a new boot" in said.ends


def test_a_slot_lowered_for_a_share_says_what_the_share_comes_to() -> None:
    rules = load_rules()
    (said,) = explain(Verdict(State.OBSERVED, 80, 80, 80, ("HW_THERMAL",)), rules)
    assert (said.weight, said.share) == (50, 80)
    (said,) = explain(Verdict(State.OBSERVED, 50, 50, 50, ("HW_THERMAL",)), rules)
    assert said.share is None
    both = explain(Verdict(State.OBSERVED, 40, 40, 40, ("HW_THERMAL", "XID_95")), rules)
    assert [one.share for one in both] == [None, None]  # whose share it is can't be told


def test_each_reason_names_whose_driver_or_fabric_decides() -> None:
    """Links that no GPU has are the driver's owner's, a port that waits is the fabric's."""
    rules = load_rules()
    assert needs_of(rules.reasons["NVLINK_FABRIC"]) == "the provider running the driver"
    assert needs_of(rules.reasons["IB_PORT_INIT"]) == "the provider running the fabric"


def test_what_else_a_rule_decides_is_said() -> None:
    rules = load_rules()

    def also(code: str) -> str:
        return " ".join(also_of(rules.reasons[code], rules))

    assert also("XID_46") == "Infrastructure's only where the contract says that the provider runs the driver."
    assert also("IB_PORT_MISSING") == "Takes 3 samples in a row."
    assert "beside: Memory error, not contained or Memory error, not recovered." in also("XID_48")
    assert "as: Uncorrectable memory error, its own slot." in also("XID_48")
    assert "as well: Hardware slowdown." in also("HW_THERMAL")
    assert also("XID_79") == ""
    for reason in rules.reasons.values():
        assert not reason.review or "review" in reason.explanation + " ".join(also_of(reason, rules))


def test_a_code_that_no_rule_knows_is_said_to_be_unknown() -> None:
    (said,) = explain(Verdict(State.OBSERVED, 100, 100, 100, ("XID_1234",)), load_rules())
    assert "does not know" in said.explanation
    assert said.weight == 100


def test_every_state_has_words() -> None:
    assert set(STATES) == set(State)
