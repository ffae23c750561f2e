"""From received batches to a node's rows, in order after the watermark (`advance`).

A row is the fold of its hour's items, from the closing state before it. What arrives late makes its hours dirty; they
are folded again by `refold`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from fleet.domain import fold as folding
from fleet.domain.context import EMPTY, Context, Dated, dated_of
from fleet.domain.input_digest import asked as asked_of
from fleet.domain.input_digest import digest_with, seed
from fleet.domain.lookahead import is_late, placed_after
from fleet.domain.placement import Item, Placed, earliest_of
from fleet.domain.receipts import ReceivedBatch
from fleet.domain.rules import Rules
from fleet.domain.runs import Emission
from fleet.domain.slots import HOUR_MS, hour_of, hour_of_slot
from fleet.domain.state import NodeState
from fleet.domain.strips import HourRow
from fleet.domain.verdicts import State
from fleet.domain.work import ConditionEvent, Work

__all__ = [
    "Advanced",
    "ConditionEvent",
    "Late",
    "ReceivedBatch",
    "advance",
    "is_in_order",
    "rows_needed",
    "silence_rows",
]


class Late(NamedTuple):
    """A batch with items older than the watermark: they are not folded, `first_hour..last_hour` are dirty."""

    sha256: bytes
    first_hour: int
    last_hour: int


@dataclass(slots=True)
class Advanced:
    """What in-order batches made of a node; see `advance`. `placed`: where their items stand."""

    state: NodeState | None
    rows: dict[int, HourRow] = field(default_factory=dict)
    events: list[ConditionEvent] = field(default_factory=list)
    touched: dict[bytes, tuple[int, int]] = field(default_factory=dict)
    late: list[Late] = field(default_factory=list)
    suspect: tuple[bytes, ...] = ()
    dirty: tuple[int, ...] = ()
    placed: Placed = field(default_factory=Placed, repr=False)


def rows_needed(state: NodeState | None) -> tuple[int, ...]:
    """The hours whose stored rows `advance` and `silence_rows` go on writing."""
    if state is None:
        return ()
    first, last = hour_of_slot(state.open_slot), hour_of(state.watermark_ms)
    return tuple(range(first, min(last, first + MAX_SILENT_HOURS) + 1))


def is_in_order(state: NodeState | None, batch: ReceivedBatch) -> bool:
    """Whether every item of the batch comes after the state's watermark."""
    placed = placed_after(state, (batch,))
    return state is None or not placed.items or placed.items[0].key > state.watermark


def advance(
    state: NodeState | None,
    rows: Mapping[int, HourRow],
    batches: Sequence[ReceivedBatch],
    rules: Rules | Dated,
    context: Context = EMPTY,
) -> Advanced:
    """Fold what comes after the state's watermark; batches with older items are listed as late with these items' hours.

    `rules` may say rule set and context hour by hour; then `context` is not asked.

    `rows` holds the stored rows of `rows_needed(state)` (missing ones are made new); none of the arguments is changed.
    `touched` has the hours of every batch given, `dirty` the hours whose placement these batches decided only now.
    """
    placed = placed_after(state, batches)
    dirty = tuple(sorted(set(placed.dirty)))
    out = Advanced(state, touched=placed.touched, suspect=tuple(placed.suspect), dirty=dirty, placed=placed)
    items = placed.items
    if state is not None and items:
        late = items if placed.dirty else [item for item in items if is_late(item, state)]
        if late:
            items = [item for item in items if not is_late(item, state)] if not placed.dirty else []
            _set_late(out, late)
    if items:
        dated = dated_of(rules, context)
        book = Book(dated, {h: rows[h] for h in rows_needed(state) if h in rows})
        out.state, out.events = _run(state, items, dated, book)
        out.rows = book.rows
    return out


#: How far `ts` and the placement of a late batch may differ for both to count as its hours.
MAX_SPREAD_HOURS = 31 * 24


def _set_late(out: Advanced, items: Sequence[Item]) -> None:
    """List the hours of late items. Their place is a guess until they are folded, so `ts` counts too; where they stand
    in other hours, the re-fold finds it.
    """
    hours: dict[bytes, tuple[int, int]] = {}
    for item in items:
        hour = other = item.ms // HOUR_MS
        first = _earliest(item) // HOUR_MS
        if item.event is None and abs(hour_of(item.interval.ts) - hour) <= MAX_SPREAD_HOURS:
            other = hour_of(item.interval.ts)
        low, high = hours.get(item.sha256, (hour, hour))
        hours[item.sha256] = (min(low, first, hour, other), max(high, hour, other))
    for sha, (low, high) in hours.items():
        first, last = out.touched[sha]
        out.touched[sha] = (min(first, low), max(last, high))
        out.late.append(Late(sha, low, high))


#: How far two guesses at the place of one sample differ at most: half a slot, and one on the safe side.
SLACK_MS = 22_500


def _earliest(item: Item) -> int:
    """Where a late item stands at the earliest."""
    bt = item.interval.boottime
    if bt is None:
        return item.ms
    if item.event is not None or item.fit[7] <= bt:
        return item.ms - SLACK_MS
    return earliest_of(bt, item.fit, item.ms) - SLACK_MS


