"""Amendments and declarations by date: what they change, from which hour on, and that rows say which gave them."""

from __future__ import annotations

from typing import Any

import pytest

from fleet.domain.context import Context, Dated
from fleet.domain.rules import Amendment, Rules, RulesError, amend, amendment, base_version, diff, load_rules
from fleet.domain.slots import HOUR_MS, SLOT_MS, SLOTS_PER_HOUR
from fleet.domain.strips import HourRow
from fleet.tests.domain import facts
from fleet.tests.domain.harness import Node

HOUR = 480_000
START = HOUR * HOUR_MS
RULES = load_rules()
NEXT = START + HOUR_MS


class ByHour(Dated):
    """Amendments and contexts by date, as an org's rows say them."""

    def __init__(self, *amendments: Amendment, contexts: tuple[tuple[int, Context], ...] = ()) -> None:
        super().__init__(RULES)
        self.amendments, self.contexts = amendments, contexts
        self.known: dict[int, Rules] = {}

    def rules(self, hour: int) -> Rules:
        if hour not in self.known:
            self.known[hour] = amend(RULES, self.amendments, hour * HOUR_MS)
        return self.known[hour]

    def context(self, hour: int, is_first: bool = False) -> Context:
        found = Context()
        for begins, context in self.contexts:
            if begins <= hour:
                found = context
        return found


def node(
    ruling: Rules | Dated = RULES, context: Context | None = None, slots: int = 480, gpus: int = 2, **xid: Any
) -> Node:
    """A node of two hours; `xid` is an event of GPU 0 in its tenth slot."""
    one = Node(context or Context(), rules=ruling)
    for first in range(0, slots, 4):
        intervals = []
        for slot in range(first, first + 4):
            ts = START + slot * SLOT_MS + 7_500
            events = (facts.Event(pci_bus_id=facts.gpu(0).pci_bus_id, at=ts, **xid),) if slot == 10 and xid else ()
            intervals.append(facts.Interval(ts=ts, gpus=tuple(facts.gpu(i) for i in range(gpus)), events=events))
        one.deliver([facts.received(facts.Batch(tuple(intervals), seq=first))])
    return one


def nominal(one: Node, slot: int, subject: str = "g0") -> int | None:
    first = HOUR * SLOTS_PER_HOUR + slot
    verdict = one.verdicts(subject, first, first + 1)[0]
    return verdict.nominal if verdict else None


def row(one: Node, hour: int) -> HourRow:
    return HourRow.from_bytes(one.rows[hour])


def half(from_ms: int, to_ms: int | None = None, weight: int = 50, code: str = "XID_95") -> Any:
    return amendment(code, {"weight": weight}, "agreed with the provider", from_ms, to_ms)


def test_an_amendment_is_in_force_from_its_instant_to_its_end() -> None:
    one = half(START, NEXT)
    weights = [amend(RULES, [one], at).reasons["XID_95"].weight for at in (START - 1, START, NEXT - 1, NEXT)]
    assert weights == [0, 50, 50, 0]
    assert amend(RULES, [one], NEXT) is RULES
    assert amend(RULES, [one]).reasons["XID_95"].weight == 50


def test_rows_say_which_rule_set_and_amendment_gave_them() -> None:
    schedule = ByHour(half(NEXT))
    plain, amended = node(code=95), node(schedule, code=95)
    assert plain.rows[HOUR] == amended.rows[HOUR]
    before, after = row(amended, HOUR), row(amended, HOUR + 1)
    assert before.rules_version == RULES.version
    assert after.rules_version == schedule.rules(HOUR + 1).version
    assert base_version(after.rules_version) == RULES.version
    assert len(after.rules_version) <= 40
    assert after.input_digest != row(plain, HOUR + 1).input_digest


def test_an_open_condition_weighs_what_the_rules_of_the_hour_say() -> None:
    one = node(ByHour(half(NEXT)), code=95)
    assert [nominal(one, slot) for slot in (11, 238, 241, 478)] == [0, 0, 50, 50]
    one = node(ByHour(half(START, NEXT)), code=95)
    assert [nominal(one, slot) for slot in (11, 238, 241, 478)] == [50, 50, 0, 0]
    one = node(ByHour(half(NEXT, weight=100)), code=95)
    assert [nominal(one, slot) for slot in (11, 238, 241, 478)] == [0, 0, 100, 100]


def test_under_mig_an_amendment_weighs_the_instance_alone() -> None:
    one = node(ByHour(half(NEXT)), code=95, instance=1, slices=3)
    assert [nominal(one, slot) for slot in (11, 241)] == [58, 79]  # 3 of 7 of 100, of 50


def test_the_same_history_in_pieces_gives_the_same_bytes_under_a_schedule() -> None:
    schedule = ByHour(half(NEXT))
    wanted = node(schedule, code=95)
    again = Node(rules=schedule)
    again.deliver(list(wanted.inbox.values())[40:])
    again.deliver(list(wanted.inbox.values())[:40])
    again.settle()
    assert again.rows == wanted.rows
    assert again.state == wanted.state


