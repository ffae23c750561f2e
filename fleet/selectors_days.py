"""Days of the fleet or of a node: sums per node and day, and the bars of 90 days.

Days that ended some time ago change only by a re-fold. Their sums are kept in the cache for five minutes, so that a
long period over many nodes is not added up for every look; without a cache they are added up each time.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple

import msgspec
from django.core.cache import cache
from django.db import connection
from django.db.models import Q
from redis.exceptions import RedisError

from fleet.domain.slots import HOUR_MS, SLOT_S, SLOTS_PER_HOUR
from fleet.hour_sums import ZERO, Sums, gap, total
from fleet.models import Incident, Node
from fleet.selectors_hours import NodeHours, Window, add_up, load_first_bodies, read_hour
from fleet.selectors_live import to_ms

log = logging.getLogger(__name__)
DAYS = 90
DAY_HOURS = 24
DAY_MS = DAY_HOURS * HOUR_MS
CLOSED_AFTER_HOURS = 3  # a day that ended so long ago is taken from the cache
KEPT_SECONDS = 300
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


_DAYS = """
select hour / 24, node_id, min(hour), (sum(gpus) * 3600)::bigint, sum(gpus * 3600 - unknown_s)::bigint,
       sum(nominal_sum)::bigint, sum(lower_sum - 100 * unknown_s)::bigint, sum(upper_sum)::bigint,
       sum(down_s - held_s)::bigint, sum(degraded_s)::bigint, sum(held_s)::bigint
  from fleet_nodehour where hour between %s and %s and (%s::bigint is null or node_id = %s) group by 1, 2
"""


def node_days(first_day: int, last_day: int, now_hour: int) -> dict[int, dict[int, NodeDay]]:
    """day → node → sums, of all nodes; days count from 1970 UTC, both ends included."""
    version = _version()
    closed = [day for day in range(first_day, last_day + 1) if (day + 1) * DAY_HOURS + CLOSED_AFTER_HOURS <= now_hour]
    found = _remembered(closed, version)
    missing = [day for day in range(first_day, last_day + 1) if day not in found]
    fresh: dict[int, dict[int, NodeDay]] = {}
    for first, last in _spans(missing):
        fresh.update(_read(first, last))
    for day in missing:
        fresh.setdefault(day, {})
    _set({_key(day, version): msgspec.msgpack.encode(fresh[day]) for day in missing if day in closed})
    return {**found, **fresh}


def closed_sums(first_day: int, now_hour: int) -> tuple[int, dict[int, NodeHours]]:
    """(the first hour that is not in them, node → sums of all days from `first_day` on that are closed)."""
    end_day = max(first_day, (now_hour - CLOSED_AFTER_HOURS) // DAY_HOURS)
    key = f"node-sums-1:{_version()}:{first_day}:{end_day}"
    end_hour = end_day * DAY_HOURS
    found = _get([key]).get(key)
    if found is not None:
        return end_hour, msgspec.msgpack.decode(found, type=dict[int, NodeHours])
    sums = add_up(Window(first_day * DAY_HOURS, end_hour - 1, 0))
    _set({key: msgspec.msgpack.encode(sums)})
    return end_hour, sums


def days_of_node(node_id: int, first_day: int, last_day: int) -> dict[int, dict[int, NodeDay]]:
    """The same of one node."""
    return _read(first_day, last_day, node_id)


def _read(first_day: int, last_day: int, only: int | None = None) -> dict[int, dict[int, NodeDay]]:
    days: dict[int, dict[int, NodeDay]] = defaultdict(dict)
    with connection.cursor() as cursor:
        cursor.execute(_DAYS, [first_day * DAY_HOURS, last_day * DAY_HOURS + DAY_HOURS - 1, only, only])
        for day, node_id, *numbers in cursor.fetchall():
            days[day][node_id] = NodeDay(*numbers)
    return dict(days)


def _spans(days: Iterable[int]) -> list[tuple[int, int]]:
    """Neighbouring days as (first, last)."""
    spans: list[tuple[int, int]] = []
    for day in days:
        if spans and spans[-1][1] == day - 1:
            spans[-1] = spans[-1][0], day
        else:
            spans.append((day, day))
    return spans


def _version() -> int:
    """The newest node's id: a node that was not there before brings its past with it, so all is read again."""
    return Node.objects.order_by("-pk").values_list("pk", flat=True).first() or 0


def _key(day: int, version: int) -> str:
    return f"node-days-1:{version}:{day}"


def _remembered(days: list[int], version: int) -> dict[int, dict[int, NodeDay]]:
    found = _get([_key(day, version) for day in days])
    read = {day: found[key] for day in days if (key := _key(day, version)) in found}
    return {day: msgspec.msgpack.decode(raw, type=dict[int, NodeDay]) for day, raw in read.items()}


def _get(keys: list[str]) -> dict[str, bytes]:
    try:
        return cache.get_many(keys)
    except (RedisError, OSError) as error:
        log.warning("the cache does not answer: %s", error)
        return {}


def _set(packed: dict[str, bytes]) -> None:
    try:
        if packed:
            cache.set_many(packed, timeout=KEPT_SECONDS)
    except (RedisError, OSError) as error:
        log.warning("the cache does not answer: %s", error)


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
        return bool(self.incidents or self.sums.lost_ws or 100 * self.sums.unknown > self.sums.all)

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
    def bad(self) -> tuple[Bar, ...]:
        """The newest days with something to say, newest first."""
        return tuple(bar for bar in reversed(self.bars) if bar.is_bad)[:MOST_LISTED]

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
    """The bars of these nodes (node → number of GPUs); only `node_id` if given. Three queries and the cache."""
    now_hour = to_ms(now) // HOUR_MS
    last = now_hour // DAY_HOURS
    first = last - DAYS + 1
    days = days_of_node(node_id, first, last) if node_id else node_days(first, last, now_hour)
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
