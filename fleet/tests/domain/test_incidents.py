"""One fault, one incident."""

from __future__ import annotations

from fleet.domain.incidents import REOPEN_SLOTS, group, opens, parts_of
from fleet.domain.rules import amend, amendment, load_rules
from fleet.domain.strips import StripRun
from fleet.domain.verdicts import State, Verdict

RULES = load_rules()
GOOD = Verdict(State.OBSERVED, 100, 100, 100, (), ())
DOWN = Verdict(State.OBSERVED, 0, 0, 0, ("GPU_MISSING", "XID_79"), ())
EDGE = Verdict(State.EDGE, 0, 100, 0, (), ("XID_79",))
APPLICATION = Verdict(State.OBSERVED, 100, 100, 100, ("XID_31",), ())
UNKNOWN = Verdict(State.UNKNOWN, None, 100, 0, ("NO_DATA",), ())
SLOW = Verdict(State.OBSERVED, 80, 80, 80, ("HW_THERMAL",), ())


def runs(*lengths: tuple[int, Verdict]) -> list[StripRun]:
    """Runs one behind the other from slot 1000."""
    found, at = [], 1000
    for length, verdict in lengths:
        found.append(StripRun(at, at + length, verdict))
        at += length
    return found


def test_a_fault_is_one_part_from_its_first_to_its_last_bad_slot() -> None:
    (part,) = parts_of("g3", runs((10, GOOD), (1, EDGE), (20, DOWN), (1, EDGE), (10, GOOD)), RULES)
    assert (part.first_slot, part.end_slot, part.bad_slots, part.weight) == (1010, 1032, 22, 0)
    assert part.codes["GPU_MISSING"].first_slot == 1011
    (incident,) = group([part])
    assert incident.lost_gpu_seconds == 22 * 15
    assert incident.scope == "gpu"
    assert incident.leading_code(RULES) == "XID_79"
    assert incident.party(RULES) == "infrastructure"


def test_a_fault_that_returns_within_ten_minutes_reopens_and_later_is_another() -> None:
    near = parts_of("g0", runs((5, DOWN), (REOPEN_SLOTS, GOOD), (5, DOWN)), RULES)
    far = parts_of("g0", runs((5, DOWN), (REOPEN_SLOTS + 1, GOOD), (5, DOWN)), RULES)
    assert len(near) == 1
    assert near[0].bad_slots == 10
    assert len(far) == 2


def test_application_errors_and_unknown_open_nothing() -> None:
    assert parts_of("g0", runs((5, APPLICATION), (50, UNKNOWN), (5, GOOD)), RULES) == []
    assert not opens("XID_31", RULES)
    assert not opens("NO_DATA", RULES)


def test_a_blip_is_no_incident_but_a_short_outage_is() -> None:
    assert group(parts_of("g0", runs((3, SLOW), (90, GOOD)), RULES)) == []
    assert len(group(parts_of("g0", runs((4, SLOW), (90, GOOD)), RULES))) == 1
    assert len(group(parts_of("g0", runs((1, DOWN), (90, GOOD)), RULES))) == 1


def test_at_half_the_weight_a_short_fault_is_no_blip() -> None:
    half = Verdict(State.OBSERVED, 50, 50, 50, ("HW_THERMAL",), ())
    assert len(group(parts_of("g0", runs((1, half), (90, GOOD)), RULES))) == 1
    more = Verdict(State.OBSERVED, 51, 51, 51, ("HW_THERMAL",), ())
    assert group(parts_of("g0", runs((3, more), (90, GOOD)), RULES)) == []


def test_gpu_seconds_are_those_of_gpus() -> None:
    """A port's outage is charged to the GPUs that it serves, never beside them."""
    down = Verdict(State.OBSERVED, 0, 0, 0, ("IB_PORT_DOWN",), ())
    share = Verdict(State.OBSERVED, 88, 88, 88, ("IB_PORT_DOWN",), ())
    parts = parts_of("p:G0", runs((100, down)), RULES) + parts_of("g0", runs((100, share)), RULES)
    (incident,) = group(parts)
    assert incident.lost_gpu_seconds == 100 * 15 * 12 // 100
    assert incident.scope == "node"
    (alone,) = group(parts_of("p:G0", runs((100, down)), RULES))
    assert (alone.scope, alone.lost_gpu_seconds) == ("port", 0)


