"""Availability of any period, by cluster, node, GPU or model: integer sums, exact to the slot.

Whole hours come from the columns of their rows (by GPU or model: from the rollups in them), the ragged hours at the
edges from their strips. A node counts from its first known slot on and, while it lives, up to its newest sample; what
counts and is not known is unknown. A slot that no evidence has closed yet counts once the node is silent.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from django.db import connection

from fleet.bodies import decompress, load_row
from fleet.domain.slots import SLOT_S, SLOTS_PER_HOUR, slot_of
from fleet.domain.slots import first_slot as first_of_hour
from fleet.domain.strips import HourRow, Rollup, read_rollups
from fleet.domain.verdicts import State, Verdict
from fleet.selectors_api import NodeLine, Span, TooMuch, Wanted, iter_nodes
from fleet.selectors_hours import read_hour
from fleet.selectors_live import to_ms

MAX_NODE_HOURS = 30_000  # that an answer by GPU or model may read
GROUPS = ("cluster", "node", "gpu", "model")
KNOWN = tuple(state for state in State if state is not State.UNKNOWN)

_FIRST = """
select w.id, h.hour, case when h.hour >= %s then h.body end from unnest(%s::bigint[]) as w(id)
 cross join lateral (select hour, body from fleet_nodehour where node_id = w.id order by hour limit 1) h
"""
_SUMS = """
select node_id, sum(gpus * 3600 - unknown_s)::bigint, sum(observed_s)::bigint, sum(edge_s)::bigint,
       sum(pending_s)::bigint, sum(contested_s)::bigint, sum(held_s)::bigint, sum(nominal_sum)::bigint,
       sum(lower_sum - 100 * unknown_s)::bigint, sum(upper_sum)::bigint, sum(down_s - held_s)::bigint,
       sum(degraded_s)::bigint
  from fleet_nodehour where node_id = any(%s) and hour >= %s and hour < %s group by node_id
