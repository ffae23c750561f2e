"""Reads node hours for people: what a node was over a period, and the stretches that its strip is drawn from.

A body never changes without changing its bytes, so what is read from one is remembered by the bytes themselves: nothing
has to be invalidated, and a re-fold shows at once.

Which slots count: a node counts from its first evidence on. Hours without a row are unknown. The slots behind the
newest sample are still open: they count as unknown only once the node is silent.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import Any, NamedTuple

from django.db import connection

from fleet.bodies import load_row
from fleet.domain.slots import SLOT_S, SLOTS_PER_HOUR, hour_of_slot
from fleet.domain.strips import HourRow
from fleet.domain.verdicts import HEALTHY, UNKNOWN_PROVISIONAL, State, Verdict
from fleet.hour_sums import ZERO, Sums, gap, well
from fleet.selectors_live import WORDS, state_word

WELL = well(SLOTS_PER_HOUR * SLOT_S)
REMEMBERED = 60_000  # node hours, about 1 kB each


@dataclass(frozen=True, slots=True)
class Window:
    """Whole hours `[first_hour, last_hour]`, the last one being the hour of now, and the slot of now."""

    first_hour: int
    last_hour: int
    now_slot: int

    @property
    def first_slot(self) -> int:
        """Its first slot, absolute."""
        return self.first_hour * SLOTS_PER_HOUR


@dataclass(frozen=True, slots=True)
class Bounds:
    """Where a node's slots count, absolute and half-open, and how many GPUs an hour without a row is missing."""

    first_slot: int
    end_slot: int
    gpus: int
    is_silent: bool

    @property
    def drawn(self) -> tuple[int, int | None]:
        """Where its strip begins and, while it lives, where it ends for now."""
        return self.first_slot, None if self.is_silent else self.end_slot


@dataclass(frozen=True, slots=True)
class Stretch:
    """Slots `[first, end)` in which the worst state of a node's GPUs is `word`, `affected` of `total` GPUs being in it.

    `gone` of them are unknown, whatever the worst is.
    """

    first: int
    end: int
    word: str
    affected: int
    total: int
    gone: int


@dataclass(frozen=True, slots=True)
class Hour:
    """A node hour's GPUs: runs `(first, end, word)` and sums per place, and the node's stretches; slots 0..240.

    From `open_from` on nothing is closed yet; before `known_from` nothing is known. `is_well`: no GPU lost anything.
    """

    runs: Mapping[int, tuple[tuple[int, int, str], ...]]
    sums: Mapping[int, Sums]
    stretches: tuple[Stretch, ...]
    open_from: int
    known_from: int
    is_well: bool


# ---- sums of many nodes ----

_ADD_UP = """
select node_id, min(hour), sum(gpus * 3600 - unknown_s)::bigint, sum(nominal_sum)::bigint,
       sum(lower_sum - 100 * unknown_s)::bigint, sum(upper_sum)::bigint, sum(down_s - held_s)::bigint,
       sum(degraded_s)::bigint, sum(held_s)::bigint
  from fleet_nodehour where hour between %s and %s {which} group by node_id
"""


_FIGURES = """
with steps as (
    select node_id, hour / %(step)s as at, max(gpus) as gpus, sum(gpus * 3600 - unknown_s)::bigint as known,
           sum(down_s - held_s)::bigint as down, sum(degraded_s)::bigint as degraded, sum(held_s)::bigint as held,
           count(*) = %(step)s and min(gpus) = max(gpus) and max(unknown_s + down_s + degraded_s + held_s) = 0
           as is_well
      from fleet_nodehour where node_id = any(%(nodes)s) and hour between %(first)s and %(last)s group by 1, 2
)
select node_id, lower(span), upper(span), gpus, 0, 0, 0, 0, true
  from (select node_id, gpus, unnest(range_agg(int4range(at, at + 1))) as span from steps where is_well group by 1, 2) w
union all
select node_id, at, at + 1, gpus, known, down, degraded, held, false from steps where not is_well
 order by 1, 2
"""


class NodeHours(NamedTuple):
    """A node's rows of a window, added up: the known GPU-seconds and their weights × seconds; its earliest hour."""

    first_hour: int
    known: int
    nominal: int
    lower: int
    upper: int
    down: int
    degraded: int
    held: int


