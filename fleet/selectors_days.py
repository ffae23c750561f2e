"""Days of the fleet or of a node: sums per node and day, and the bars of 90 days.

Days that are over come from `fleet_nodeday` (`fleet.day_sums`), what is not summed yet is added up from the hours.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple

from django.db.models import Q

from fleet.day_sums import DAY_HOURS, FIGURES, summed_days
from fleet.domain.slots import HOUR_MS, SLOT_S, SLOTS_PER_HOUR
from fleet.hour_sums import ZERO, Sums, gap, total
from fleet.models import Incident
from fleet.selectors_hours import NodeHours, load_first_bodies, read_hour
from fleet.selectors_live import to_ms
from fleet.sql import execute

DAYS = 90
DAY_MS = DAY_HOURS * HOUR_MS
BAR = 10  # width of a day in the picture
HEIGHT = 32
LEAST_HEIGHT = 3
MOST_LISTED = 14


class NodeDay(NamedTuple):
    """A node's rows of a day, added up: GPU-seconds and weights × GPU-seconds; `first_hour` is its earliest row's."""

    first_hour: int
    counted: int
    known: int
    nominal: int
    lower: int
    upper: int
    down: int
    degraded: int
    held: int


_HOURS = """
select h.hour / 24, h.node_id, {figures}
  from fleet_nodehour h where h.hour between %b and %b and (%b::bigint is null or h.node_id = %b) group by 1, 2
"""
_DAYS = """
select d.day, d.node_id, d.first_hour, d.counted, d.known, d.nominal, d.lower, d.upper, d.down, d.degraded, d.held
  from fleet_nodeday d join fleet_summedday s on s.day = d.day
 where d.day between %b and %b and (%b::bigint is null or d.node_id = %b)
"""
_TOGETHER = """
select d.node_id, min(d.first_hour), sum(d.known)::bigint, sum(d.nominal)::bigint, sum(d.lower)::bigint,
       sum(d.upper)::bigint, sum(d.down)::bigint, sum(d.degraded)::bigint, sum(d.held)::bigint
  from fleet_nodeday d where d.day between %b and %b group by 1
