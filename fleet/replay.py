"""A published trace of server faults, replayed through the fold: samples in, strips and rollups out.

A trace is a list of events in the order of time: `{"node_id", "event_time" (days from its beginning), "event_type"
("fault_start" or "fault_end"), "fault_type"}`. A server stands for one GPU that the driver lists while no fault is
open and that PCI calls dead while one is. Every slot has one sample at its centre; equal ones are held run-length.
Faults that overlap are one outage; a fault without length has no sample and lowers nothing.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, NamedTuple

from agent import wire
from fleet import decode
from fleet.domain.clocks import NO_FIT
from fleet.domain.context import Context
from fleet.domain.fold import fold, hold, silence
from fleet.domain.node_hours import ReceivedBatch
from fleet.domain.placement import Item, place
from fleet.domain.rules import Rules, load_rules
from fleet.domain.runs import Emission
from fleet.domain.slots import HOUR_MS, SLOT_MS, SLOTS_PER_HOUR, first_slot, hour_of_slot
from fleet.domain.strips import HourRow, Rollup
from fleet.domain.verdicts import State, Verdict

DAY_MS = 86_400_000
ZERO_MS = 480_000 * HOUR_MS  # where a trace's day 0 is laid: the first slot of an hour
CONTEXT = Context(gpus=1)
SUBJECT, BUS = "g0", "0000:10:00.0"


class TraceError(ValueError):
    """A file that is no trace; the message names the event."""


class Outage(NamedTuple):
    """A server's merged downtime `[start_ms, end_ms)`, ms from the trace's beginning."""

    start_ms: int
    end_ms: int


@dataclass(frozen=True)
class Trace:
    """Outages per server in the order of time; what was merged into them; the trace's length in ms."""

    outages: Mapping[str, tuple[Outage, ...]]
    faults: int
    zero_length: int
    overlapping: int
    end_ms: int

    @property
    def downtime_ms(self) -> int:
        """Merged downtime to the millisecond, without the fold."""
        return sum(o.end_ms - o.start_ms for outages in self.outages.values() for o in outages)


@dataclass
class Totals:
    """Seconds of all servers: per state, down, and weight times seconds of what is known."""

    seconds: dict[State, int] = field(default_factory=lambda: dict.fromkeys(State, 0))
    nominal_ws: int = 0
    down_s: int = 0
    incidents: int = 0

    def add(self, rollup: Rollup) -> None:
        """Count an hour of a server."""
        for state, seconds in rollup.seconds.items():
            self.seconds[state] += seconds
        self.nominal_ws += rollup.nominal_ws
        self.down_s += rollup.down_s

    @property
    def availability(self) -> float:
        """Weighted seconds over the seconds that are not unknown, 0 to 1."""
        known = sum(self.seconds.values()) - self.seconds[State.UNKNOWN]
        return self.nominal_ws / (100 * known) if known else 1.0


def read_trace(text: str) -> Trace:
    """The trace in this JSON. Raises TraceError."""
    try:
        events = json.loads(text, parse_float=Decimal, parse_int=Decimal)
    except ValueError as error:
        raise TraceError(f"no JSON: {error}") from error
    if not isinstance(events, list) or not events:
        raise TraceError("a trace is a list of events")
    opened: dict[str, list[tuple[int, str]]] = {}
    merged: dict[str, list[Outage]] = {}
    begun: dict[str, int] = {}
    faults = zero = overlapping = last = 0
    for number, event in enumerate(events, 1):
        node, ms, kind, fault = _event(number, event, last)
        last = ms
        mine = opened.setdefault(node, [])
        if kind == "fault_start":
            faults += 1
            if mine:
                overlapping += 1
            else:
                begun[node] = ms
            mine.append((ms, fault))
            continue
        if not mine:
            raise TraceError(f"event {number}: ends a fault that did not begin")
        ended = next((one for one in mine if one[1] == fault), mine[0])
        mine.remove(ended)
        zero += ended[0] == ms
        if not mine:
            _join(merged.setdefault(node, []), Outage(begun[node], ms))
    for node, mine in opened.items():
        if mine:
            _join(merged.setdefault(node, []), Outage(begun[node], last))
    return Trace({node: tuple(outages) for node, outages in merged.items()}, faults, zero, overlapping, last)


def _event(number: int, event: Any, last: int) -> tuple[str, int, str, str]:
    try:
        ms = int((event["event_time"] * DAY_MS).to_integral_value())
        node, kind = str(event["node_id"]), event["event_type"]
        fault = json.dumps(event.get("fault_type"), sort_keys=True, default=str)
    except (KeyError, TypeError, AttributeError, ArithmeticError) as error:
        raise TraceError(f"event {number}: not node_id, event_time, event_type ({error!r})") from error
    if kind not in ("fault_start", "fault_end"):
        raise TraceError(f"event {number}: event_type {kind!r}")
    if ms < last:
        raise TraceError(f"event {number}: earlier than the one before it")
    return node, ms, kind, fault


def _join(outages: list[Outage], one: Outage) -> None:
    if outages and one.start_ms <= outages[-1].end_ms:
        outages[-1] = Outage(outages[-1].start_ms, max(one.end_ms, outages[-1].end_ms))
    else:
        outages.append(one)