def test_the_later_amendment_of_a_reason_goes_over_the_earlier() -> None:
    schedule = ByHour(half(NEXT, weight=70), half(START, weight=50))
    assert [schedule.rules(HOUR + n).reasons["XID_95"].weight for n in (-1, 0, 1, 9)] == [0, 50, 70, 70]
    assert len(schedule.rules(HOUR + 9).amendments) == 2


@pytest.mark.parametrize(
    ("code", "changes", "message"),
    [
        ("XID_95", {"weight": 101}, "weight: must be an integer from 0 to 100"),
        ("XID_95", {"weight": "50"}, "weight: must be an integer"),
        ("XID_95", {"party": "nobody"}, "party: must be one of"),
        ("XID_95", {"party": "ambiguous"}, "needs: an ambiguous reason below 100"),
        ("XID_95", {"supersedes": ["XID_95"]}, "a cycle"),
        ("XID_95", {"supersedes": ["NOBODY"]}, "there is no reason NOBODY"),
        ("XID_95", {"ends": []}, "a condition must say what ends it"),
        ("NOBODY", {"weight": 50}, "there is no reason NOBODY"),
        ("XID_95", {"xid": 13}, "xid: cannot be amended"),
        ("XID_95", {"code": "XID_13"}, "code: cannot be amended"),
        ("XID_95", {}, "changes nothing"),
    ],
)
def test_an_amendment_that_a_rule_file_could_not_hold_is_refused(
    code: str, changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(RulesError, match=message):
        amend(RULES, [amendment(code, changes, "because", START)])


def test_an_amendment_needs_a_reason_and_a_span() -> None:
    with pytest.raises(RulesError, match="reason: is missing"):
        amendment("XID_95", {"weight": 50}, " ", START)
    with pytest.raises(RulesError, match="ends before it begins"):
        amendment("XID_95", {"weight": 50}, "because", START, START)
    with pytest.raises(RulesError, match="two begin at one instant"):
        amend(RULES, [half(START, weight=70), half(START)])


def test_a_difference_names_what_moves_a_verdict_first() -> None:
    (change,) = diff(RULES, amend(RULES, [half(START)]))
    assert (change.code, change.kind, change.is_weighty) == ("XID_95", "changed", True)
    assert change.keys[0] == ("weight", 0, 50)
    assert diff(RULES, RULES) == ()
    assert diff(RULES, amend(RULES, [amendment("XID_95", {"action": "Call."}, "x", 0)]))[0].is_weighty is False


def test_declared_hardware_falls_and_rises_by_date() -> None:
    dated = ByHour(contexts=((0, Context(gpus=2)), (HOUR + 1, Context(gpus=1)), (HOUR + 2, Context(gpus=3))))
    one = node(dated, slots=720)
    assert [row(one, HOUR + n).subjects() for n in range(3)] == [
        ["g0", "g1", "n"],
        ["g0", "n"],
        ["g0", "g1", "g2", "n"],
    ]
    assert nominal(one, 239, "g1") == 100
    again = Node(rules=dated)
    again.deliver(list(one.inbox.values())[70:])
    again.deliver(list(one.inbox.values())[:70])
    again.settle()
    assert again.rows == one.rows


def test_the_device_of_a_place_that_ends_takes_a_missing_one() -> None:
    dated = ByHour(contexts=((0, Context(gpus=3)), (HOUR + 1, Context(gpus=2))))
    one = Node(rules=dated)
    for first in range(0, 480, 4):
        intervals = [
            facts.Interval(
                ts=START + slot * SLOT_MS + 7_500,
                gpus=tuple(facts.gpu(i) for i in range(3) if slot < 20 or i != 1),
                pci={facts.gpu(1).pci_bus_id: "absent"} if slot >= 20 else None,
            )
            for slot in range(first, first + 4)
        ]
        one.deliver([facts.received(facts.Batch(tuple(intervals), seq=first))])
    assert [nominal(one, slot, "g1") for slot in (19, 100, 239, 242)] == [100, 0, 0, 100]
    assert row(one, HOUR + 1).subjects() == ["g0", "g1", "n"]


def test_what_a_declaration_no_longer_names_is_no_port() -> None:
    ports = (facts.port(0), facts.port(1))
    both, one_left = Context(ports=(("G0", None), ("G1", None))), Context(ports=(("G1", None),))
    one = Node(rules=ByHour(contexts=((0, both), (HOUR + 1, one_left))))
    for first in range(0, 480, 4):
        intervals = [
            facts.Interval(ts=START + slot * SLOT_MS + 7_500, gpus=(facts.gpu(0),), ib_ports=ports)
            for slot in range(first, first + 4)
        ]
        one.deliver([facts.received(facts.Batch(tuple(intervals), seq=first))])
    assert [row(one, HOUR + n).subjects() for n in range(2)] == [["g0", "n", "p:G0", "p:G1"], ["g0", "n", "p:G1"]]