"""


def node_days(first_day: int, last_day: int, only: int | None = None) -> dict[int, dict[int, NodeDay]]:
    """day → node → sums, of all nodes or of `only`; days count from 1970 UTC, both ends included.

    Summed days come from their table, the others are added up. At most three queries while summing keeps up.
    """
    days: dict[int, dict[int, NodeDay]] = defaultdict(dict)
    summed = summed_days(first_day, last_day)
    if summed:
        _add(days, execute(_DAYS, [first_day, last_day, only, only]))
    for first, last in _spans(day for day in range(first_day, last_day + 1) if day not in summed):
        _add(
            days,
            execute(_HOURS.format(figures=FIGURES), [first * DAY_HOURS, last * DAY_HOURS + DAY_HOURS - 1, only, only]),
        )
    return dict(days)


def closed_sums(first_day: int, last_day: int) -> tuple[int, dict[int, NodeHours]]:
    """(the first hour that is not in them, node → sums of the summed days from `first_day` on, without a gap)."""
    summed = summed_days(first_day, last_day)
    end_day = first_day
    while end_day in summed:
        end_day += 1
    rows = execute(_TOGETHER, [first_day, end_day - 1]) if end_day > first_day else []
    return end_day * DAY_HOURS, {row[0]: NodeHours(*row[1:]) for row in rows}


def _add(days: dict[int, dict[int, NodeDay]], rows: Iterable[tuple[int, ...]]) -> None:
    for day, node_id, *numbers in rows:
        days[day][node_id] = NodeDay(*map(int, numbers))


def _spans(days: Iterable[int]) -> list[tuple[int, int]]:
    """Neighbouring days as (first, last)."""
    spans: list[tuple[int, int]] = []
    for day in days:
        if spans and spans[-1][1] == day - 1:
            spans[-1] = spans[-1][0], day
        else:
            spans.append((day, day))
    return spans


# ---- the bars ----


class Segment(NamedTuple):
    """A part of a bar: its state, its top and height in the picture."""

    css: str
    y: int
    height: int


@dataclass(frozen=True)
class Bar:
    """One day: what it was, as a bar filled in proportion, and how many incidents reach into it."""

    day_ms: int
    index: int
    sums: Sums
    incidents: int

    @property
    def x(self) -> int:
        """Where it begins in the picture."""
        return self.index * BAR

    @property
    def is_empty(self) -> bool:
        """Whether there was nothing yet that could count."""
        return not self.sums.all

    @property
    def is_bad(self) -> bool:
        """Whether there is something to say of it."""
        return self.is_hurt or self.is_thin

    @property
    def is_thin(self) -> bool:
        """Whether so little is known of it that its figures never stand without that share: 1 % is missing."""
        return 100 * self.sums.unknown > self.sums.all

    @property
    def is_hurt(self) -> bool:
        """Whether something was lost or went wrong, as far as is known."""
        return bool(self.incidents or self.sums.lost_ws)

    @property
    def is_mute(self) -> bool:
        """Whether nothing at all is known of it, and nothing happened on it either."""
        return self.is_thin and not (self.sums.known or self.is_hurt)

    @property
    def segments(self) -> tuple[Segment, ...]:
        """From the bottom up: down, held, degraded, what was available, unknown time on top."""
        if self.is_empty:
            return (Segment("none", 0, HEIGHT),)
        out, floor = [], HEIGHT
        known = HEIGHT * self.sums.known // self.sums.all
        for css, spent in (("down", self.sums.down), ("held", self.sums.held), ("degraded", self.sums.degraded)):
            if spent:
                height = min(floor, max(LEAST_HEIGHT, HEIGHT * spent // self.sums.all))
                out.append(Segment(css, floor - height, height))
                floor -= height
        top = min(HEIGHT - known, floor)
        if floor > top:
            out.append(Segment("available", top, floor - top))
        if top:
            out.append(Segment("unknown", 0, top))
        return tuple(out)


@dataclass(frozen=True)
class Days:
    """The bars of 90 days, oldest first, and their sum."""

    bars: tuple[Bar, ...]
    sums: Sums

    @property
    def bad(self) -> tuple[tuple[Bar, Bar], ...]:
        """The newest days with something to say, newest first, as (first, last): days of mere silence in a row are one.

        Those of mere silence stand there only where there is room.
        """
        rows: list[tuple[Bar, Bar]] = []
        for bar in reversed(self.bars):
            if rows and bar.is_mute and rows[-1][0].is_mute and rows[-1][0].index == bar.index + 1:
                rows[-1] = bar, rows[-1][1]
            elif bar.is_bad:
                rows.append((bar, bar))
        found = sorted(rows, key=lambda row: not row[0].is_hurt)
        return tuple(sorted(found[:MOST_LISTED], key=lambda row: -row[0].index))

    @property
    def width(self) -> int:
        """Of the picture."""
        return len(self.bars) * BAR

    @property
    def first_ms(self) -> int:
        """Its first instant."""
        return self.bars[0].day_ms

    @property
    def words(self) -> str:
        """The text alternative."""
        lossy = sum(1 for bar in self.bars if bar.sums.lost_ws)
        return f"{sum(not bar.is_empty for bar in self.bars)} days with data, {lossy} of them with a loss"


def get_days(now: datetime, gpus: dict[int, int], node_id: int | None = None, clusters: Collection[int] = ()) -> Days:
    """The bars of these nodes (node → number of GPUs); only `node_id` if given. Five queries."""
    now_hour = to_ms(now) // HOUR_MS
    last = now_hour // DAY_HOURS
    first = last - DAYS + 1
    days = node_days(first, last, node_id)
    found = Incident.objects.filter(withdrawn_at=None, cluster__removed_at=None)
    found = found.filter(node_id=node_id) if node_id else found.filter(cluster_id__in=clusters)
    day_slots = DAY_HOURS * SLOTS_PER_HOUR
    spans = found.filter(Q(end_slot__gt=first * day_slots) | Q(is_open=True)).values_list(
        "first_slot", "end_slot", "is_open"
    )
    counts = [0] * DAYS
    for first_slot, end_slot, is_open in spans:
        until = last if is_open else (end_slot - 1) // day_slots
        for day in range(max(first, first_slot // day_slots), min(last, until) + 1):
            counts[day - first] += 1
    begun = _begun(days, first, gpus)
    bars = []
    for index, day in enumerate(range(first, last + 1)):
        nodes = days.get(day, {})
        sums = [_day_sums(nodes.get(node), begun.get(node), count, day, now_hour) for node, count in gpus.items()]
        bars.append(Bar(day * DAY_MS, index, total(sums), counts[index]))
    return Days(tuple(bars), total(bar.sums for bar in bars))


def _begun(days: dict[int, dict[int, NodeDay]], first_day: int, nodes: Collection[int]) -> dict[int, int]:
    """node → the slot from which on it counts: its first evidence, or the period's begin if it was there before."""
    hours: dict[int, int] = {}
    for day in sorted(days):
        for node, row in days[day].items():
            if node in nodes:
                hours.setdefault(node, row.first_hour)
    period = first_day * DAY_HOURS
    bodies = load_first_bodies({node: hour for node, hour in hours.items() if hour > period})
    before = {node: read_hour(body).known_from for node, body in bodies.items()}
    return {node: hour * SLOTS_PER_HOUR + before.get(node, 0) for node, hour in hours.items()}


def _day_sums(row: NodeDay | None, begun: int | None, gpus: int, day: int, now_hour: int) -> Sums:
    """A node's day. From the slot `begun` on, time without a row is unknown; the hour of now is counted as it is."""
    if begun is None:
        return ZERO
    first_slot = max(day * DAY_HOURS * SLOTS_PER_HOUR, begun)
    counted = gpus * SLOT_S * max(0, min((day + 1) * DAY_HOURS, now_hour) * SLOTS_PER_HOUR - first_slot)
    if row is None:
        return gap(counted)
    known = Sums(row.known, 0, row.nominal, row.lower, row.upper, row.down, row.degraded, row.held)
    return known + gap(max(0, counted - row.known))