def replay(trace: Trace, nodes: int, rules: Rules | None = None) -> Iterator[Totals]:
    """The running totals after each of `nodes` servers: those of the trace, then servers without a fault.

    Raises TraceError when the trace has more servers.
    """
    if nodes < len(trace.outages):
        raise TraceError(f"the trace alone has {len(trace.outages)} servers")
    rules = rules or load_rules()
    totals = Totals()
    hours = _Hours(totals)
    good, dead = _samples()
    everything = [*trace.outages.values(), *([()] * (nodes - len(trace.outages)))]
    for outages in everything:
        emissions, opened = fold_server(outages, trace.end_ms, good, dead, rules)
        totals.incidents += opened
        hours.add(emissions)
        yield totals


def fold_server(
    outages: Sequence[Outage], end_ms: int, good: Item, dead: Item, rules: Rules
) -> tuple[list[Emission], int]:
    """The verdicts of one server's GPU up to the trace's end, and how many incidents were opened."""
    end = _centre(end_ms)
    state, emissions, opened = None, [], 0
    for item, start, stop in _stretches(outages, good, dead, end):
        if state is None:
            state, out, events = fold(None, item._replace(ms=start), rules, CONTEXT)
            emissions += out
            start += SLOT_MS
        assert state is not None
        state, out, events = hold(state, item._replace(ms=start), stop, rules, CONTEXT)
        assert state is not None
        emissions += out
        opened += sum(event.kind == "opened" for event in events)
    if state is not None:
        emissions += silence(state, end - SLOT_MS // 2, rules, CONTEXT)
    return [e for e in emissions if e.subject == SUBJECT], opened


def _stretches(outages: Iterable[Outage], good: Item, dead: Item, end: int) -> Iterator[tuple[Item, int, int]]:
    """(sample, first instant, instant before which it is repeated), gapless from the trace's beginning."""
    at = _centre(0)
    for outage in outages:
        first, after = min(_centre(outage.start_ms), end), min(_centre(outage.end_ms), end)
        if first == after:
            continue
        if at < first:
            yield good, at, first
        yield dead, first, after
        at = after
    if at < end:
        yield good, at, end


def _centre(ms: int) -> int:
    """The first instant of a sample (a slot's centre) not before this one."""
    return ZERO_MS + -(-(ms - SLOT_MS // 2) // SLOT_MS) * SLOT_MS + SLOT_MS // 2


def _samples() -> tuple[Item, Item]:
    """A sample in which the driver lists the GPU, and one in which PCI calls it dead."""
    gpu = {"uuid": "GPU-00000000-0000-0000-0000-000000000001", "name": "GPU", "pci_bus_id": BUS}
    sources = {"nvml": "ok", "kmsg": "ok", "pci": "ok"}
    batch = {
        "schema_version": 1,
        "cluster_id": "trace",
        "node_id": "trace",
        "agent_version": "0",
        "agent_id": "trace",
        "seq": 1,
        "boot_id": "trace",
        "boot_at": ZERO_MS - DAY_MS,
        "intervals": [
            {"ts": ZERO_MS, "clock": {"status": "synchronised", "error_ms": 0}, "sources": sources, "gpus": [gpu]},
            {
                "ts": ZERO_MS + SLOT_MS,
                "clock": {"status": "synchronised", "error_ms": 0},
                "sources": sources,
                "pci": {BUS: "dead"},
                "gpus": [],
            },
        ],
    }
    read = decode.decode_trusted(wire.encode(batch))
    placed = place([ReceivedBatch(bytes(32), ZERO_MS + 2 * SLOT_MS, read)], NO_FIT)
    good, dead = placed.items
    return good, dead


class _Hours:
    """Adds emissions up as hour rows do; an hour of one verdict, which most are, is made once."""

    def __init__(self, totals: Totals) -> None:
        self._totals = totals
        self._whole: dict[Verdict, Rollup] = {}

    def add(self, emissions: Iterable[Emission]) -> None:
        """Count a server's emissions, given in any order."""
        rows: dict[int, HourRow] = {}
        said: dict[int, int] = {}
        for e in emissions:
            for hour in range(hour_of_slot(e.first_slot), hour_of_slot(e.end_slot - 1) + 1):
                first = max(e.first_slot, first_slot(hour))
                slots = min(e.end_slot, first_slot(hour + 1)) - first
                if slots == SLOTS_PER_HOUR:
                    self._totals.add(self._whole_hour(hour, e.verdict))
                    continue
                rows.setdefault(hour, HourRow(hour)).put(SUBJECT, first, first + slots, e.verdict)
                said[hour] = said.get(hour, 0) + slots
        for hour, row in rows.items():
            rollup = HourRow.from_bytes(row.to_bytes()).rollup(SUBJECT)  # slots outside the trace are no time of it
            rollup.seconds[State.UNKNOWN] -= (SLOTS_PER_HOUR - said[hour]) * (SLOT_MS // 1000)
            self._totals.add(rollup)

    def _whole_hour(self, hour: int, verdict: Verdict) -> Rollup:
        found = self._whole.get(verdict)
        if found is None:
            row = HourRow(hour)
            row.put(SUBJECT, first_slot(hour), first_slot(hour + 1), verdict)
            found = self._whole[verdict] = row.rollup(SUBJECT)
        return found