class Book:
    """The rows that a run writes: stored ones are copied before they are changed."""

    def __init__(self, dated: Dated, stored: Mapping[int, HourRow]) -> None:
        self.dated = dated
        self.rows: dict[int, HourRow] = {}
        self.stored = stored
        self.closings: list[tuple[int, int]] = []  # (hour of the open slot before, hour of the sample that moved it)

    def row(self, hour: int) -> HourRow:
        """The hour's row, ready to be written."""
        row = self.rows.get(hour)
        if row is None:
            stored = self.stored.get(hour)
            row = stored.copy() if stored is not None else HourRow(hour)
            row.rules_version = self.dated.rules(hour).version
            self.rows[hour] = row
        return row

    def put(self, emissions: Iterable[Emission]) -> None:
        """Write emissions. Of a silence longer than MAX_SILENT_HOURS only its first hours get rows."""
        for subject, first, end, verdict in emissions:
            low, high = hour_of_slot(first), hour_of_slot(end - 1)
            for hour in range(low, high + 1):
                if hour == low + MAX_SILENT_HOURS < high and verdict.state is State.UNKNOWN:
                    break
                self.row(hour).put(subject, first, end, verdict)
            else:
                continue
            self.row(high).put(subject, first, end, verdict)

    def close(self) -> None:
        """Mark the rows that a later hour's sample has closed."""
        for low, high in self.closings:
            for hour in range(low, min(high, low + MAX_SILENT_HOURS + 1)):
                if hour in self.rows:
                    self.rows[hour].final, self.rows[hour].closed_by = True, high


#: A silence longer than this gets no rows for its later hours; an hour without a row is unknown.
MAX_SILENT_HOURS = 960


def take_hour(work: Work, items: Sequence[Item], hour: int, book: Book, dated: Dated) -> None:
    """Fold the items of one hour; sets the row's input digest and closing state."""
    if work.state is None and all(item.event is not None for item in items):
        return  # events of a node that no sample has shown yet
    row = book.row(hour)
    before = work.state.open_slot if work.state is not None else -1
    rules, context = dated.rules(hour), dated.context(hour, work.state is None)
    digest = row.input_digest if row.closing_state else seed(rules, context)
    asked = asked_of(items, work.state, context, dated)
    work.enter(rules, context, hour * HOUR_MS)
    row.input_digest = digest_with(digest, items, asked)
    start = 0
    for position, seen in asked:
        for item in items[start:position]:
            work.take(item)
        work.context = seen
        work.take(items[position])
        work.context = context
        start = position + 1
    for item in items[start:] if start else items:
        work.take(item)
    state = work.state
    if state is None:
        return
    row.closing_state = state.to_bytes()
    if before >= 0 and hour_of_slot(before) < hour_of_slot(state.open_slot):
        book.closings.append((hour_of_slot(before), hour_of_slot(state.open_slot)))


def _run(
    state: NodeState | None, items: Sequence[Item], dated: Dated, book: Book
) -> tuple[NodeState | None, list[ConditionEvent]]:
    """Fold items in order and write rows, digests, closing states and final flags hour by hour."""
    begin = items[0].ms // HOUR_MS if state is None else hour_of(state.watermark_ms)
    work = Work(state.copy() if state is not None else None, dated.rules(begin), dated.context(begin, state is None))
    reopen(book, state)
    position, count, hour = 0, len(items), -1
    while position < count:
        hour = items[position].ms // HOUR_MS
        end = position + 1
        limit = (hour + 1) * HOUR_MS
        while end < count and items[end].ms < limit:
            end += 1
        take_hour(work, items[position:end], hour, book, dated)
        position = end
    final = work.state
    newest = book.rows.get(hour)
    if final is not None and newest is not None and newest.closing_state:
        final.raw = newest.closing_state
    book.put(work.emissions())
    book.close()
    return final, work.events


def reopen(book: Book, state: NodeState | None) -> None:
    """Take back what was said of slots that the state has not closed."""
    if state is not None:
        book.row(hour_of_slot(state.open_slot))
        for hour in [*book.stored]:
            book.row(hour).clear_from(state.open_slot)


def silence_rows(
    state: NodeState,
    rows: Mapping[int, HourRow],
    until_ms: int,
    rules: Rules | Dated,
    context: Context = EMPTY,
) -> dict[int, HourRow]:
    """Provisional rows of a node of which nothing came since its state, up to `until_ms`; `rows` as for `advance`.

    When something comes, `advance` writes these hours anew.
    """
    begun = hour_of_slot(state.open_slot)
    dated = dated_of(rules, context)
    book = Book(dated, {h: rows[h] for h in rows_needed(state) if h in rows})
    reopen(book, state)
    until = min(until_ms, (begun + MAX_SILENT_HOURS) * HOUR_MS)
    latest = hour_of(until - 1)
    seen = dated.witnessed(dated.context(latest), state.last_ms, until, None)
    book.put(folding.silence(state, until, dated.rules(latest), seen))
    return book.rows
