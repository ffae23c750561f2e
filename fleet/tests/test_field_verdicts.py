"""The kernel log cases of the field through the real reader and the fold: class, weight, incidents and end of each.

A case tells lines and the right answer, not what the rest of the machine shows. It is told here by its end: a GPU that
needs a reset says so by its recovery action, one that was lost is not listed and dead on the bus, any other is well.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agent.replay import replay
from fleet.domain.incidents import IncidentFacts, group, parts_of
from fleet.domain.rules import Reason, load_rules
from fleet.domain.scenario import made
from fleet.domain.scenario.node import Node
from fleet.domain.slots import SLOT_MS, SLOTS_PER_HOUR
from fleet.domain.strips import StripRun
from fleet.domain.verdicts import State, Verdict

FILE = Path(__file__).parents[2] / "agent/tests/data/field-cases.jsonl"
ALL = [json.loads(line) for line in FILE.read_text().splitlines()]
CASES = [case for case in ALL if case["kind"].startswith("a.")]
COUNT = 73
RULES = load_rules()

EVENT_SLOT = 1_000 * SLOTS_PER_HOUR + 60  # the newest line lies one second into this slot
BAD = 20  # samples of trouble after it, from its own slot on
LATER = EVENT_SLOT + BAD
END = LATER + 45  # longer than a fault that comes back may stay away
OTHER = "0000:ff:00.0"  # a GPU of the node that no case is about

#: Whose an event is by its class in the cases.
PARTY = {
    "infrastructure": "infrastructure",
    "application": "customer",
    "informational": "none",
    "follow_up": "none",
    "recovery": "none",
    "depends": "ambiguous",
    "uncertain": "ambiguous",
}
#: Codes whose party is another one here; none of them lowers by itself, so nobody pays for the difference.
OTHERWISE = {
    32: ("ambiguous", "the link's signal may be the cause"),
    38: ("ambiguous", "a code of the driver's firmware that tools read differently"),
    63: ("infrastructure", "a repair of memory, though it takes nothing"),
    137: ("customer", "a program's access to another GPU"),
    144: ("infrastructure", "reviewed unless the line says fatal"),
    145: ("infrastructure", "reviewed unless the line says fatal"),
    149: ("infrastructure", "reviewed unless the line says fatal"),
    154: ("none", "it decides other reasons and is none itself"),
    176: ("infrastructure", "corrected errors of the link"),
}
LOSES = {"A001", "A029", "A032", "A033", "A065", "F001", "F020"}  # the GPU is gone: a line says so, or none can be read
#: Cases that lower nothing by themselves where the review of the weights takes the slot of the event.
OWN_SLOT = {"A017": 100 - 100 // 7, "A022": 0}
#: What lowers in each case: the reason that leads its incident. Written from the review of the weights.
LEADS = {
    "A001": "XID_79",
    "A014": "XID_119",
    "A025": "XID_48",
    "A026": "XID_48",
    "A028": "XID_140",
    "A029": "GPU_MISSING",
    "A031": "XID_119",
    "A032": "XID_79",
    "A033": "XID_79",
    "A036": "XID_74",
    "A040": "XID_62",
    "A041": "XID_62",
    "A045": "XID_149F",
    "A049": "RECOVERY_REQUIRED",
    "A052": "XID_119",
    "A057": "XID_156",
    "A063": "XID_95",
    "A065": "XID_79",
    "A076": "XID_119",
    "A078": "XID_145F",
    "F001": "XID_79",
    "F003": "RECOVERY_REQUIRED",
    "F013": "XID_62",
    "F020": "XID_79",
}


def events_of(case: dict[str, Any]) -> list[made.Event]:
    """What the real reader makes of the case, moved to where this file's node lies in time."""
    raw = [line["event"] for line in replay("kmsg", case["input"]) if "event" in line]
    if not raw:
        return []
    by = EVENT_SLOT * SLOT_MS + 1_000 - max(event["at"] for event in raw)
    known = made.Event.__dataclass_fields__
    events = [made.Event(**{key: value for key, value in event.items() if key in known}) for event in raw]
    return [replace(event, at=(event.at or 0) + by, mono=None, boot_id=None) for event in events]