def add_up(window: Window, nodes: Sequence[int] | None = None) -> dict[int, NodeHours]:
    """Every node's rows of the window (or those of some nodes), added up by the database."""
    which: list[Any] = [] if nodes is None else [list(nodes)]
    with connection.cursor() as cursor:
        cursor.execute(
            _ADD_UP.format(which="and node_id = any(%s)" if which else ""),
            [window.first_hour, window.last_hour, *which],
        )
        return {row[0]: NodeHours(*row[1:]) for row in cursor.fetchall()}


def load_bodies(window: Window, node_ids: Sequence[int]) -> dict[int, dict[int, bytes]]:
    """node → hour → body."""
    with connection.cursor() as cursor:
        cursor.execute(
            "select node_id, hour, body from fleet_nodehour where node_id = any(%s) and hour between %s and %s",
            [list(node_ids), window.first_hour, window.last_hour],
        )
        return _by_node(cursor.fetchall())


def load_first_bodies(hours: Mapping[int, int]) -> dict[int, bytes]:
    """node → body of the hour given for it."""
    with connection.cursor() as cursor:
        cursor.execute(
            "select h.node_id, h.body from unnest(%s::bigint[], %s::int[]) as w(node_id, hour)"
            " join fleet_nodehour h on h.node_id = w.node_id and h.hour = w.hour",
            [list(hours), list(hours.values())],
        )
        return {node_id: bytes(body) for node_id, body in cursor.fetchall()}


def _by_node(rows: Iterable[tuple[int, int, bytes]]) -> dict[int, dict[int, bytes]]:
    bodies: dict[int, dict[int, bytes]] = defaultdict(dict)
    for node_id, hour, body in rows:
        bodies[node_id][hour] = bytes(body)
    return bodies


def node_sums(hours: NodeHours | None, bounds: Bounds) -> Sums:
    """A node's sums within its bounds: what counts there and is not known is unknown."""
    counted = bounds.gpus * SLOT_S * max(0, bounds.end_slot - bounds.first_slot)
    if hours is None:
        return gap(counted)
    known = Sums(hours.known, 0, hours.nominal, hours.lower, hours.upper, hours.down, hours.degraded, hours.held)
    return known + gap(max(0, counted - hours.known))


# ---- strips of long periods, by the hour ----


class HourFigures(NamedTuple):
    """Steps `[first, end)` of a node, columns added up: GPU-seconds. Steps that are well throughout stand as one."""

    first: int
    end: int
    gpus: int
    known: int
    down: int
    degraded: int
    held: int
    is_well: bool