"""
_BODIES = "select node_id, hour, body from fleet_nodehour where node_id = any(%s) and hour = any(%s)"


@dataclass
class Tally:
    """GPU-seconds of known time per state and weight × GPU-seconds over them; `counted` is all that counts."""

    counted: int = 0
    known: int = 0
    states: dict[State, int] = field(default_factory=lambda: dict.fromkeys(KNOWN, 0))
    nominal: int = 0
    lower: int = 0
    upper: int = 0
    down: int = 0
    degraded: int = 0

    def add(self, other: Tally) -> None:
        """Add another's figures."""
        for name in ("counted", "known", "nominal", "lower", "upper", "down", "degraded"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        for state in KNOWN:
            self.states[state] += other.states[state]

    def add_rollup(self, rollup: Rollup) -> None:
        """Add a GPU's whole hour."""
        gone, held = rollup.seconds[State.UNKNOWN], rollup.seconds[State.HELD]
        self.known += 3600 - gone
        for state in KNOWN:
            self.states[state] += rollup.seconds[state]
        self.nominal += rollup.nominal_ws
        self.lower += rollup.lower_ws - 100 * gone
        self.upper += rollup.upper_ws
        self.down += rollup.down_s - held
        self.degraded += rollup.degraded_s

    def add_slots(self, verdict: Verdict, slots: int) -> None:
        """Add so many slots of a GPU with this verdict."""
        if verdict.nominal is None:
            return
        seconds = slots * SLOT_S
        self.known += seconds
        self.states[verdict.state] += seconds
        self.nominal += verdict.nominal * seconds
        self.lower += verdict.lower * seconds
        self.upper += verdict.upper * seconds
        if verdict.state is not State.HELD:
            self.down += seconds if verdict.nominal == 0 else 0
            self.degraded += seconds if 0 < verdict.nominal < 100 else 0

    @property
    def unknown(self) -> int:
        """GPU-seconds that count and of which nothing is known."""
        return max(0, self.counted - self.known)


@dataclass(frozen=True)
class Group:
    """One line of the answer: its key as JSON, its figures."""

    key: dict[str, Any]
    tally: Tally


@dataclass(frozen=True)
class Availability:
    """The whole and its groups, in the order of nodes."""

    whole: Tally
    groups: list[Group]


def get_availability(now: datetime, span: Span, group: str, wanted: Wanted) -> Availability:
    """Figures of a span. Raises TooMuch when an answer by GPU or model would read too much.

    At most six queries, whatever the number of nodes below 250; one more for each further 250.
    """
    nodes = {line.id: line for line in iter_nodes(now, wanted)}
    first_whole, end_whole = -(-span.first_slot // SLOTS_PER_HOUR), span.end_slot // SLOTS_PER_HOUR
    by_gpu = group in ("gpu", "model")
    if by_gpu and len(nodes) * len(span.hours) > MAX_NODE_HOURS:
        raise TooMuch(
            f"By {group}, an answer reads at most {MAX_NODE_HOURS} node hours. Page through it: at most"
            f" {MAX_NODE_HOURS // len(nodes)} hours at a time, or one cluster= or node= at a time."
        )
    counted = _counted(now, nodes, span)
    places: dict[tuple[int, int], Tally] = defaultdict(Tally)  # node, index; index −1 = all GPUs of the node
    ragged = [hour for hour in span.hours if not first_whole <= hour < end_whole]
    if by_gpu:
        _whole_by_gpu(places, nodes, range(first_whole, end_whole))
    else:
        _whole_by_node(places, nodes, first_whole, end_whole)
    for node_id, row in _rows(nodes, ragged):
        for subject in row.subjects():
            if subject[0] == "g":
                tally = places[node_id, int(subject[1:]) if by_gpu else -1]
                for run in row.runs(subject):
                    slots = min(run.end_slot, span.end_slot) - max(run.first_slot, span.first_slot)
                    if slots > 0:
                        tally.add_slots(run.verdict, slots)
    for node_id, line in nodes.items():
        if by_gpu:
            for gpu in line.now.gpus:
                places[node_id, gpu.place].counted = counted[node_id] * SLOT_S
        else:
            places[node_id, -1].counted = counted[node_id] * SLOT_S * len(line.now.gpus)
    return _grouped(places, nodes, group)


def sums_by_node(now: datetime, span: Span, nodes: Mapping[int, NodeLine]) -> dict[int, Tally]:
    """Figures of whole hours per node. Two queries."""
    places: dict[tuple[int, int], Tally] = defaultdict(Tally)
    _whole_by_node(places, nodes, span.first_slot // SLOTS_PER_HOUR, span.end_slot // SLOTS_PER_HOUR)
    for node_id, slots in _counted(now, nodes, span).items():
        places[node_id, -1].counted = slots * SLOT_S * len(nodes[node_id].now.gpus)
    return {node_id: tally for (node_id, _), tally in places.items()}


def _counted(now: datetime, nodes: Mapping[int, NodeLine], span: Span) -> dict[int, int]:
    """node → slots of the span that count for each of its GPUs."""
    now_slot = slot_of(to_ms(now))
    with connection.cursor() as cursor:
        cursor.execute(_FIRST, [span.hours.start, list(nodes)])
        firsts = {node_id: (hour, body) for node_id, hour, body in cursor.fetchall()}
    counted = {}
    for node_id, line in nodes.items():
        end = now_slot if line.now.is_silent else slot_of(line.last_sample_ms or 0)
        if node_id not in firsts:
            begin = slot_of(line.first_seen_ms)
        else:
            hour, body = firsts[node_id]
            begin = span.first_slot
            if body is not None:
                begin = max(begin, first_of_hour(hour) + read_hour(bytes(body)).known_from)
        counted[node_id] = max(0, min(end, span.end_slot) - max(begin, span.first_slot))
    return counted


def _whole_by_node(places: dict[tuple[int, int], Tally], nodes: Iterable[int], first: int, end: int) -> None:
    if first >= end:
        return
    with connection.cursor() as cursor:
        cursor.execute(_SUMS, [list(nodes), first, end])
        for node_id, known, *states, nominal, lower, upper, down, degraded in cursor.fetchall():
            places[node_id, -1].add(
                Tally(0, known, dict(zip(KNOWN, states, strict=True)), nominal, lower, upper, down, degraded)
            )


def _whole_by_gpu(places: dict[tuple[int, int], Tally], nodes: Iterable[int], hours: range) -> None:
    if not hours:
        return
    with connection.cursor() as cursor:
        cursor.execute(_BODIES, [list(nodes), list(hours)])
        for node_id, _, body in cursor:
            for subject, rollup in read_rollups(decompress(body)).items():
                if subject[0] == "g":
                    places[node_id, int(subject[1:])].add_rollup(rollup)


def _rows(nodes: Iterable[int], hours: list[int]) -> list[tuple[int, HourRow]]:
    if not hours:
        return []
    with connection.cursor() as cursor:
        cursor.execute(_BODIES, [list(nodes), hours])
        return [(node_id, load_row(body)) for node_id, _, body in cursor.fetchall()]


def _grouped(places: Mapping[tuple[int, int], Tally], nodes: Mapping[int, NodeLine], group: str) -> Availability:
    whole = Tally()
    tallies: dict[Any, Tally] = defaultdict(Tally)
    keys: dict[Any, dict[str, Any]] = {}
    for (node_id, place), tally in sorted(places.items()):
        line = nodes[node_id]
        key, shown = _key(line, place, group)
        keys[key] = shown
        tallies[key].add(tally)
        whole.add(tally)
    return Availability(whole, [Group(keys[key], tally) for key, tally in tallies.items()])


def _key(line: NodeLine, place: int, group: str) -> tuple[Any, dict[str, Any]]:
    """(what tells groups apart, the group as JSON)."""
    if group == "cluster":
        return line.cluster, {"cluster": line.cluster, "simulated": line.is_simulated}
    node = {"cluster": line.cluster, "simulated": line.is_simulated, "node_id": line.id, "node": line.name}
    if group == "node":
        return line.id, node
    gpu = next((gpu for gpu in line.now.gpus if gpu.place == place), None)
    if group == "gpu":
        return (line.id, place), {**node, "index": place, "uuid": gpu.uuid if gpu and gpu.uuid else None}
    model = gpu.model if gpu and gpu.model else None
    return model, {"model": model}