class Machine:
    """A node with these GPUs in memory, which is heard in the middle of each slot."""

    def __init__(self, buses: Iterable[str], events: list[made.Event]) -> None:
        self.buses, self.events = sorted({*buses, OTHER}), events  # the order in which the server numbers them
        self.node, self.boot, self.boot_at, self.seq = Node(), "b1", 0, 0

    def hear(self, first: int, end: int, lost: Iterable[str] = (), action: Iterable[str] = ()) -> None:
        """Samples of the slots `[first, end)`: GPUs that are lost, GPUs that ask for a reset, all others well."""
        for at in range(first, end, 4):
            self._deliver([self._interval(slot, set(lost), set(action)) for slot in range(at, min(end, at + 4))])

    def _interval(self, slot: int, lost: set[str], action: set[str]) -> made.Interval:
        due = slot * SLOT_MS + SLOT_MS // 2
        told = tuple(event for event in self.events if (event.at or 0) < due)
        self.events = [event for event in self.events if event not in told]
        gpus = tuple(
            made.gpu(index, pci_bus_id=bus, recovery_action=int(bus in action))
            for index, bus in enumerate(self.buses)
            if bus not in lost
        )
        pci = {bus: "dead" if bus in lost else "present" for bus in self.buses}
        return made.Interval(due, gpus, events=told, pci=pci)

    def _deliver(self, intervals: list[made.Interval]) -> None:
        self.seq += 1
        batch = made.Batch(tuple(intervals), seq=self.seq, boot_id=self.boot, boot_at=self.boot_at or None)
        self.node.deliver([made.received(batch)])

    def reboot(self, slot: int) -> None:
        """What is heard from now on is another boot, which began within the slot before this one."""
        self.boot, self.boot_at = "b2", (slot - 1) * SLOT_MS + 1

    def verdicts(self, bus: str, first: int, end: int, until: int | None = None) -> list[Verdict]:
        """The verdicts of a GPU."""
        self.node.settle()
        found = self.node.verdicts(f"g{self.buses.index(bus)}", first, end, until)
        assert None not in found
        return [verdict for verdict in found if verdict is not None]

    def incidents(self, until: int) -> list[IncidentFacts]:
        """The node's incidents as the product groups them."""
        parts = []
        for subject in ("n", *(f"g{i}" for i in range(len(self.buses)))):
            verdicts = self.node.verdicts(subject, EVENT_SLOT - 20, until, until)
            runs = [StripRun(slot, slot + 1, v) for slot, v in enumerate(verdicts, EVENT_SLOT - 20) if v is not None]
            parts += parts_of(subject, runs, RULES)
        return group(parts)


def machine_of(case: dict[str, Any]) -> Machine:
    """The case's node, heard for ten minutes before its newest line."""
    events = events_of(case)
    buses = [event.pci_bus_id for event in events if event.pci_bus_id]
    machine = Machine(buses, events)
    machine.hear(EVENT_SLOT - 40, EVENT_SLOT)
    return machine


def dropped(case: dict[str, Any]) -> set[str]:
    """The bus ids of the GPUs that the case says are lowered."""
    if case["id"] == "A033":  # tells of a loss without an Xid in its note
        return {"0000:b3:00.0"}
    return {event["pci"] for event in case["expected"]["events"] if event["weight_drop"] not in (False, "policy")}


LOWERING = [case for case in CASES if dropped(case) and case["id"] != "S011"]
QUIET = [case for case in CASES if case not in LOWERING and case["id"] not in OWN_SLOT]


def test_every_case_is_here() -> None:
    assert len(CASES) == COUNT
    assert {case["id"] for case in LOWERING} == set(LEADS)
    assert set(OWN_SLOT) <= {case["id"] for case in CASES}
    assert set(LEADS) >= LOSES
    assert set(OTHERWISE) <= {event["xid"] for case in CASES for event in case["expected"]["events"]}


def rule_of(event: made.Event) -> Reason:
    """The reason of an event by the rule set."""
    found = RULES.xid(event.code or 0, event.severity)
    assert found is not None
    return found


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["id"])
def test_the_class_of_each_event_is_its_reasons_party(case: dict[str, Any]) -> None:
    events = {(e.code, e.pci_bus_id): rule_of(e) for e in events_of(case) if e.kind == "xid"}
    for wanted in case["expected"]["events"]:
        rule = events[wanted["xid"], wanted["pci"]]
        if not rule.lowers and wanted["xid"] in OTHERWISE:
            assert rule.party == OTHERWISE[wanted["xid"]][0]
        elif wanted["pci"] is not None:  # without a device it is nobody's, whatever the code
            assert rule.party == PARTY[wanted["class"]]
        if wanted["weight_drop"] is False and rule.lowers and rule.lasts != "slot" and wanted["pci"] is not None:
            assert rule.needs, "what must not lower alone has to need something"