def hours_per_stretch(window: Window) -> int:
    """How many hours a long strip draws as one: a picture holds some 240 of them."""
    return max(1, (window.last_hour - window.first_hour + 1) // 240)


def load_figures(window: Window, node_ids: Sequence[int]) -> dict[int, list[HourFigures]]:
    """node → figures in order, by steps of `hours_per_stretch` counted from 1970."""
    figures: dict[int, list[HourFigures]] = defaultdict(list)
    asked: dict[str, Any] = {"step": hours_per_stretch(window), "nodes": list(node_ids)}
    asked |= {"first": window.first_hour, "last": window.last_hour}
    with connection.cursor() as cursor:
        cursor.execute(_FIGURES, asked)
        for node_id, *numbers in cursor.fetchall():
            figures[node_id].append(HourFigures(*numbers))
    return figures


def hourly_stretches(rows: Iterable[HourFigures], bounds: Bounds, hours: int = 1) -> list[Stretch]:
    """A node's time within its bounds, `hours` as one stretch; `affected` is the share of its GPU time, rounded up."""
    out: list[Stretch] = []
    slots = hours * SLOTS_PER_HOUR
    at = bounds.first_slot

    def missing(until: int) -> None:
        if at < until:
            out.append(Stretch(at, until, "unknown", bounds.gpus, bounds.gpus, bounds.gpus))

    for row in rows:
        first, end = max(at, row.first * slots), min(bounds.end_slot, row.end * slots)
        if first >= end or not row.gpus:
            continue
        missing(first)
        seconds = (end - first) * SLOT_S
        at = end
        if row.is_well or (row.known >= row.gpus * seconds and not (row.down or row.degraded or row.held)):
            out.append(Stretch(first, end, "available", row.gpus, row.gpus, 0))
            continue
        gone = max(0, row.gpus * seconds - row.known) // seconds
        spent = {"down": row.down, "degraded": row.degraded, "held": row.held}
        word = next((word for word in WORDS if spent.get(word)), "unknown" if gone else "available")
        affected = gone if word == "unknown" else -(-spent.get(word, 0) // seconds)
        out.append(Stretch(first, end, word, min(affected, row.gpus), row.gpus, min(gone, row.gpus)))
    missing(bounds.end_slot)
    return merge(out)


# ---- one node in detail ----


@lru_cache(maxsize=REMEMBERED)
def read_hour(body: bytes) -> Hour:
    """What a stored node hour says of its GPUs; a pure function of its bytes."""
    row = load_row(body)
    start = row.hour * SLOTS_PER_HOUR
    verdicts = {int(subject[1:]): runs_of(row, subject, start) for subject in row.subjects() if subject[0] == "g"}
    open_from, known_from = 0, SLOTS_PER_HOUR
    for runs in verdicts.values():
        for first, end, verdict in runs:
            if verdict != UNKNOWN_PROVISIONAL:
                open_from = max(open_from, end)
                if verdict.state is not State.UNKNOWN:
                    known_from = min(known_from, first)
    words = {
        place: tuple((first, end, state_word(verdict.state.value, verdict.nominal)) for first, end, verdict in runs)
        for place, runs in verdicts.items()
    }
    sums = {place: _sum(runs, open_from) for place, runs in verdicts.items()}
    return Hour(
        runs=words,
        sums=sums,
        stretches=tuple(stretches_of(list(words.values()), open_from)),
        open_from=open_from,
        known_from=known_from,
        is_well=bool(sums) and all(one == WELL for one in sums.values()),
    )


def runs_of(row: HourRow, subject: str, start: int) -> list[tuple[int, int, Verdict]]:
    """A subject's runs, slots counted from the hour's first; the usual healthy hour is recognised by its sums."""
    rollup = row.rollup(subject)
    if rollup.seconds[State.OBSERVED] == 3600 and rollup.upper_ws == rollup.lower_ws == 360_000:
        return [(0, SLOTS_PER_HOUR, HEALTHY)]
    return [(first - start, end - start, verdict) for first, end, verdict in row.runs(subject)]


def _sum(runs: list[tuple[int, int, Verdict]], open_from: int) -> Sums:
    known = unknown = nominal = lower = upper = down = degraded = held = 0
    for first, end, verdict in runs:
        seconds = (min(end, open_from) - first) * SLOT_S
        if seconds <= 0:
            continue
        lower += verdict.lower * seconds
        upper += verdict.upper * seconds
        if verdict.nominal is None:
            unknown += seconds
            continue
        known += seconds
        nominal += verdict.nominal * seconds
        if verdict.state is State.HELD:
            held += seconds
        elif verdict.nominal == 0:
            down += seconds
        elif verdict.nominal < 100:
            degraded += seconds
    return Sums(known, unknown, nominal, lower, upper, down, degraded, held)


def stretches_of(gpus: list[tuple[tuple[int, int, str], ...]], open_from: int) -> list[Stretch]:
    """The node's stretches up to `open_from`: cut where any GPU changes, the worst word of each, neighbours merged."""
    cuts = sorted({min(edge, open_from) for runs in gpus for first, end, _ in runs for edge in (first, end)})
    at = [0] * len(gpus)
    out: list[Stretch] = []
    for first, end in pairwise(cuts):
        counts = dict.fromkeys(WORDS, 0)
        for index, runs in enumerate(gpus):
            while at[index] < len(runs) - 1 and runs[at[index]][1] <= first:
                at[index] += 1
            counts[runs[at[index]][2]] += 1
        word = next(word for word in WORDS if counts[word])
        out.append(Stretch(first, end, word, counts[word], len(gpus), counts["unknown"]))
    return merge(out)


def merge(stretches: Iterable[Stretch]) -> list[Stretch]:
    """Neighbours that say the same become one."""
    out: list[Stretch] = []
    for one in stretches:
        last = out[-1] if out else None
        if (
            last
            and last.end == one.first
            and (last.word, last.affected, last.total, last.gone) == (one.word, one.affected, one.total, one.gone)
        ):
            out[-1] = Stretch(last.first, one.end, one.word, one.affected, one.total, one.gone)
        else:
            out.append(one)
    return out


def node_stretches(rows: Mapping[int, bytes], bounds: Bounds) -> list[Stretch]:
    """A node's stretches within its bounds, absolute slots; hours without a row and an open tail are unknown."""
    out: list[Stretch] = []
    for base, first, end, read in _hours(rows, bounds):
        closed = min(end, read.open_from) if read else first
        if read:
            out += [
                Stretch(base + max(s.first, first), base + min(s.end, closed), s.word, s.affected, s.total, s.gone)
                for s in read.stretches
                if max(s.first, first) < min(s.end, closed)
            ]
        if end > max(first, closed):
            count = len(read.runs) if read else bounds.gpus
            out.append(Stretch(base + max(first, closed), base + end, "unknown", count, count, count))
    return merge(out)


def read_places(
    rows: Mapping[int, bytes], bounds: Bounds, places: Sequence[int]
) -> dict[int, tuple[list[Stretch], Sums]]:
    """Each of a node's GPUs within the bounds: its stretches and its sums. Hours in which all are well go together."""
    lines: dict[int, list[Stretch]] = {place: [] for place in places}
    sums = dict.fromkeys(places, ZERO)
    well_from = well_hours = 0

    def flush() -> None:
        nonlocal well_hours
        if well_hours:
            end = well_from + well_hours * SLOTS_PER_HOUR
            for place in places:
                lines[place].append(Stretch(well_from, end, "available", 1, 1, 0))
                sums[place] = sums[place] + well(well_hours * SLOTS_PER_HOUR * SLOT_S)
        well_hours = 0

    for base, first, end, read in _hours(rows, bounds):
        if read and read.is_well and not first and end == SLOTS_PER_HOUR and all(p in read.runs for p in places):
            if not well_hours:
                well_from = base
            well_hours += 1
            continue
        flush()
        for place in places:
            lines[place] += _place_hour(base, first, end, read, place)
            if read and place in read.sums:
                beyond = max(0, end - max(first, read.open_from)) - first
                sums[place] = sums[place] + read.sums[place] + gap(beyond * SLOT_S)
            else:
                sums[place] = sums[place] + gap((end - first) * SLOT_S)
    flush()
    return {place: (merge(lines[place]), sums[place]) for place in places}


def _place_hour(base: int, first: int, end: int, read: Hour | None, place: int) -> Iterator[Stretch]:
    """One GPU's stretches of an hour."""
    runs = read.runs.get(place, ()) if read else ()
    closed = min(end, read.open_from) if read and runs else first
    for start, stop, word in runs:
        start, stop = max(start, first), min(stop, closed)
        if start < stop:
            yield Stretch(base + start, base + stop, word, 1, 1, int(word == "unknown"))
    if end > max(first, closed):
        yield Stretch(base + max(first, closed), base + end, "unknown", 1, 1, 1)


def _hours(rows: Mapping[int, bytes], bounds: Bounds) -> Iterator[tuple[int, int, int, Hour | None]]:
    """(first slot of the hour, first and end slot within it, what its row says) of each hour within the bounds."""
    end_slot = bounds.end_slot
    if not bounds.is_silent and rows:  # what lies behind the newest closed slot is open, not unknown
        last = max(rows)
        end_slot = last * SLOTS_PER_HOUR + read_hour(rows[last]).open_from
    for hour in range(hour_of_slot(bounds.first_slot), hour_of_slot(end_slot - 1) + 1):
        base = hour * SLOTS_PER_HOUR
        body = rows.get(hour)
        first, end = max(0, bounds.first_slot - base), min(SLOTS_PER_HOUR, end_slot - base)
        yield base, first, end, read_hour(body) if body is not None else None