def test_what_an_org_calls_its_own_opens_nothing() -> None:
    rules = amend(RULES, [amendment("GPU_MISSING", {"party": "customer"}, "we unbind them", 0)])
    assert not opens("GPU_MISSING", rules)
    assert opens("GPU_MISSING", RULES)


def test_a_dead_node_is_one_fault_and_not_eight() -> None:
    parts = [part for g in range(8) for part in parts_of(f"g{g}", runs((20, DOWN)), RULES)]
    (incident,) = group(parts)
    assert incident.scope == "node"
    assert incident.lost_gpu_seconds == 8 * 20 * 15


def test_a_cause_leads_whatever_follows_from_it_in_the_same_slot() -> None:
    """Else the phase of a sample decides what an incident is called, and which nodes' share one."""

    def leads(*codes: str) -> str:
        verdict = Verdict(State.OBSERVED, 0, 0, 0, codes, ())
        (incident,) = group(parts_of("g0", runs((20, verdict)), RULES))
        return incident.leading_code(RULES)

    assert leads("GPU_MISSING", "XID_79") == "XID_79"
    assert leads("GPU_MISSING", "SXID_FABRIC") == "SXID_FABRIC"
    assert leads("RECOVERY_REQUIRED", "XID_119") == "XID_119"
    assert leads("GPU_MISSING", "RECOVERY_REQUIRED") == "GPU_MISSING"
    assert leads("RECOVERY_REQUIRED") == "RECOVERY_REQUIRED"
    assert leads("XID_119", "XID_79") == "XID_79"  # by severity: lost before down
    before = Verdict(State.OBSERVED, 0, 0, 0, ("XID_62",), ())
    after = Verdict(State.OBSERVED, 0, 0, 0, ("GPU_MISSING", "XID_62"), ())
    (incident,) = group(parts_of("g0", runs((5, before), (20, after)), RULES))
    assert incident.leading_code(RULES) == "XID_62"


def test_two_faults_at_once_with_nothing_in_common_are_two() -> None:
    parts = parts_of("g0", runs((20, DOWN)), RULES) + parts_of("g1", runs((20, SLOW)), RULES)
    assert len(group(parts)) == 2


def test_a_suspicion_opens_nothing_and_belongs_to_what_it_comes_true_in() -> None:
    pending = Verdict(State.PENDING, 100, 100, 0, (), ("XID_109",))
    contested = Verdict(State.CONTESTED, 100, 100, 0, (), ("XID_79",))
    hung = Verdict(State.OBSERVED, 0, 0, 0, ("XID_109",), ())
    assert group(parts_of("g0", runs((30, pending), (90, GOOD), (240, contested)), RULES)) == []
    (part,) = parts_of("g0", runs((5, GOOD), (3, pending), (20, hung), (10, pending)), RULES)
    assert (part.first_slot, part.end_slot, part.bad_slots, part.lost) == (1005, 1028, 23, 2000)
    (part,) = parts_of("g0", runs((100, contested), (20, DOWN)), RULES)
    assert part.first_slot == 1100 - REOPEN_SLOTS  # what lasted longer was no sign of this fault
    early, late = parts_of("g0", runs((5, hung), (81, GOOD), (5, hung)), RULES)
    assert (early.end_slot, late.first_slot) == (1005, 1086)
    assert len(parts_of("g0", runs((5, hung), (40, GOOD), (20, pending), (5, hung)), RULES)) == 1


def test_what_is_certain_or_unknown_is_told_even_where_it_lowers_nothing() -> None:
    """A fault at a weight of 100, for the contract to count; a GPU of which an Xid told before NVML went blind."""
    told = Verdict(State.OBSERVED, 100, 100, 100, ("XID_109",), ())
    assert len(group(parts_of("n", runs((40, told)), RULES))) == 1
    blind = Verdict(State.UNKNOWN, None, 100, 0, ("NVML_BLIND",), ("XID_95",))
    assert len(group(parts_of("g0", runs((40, blind)), RULES))) == 1


def test_counted_from_a_slot_on_a_part_keeps_the_suspicion_before_it() -> None:
    pending = Verdict(State.PENDING, 100, 100, 0, (), ("XID_79",))
    found = runs((10, DOWN), (50, GOOD), (4, pending), (20, DOWN))
    whole = parts_of("g0", found, RULES)[-1]
    assert parts_of("g0", found, RULES, since=whole.first_slot + 4) == [whole]
    (rest,) = parts_of("g0", found, RULES, since=whole.first_slot + 10)
    assert (rest.first_slot, rest.bad_slots) == (whole.first_slot + 10, 14)