@pytest.mark.parametrize("case", QUIET, ids=lambda case: case["id"])
def test_what_must_not_lower_takes_nothing_and_opens_no_incident(case: dict[str, Any]) -> None:
    machine = machine_of(case)
    machine.hear(EVENT_SLOT, END)
    for bus in machine.buses:
        verdicts = machine.verdicts(bus, EVENT_SLOT - 10, END - 1)
        assert {(verdict.nominal, verdict.lower) for verdict in verdicts} == {(100, 100)}
        assert {verdict.upper for verdict in verdicts[-20:]} == {100}, "at once: over long before the end"
    assert [one.weight for one in machine.incidents(END) if one.weight < 100] == []
    assert case["expected"].get("incidents", 0) == 0


@pytest.mark.parametrize("case_id", sorted(OWN_SLOT))
def test_a_contained_error_takes_its_own_slot(case_id: str) -> None:
    """The cases say no drop; the review of the weights takes the slot in which a program lost its data."""
    case = next(case for case in CASES if case["id"] == case_id)
    machine = machine_of(case)
    machine.hear(EVENT_SLOT, END)
    bus = case["expected"]["events"][-1]["pci"]
    weights = [verdict.nominal for verdict in machine.verdicts(bus, EVENT_SLOT - 10, END - 1)]
    assert weights[10] == OWN_SLOT[case_id]
    assert set(weights[:10] + weights[11:]) == {100}
    assert RULES.reasons["XID_94"].category == "none"


def trouble(case: dict[str, Any], machine: Machine, first: int, end: int) -> None:
    """The slots `[first, end)` as the case's end wants them: the GPU gone, or asking for a reset."""
    gone = case["id"] in LOSES
    machine.hear(first, end, **{"lost" if gone else "action": dropped(case)})


def check_down(case: dict[str, Any], machine: Machine, until: int, leads: str) -> None:
    """Down from the event on, everything else well, as many incidents as the case says."""
    for bus in dropped(case):
        inside = machine.verdicts(bus, EVENT_SLOT + 1, LATER - 1)
        assert {(verdict.state, verdict.nominal, verdict.lower) for verdict in inside} == {(State.OBSERVED, 0, 0)}
        (before,) = machine.verdicts(bus, EVENT_SLOT - 8, EVENT_SLOT - 7)
        assert before.nominal == 100 or case["id"] in ("A052",)  # its first line is 90 seconds older
    (other,) = {verdict.nominal for verdict in machine.verdicts(OTHER, EVENT_SLOT - 10, LATER)}
    assert other == 100
    found = machine.incidents(until)
    assert len(found) == case["expected"].get("incidents", 1)
    (incident,) = found
    assert incident.leading_code(RULES) == leads
    assert incident.party(RULES) == "infrastructure"
    assert incident.scope == ("gpu" if len(dropped(case)) == 1 else "node")


@pytest.mark.parametrize("case", LOWERING, ids=lambda case: case["id"])
def test_what_lowers_is_down_until_its_evidence_ends_it(case: dict[str, Any]) -> None:
    """The recovery action back to none, or for what was lost a new boot in which the GPU is listed again."""
    machine = machine_of(case)
    trouble(case, machine, EVENT_SLOT, LATER)
    if case["id"] in LOSES or "rebooted (new boot" in case["expected"]["ends"]:
        machine.reboot(LATER)
    machine.hear(LATER, END)
    check_down(case, machine, END, LEADS[case["id"]])
    for bus in dropped(case):
        after = machine.verdicts(bus, LATER + 1, END - 1)
        assert {(verdict.nominal, verdict.lower, verdict.upper) for verdict in after} == {(100, 100, 100)}


@pytest.mark.parametrize("case", LOWERING, ids=lambda case: case["id"])
def test_silence_never_ends_what_lowers_and_a_boot_only_with_the_gpu(case: dict[str, Any]) -> None:
    machine = machine_of(case)
    trouble(case, machine, EVENT_SLOT, LATER)
    for bus in dropped(case):
        held = machine.verdicts(bus, LATER + 2, LATER + 480, LATER + 480)
        assert {(verdict.state, verdict.nominal, verdict.lower) for verdict in held} == {(State.HELD, 0, 100)}
    machine.reboot(LATER)
    machine.hear(LATER, LATER + 20, lost=dropped(case))  # back, and the GPU is not
    for bus in dropped(case):
        still = machine.verdicts(bus, LATER + 1, LATER + 19)
        assert {verdict.nominal for verdict in still} == {0}
    machine.hear(LATER + 20, LATER + 40)
    for bus in dropped(case):
        well = machine.verdicts(bus, LATER + 21, LATER + 39)
        assert {verdict.nominal for verdict in well} == {100}
    leads = LEADS[case["id"]]  # that it stayed away says more than that the driver asked for a reset
    check_down(case, machine, LATER + 40, "GPU_MISSING" if leads == "RECOVERY_REQUIRED" else leads)


def test_a_loss_that_the_driver_denies_is_none() -> None:
    """S011: the text is the kernel's, but NVML goes on reading the GPU."""
    case = next(case for case in CASES if case["id"] == "S011")
    machine = machine_of(case)
    machine.hear(EVENT_SLOT, END)
    verdicts = machine.verdicts("0000:3b:00.0", EVENT_SLOT - 10, END - 1)
    assert {verdict.nominal for verdict in verdicts} == {100}
    assert {verdict.state for verdict in verdicts} == {State.OBSERVED, State.PENDING}
    assert machine.incidents(END) == []


def test_an_event_of_a_gpu_that_is_not_the_nodes_lowers_nothing() -> None:
    """F020 counts only where its GPU is in the inventory."""
    case = next(case for case in CASES if case["id"] == "F020")
    machine = Machine([], events_of(case))
    machine.hear(EVENT_SLOT - 20, END)
    assert {verdict.nominal for verdict in machine.verdicts(OTHER, EVENT_SLOT - 10, END - 1)} == {100}
    assert machine.incidents(END) == []


def test_a_recovery_line_ends_what_is_open() -> None:
    """A050: the line of the action back to none ends the interval at its own instant, without a sample."""
    case = next(case for case in CASES if case["id"] == "A050")
    bus = "0000:0b:00.0"
    machine = Machine([bus], events_of(case))
    machine.events.append(made.Event("xid", 62, bus, at=(EVENT_SLOT - 12) * SLOT_MS + 1_000))
    machine.hear(EVENT_SLOT - 20, EVENT_SLOT - 12)
    machine.hear(EVENT_SLOT - 12, EVENT_SLOT, action=[bus])
    machine.hear(EVENT_SLOT, END)
    weights = [verdict.nominal for verdict in machine.verdicts(bus, EVENT_SLOT - 20, END - 1)]
    assert weights[9:19] == [0] * 10
    assert set(weights[21:]) == {100}
    (incident,) = machine.incidents(END)
    assert incident.end_slot in (EVENT_SLOT, EVENT_SLOT + 1)


@pytest.mark.parametrize("codes", [(79,), (62, 45)], ids=str)
def test_a_storm_of_lines_is_one_event_each_and_one_incident(codes: tuple[int, ...]) -> None:
    """20,000 lines in 20 seconds, through the reader: a full buffer is one pass, a burst one event with its count."""
    bus = "0000:3b:00.0"
    line = "4,%d,%d,c;NVRM: Xid (PCI:0000:3b:00): %d, pid=1, name=x, once more"
    lines = [line % (n, 1_000_000 + n * 1_000, codes[n % len(codes)]) for n in range(20_000)]
    case = {"id": "storm", "input": "\n".join(lines), "expected": {"events": [{"pci": bus, "weight_drop": True}]}}
    events = events_of(case)
    assert sum(event.count or 1 for event in events) == len(lines)
    assert len(events) <= 10 * len(codes)
    machine = Machine([bus], events)
    machine.hear(EVENT_SLOT - 40, EVENT_SLOT)
    machine.hear(EVENT_SLOT, LATER, **{"lost" if codes == (79,) else "action": [bus]})
    machine.reboot(LATER)
    machine.hear(LATER, END)
    (incident,) = machine.incidents(END)
    assert incident.leading_code(RULES) == f"XID_{codes[0]}"
    kinds = [event.kind for event in machine.node.events if event.code == f"XID_{codes[0]}"]
    assert kinds == ["opened", "closed"]
