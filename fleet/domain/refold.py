"""Dirty hours again: oldest first, and those after them until a closing state is the stored one again (fold.md 8).

Where a late sample stands is known only once what its boot said before is placed. So batches are looked for where they
were found so far, and each that turns out to stand elsewhere lets the re-fold begin anew, with it or earlier.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from fleet.domain.context import EMPTY, Context, Dated, dated_of
from fleet.domain.input_digest import asked as asked_of
from fleet.domain.input_digest import digest_with, seed
from fleet.domain.lookahead import NOTHING, Lookahead, Missed, is_late, missed, opening_of
from fleet.domain.node_hours import Book, reopen, rows_needed, take_hour
from fleet.domain.placement import Placed
from fleet.domain.receipts import ReceivedBatch
from fleet.domain.rules import Rules
from fleet.domain.slots import HOUR_MS, hour_of, hour_of_slot
from fleet.domain.state import NodeState
from fleet.domain.strips import HourRow
from fleet.domain.work import ConditionEvent, Work

__all__ = ["Refolded", "refold", "refold_from"]


@dataclass(slots=True)
class Refolded:
    """What a re-fold changed; `[first_hour, end_hour)` was folded again, `rows` holds only rows whose bytes differ.

    `gone`: hours of which nothing is said any more, because what stood there stands elsewhere now: their rows go.
    `earlier`: nothing was changed, the fold must begin earlier (`refold_from` does).
    """

    state: NodeState | None
    first_hour: int
    end_hour: int
    rows: dict[int, HourRow] = field(default_factory=dict)
    events: list[ConditionEvent] = field(default_factory=list)
    touched: dict[bytes, tuple[int, int]] = field(default_factory=dict)
    suspect: tuple[bytes, ...] = ()
    converged: bool = False
    gone: tuple[int, ...] = ()
    earlier: Missed | None = None


def refold_from(
    first_hour: int,
    last_hour: int,
    closings: Callable[[int], Iterable[tuple[int, NodeState]]],
    load_batches: Callable[[int], Iterable[ReceivedBatch]],
    load_row: Callable[[int], HourRow | None],
    rules: Rules | Dated,
    context: Context = EMPTY,
    through_hour: int | None = None,
    stands: Callable[[bytes], tuple[int, int] | None] = lambda sha256: None,
    sealed_until: int = 0,
) -> Refolded:
    """`refold` from the hour `first_hour` on, or from an earlier one where something turns out to stand before it.

    `closings(hour)`: hour and closing state of the rows before `hour` that have one, newest first.
    """
    found = Missed()
    while True:
        begin, opening = opening_of(first_hour, closings(first_hour), sealed_until, found.ahead_of)
        done = refold(
            *(opening, begin, last_hour, load_batches, load_row, rules, context),
            *(through_hour, stands, sealed_until, found.batches),
        )
        if done.earlier is None:
            return done
        found = done.earlier
        first_hour = begin if found.hour is None else found.hour  # each time earlier, so it ends


def refold(
    opening: NodeState | None,
    first_hour: int,
    last_hour: int,
    load_batches: Callable[[int], Iterable[ReceivedBatch]],
    load_row: Callable[[int], HourRow | None],
    rules: Rules | Dated,
    context: Context = EMPTY,
    through_hour: int | None = None,
    stands: Callable[[bytes], tuple[int, int] | None] = lambda sha256: None,
    sealed_until: int = 0,
    extra: Mapping[bytes, ReceivedBatch] = NOTHING,
) -> Refolded:
    """Fold the hours from `first_hour` again, until a closing state is the stored one again or `last_hour` is done.

    `opening`: the state after the last item before `first_hour` (the closing state of the newest earlier row that has
    one), None when there is none. `last_hour`: the newest hour with items or a row. `load_batches(hour)` gives at least
    every batch whose touched range meets `[hour - 1, hour + 1]`, in any order, duplicates welcome. `through_hour`: the
    newest dirty hour; nothing converges before it. None = not known, so everything up to `last_hour` is folded. After
    convergence (`converged`) the node's newest state and the later rows stand as they are and `state` is None; else
    `state` is the newest.

    `stands(sha256)`: the hours in which a batch was folded so far or which it made dirty, None = not known, then it is
    taken to stand where it was looked for. Hours before `sealed_until` are not folded again. `extra`: batches that
    stand elsewhere than where they are looked for, by an earlier re-fold (`Refolded.earlier`).
    """
    extra = dict(extra)
    while True:
        loader = Lookahead(load_batches, load_row, extra)
        done = _refold(
            opening,
            first_hour,
            last_hour,
            loader,
            load_row,
            dated_of(rules, context),
            through_hour,
            stands,
            sealed_until,
        )
        if done.earlier is None:
            return done
        extra.update(done.earlier.batches)
        if done.earlier.is_before:
            done.earlier.batches = extra
            return done


def _refold(
    opening: NodeState | None,
    first_hour: int,
    last_hour: int,
    loader: Lookahead,
    load_row: Callable[[int], HourRow | None],
    dated: Dated,
    through_hour: int | None,
    stands: Callable[[bytes], tuple[int, int] | None],
    sealed_until: int,
) -> Refolded:
    """`refold` with the batches that the loader gives; `earlier` says what has to be looked at before."""
    if opening is not None and hour_of(opening.watermark_ms) >= first_hour:
        raise ValueError("the opening state holds items of the hours to be folded again")
    stored: dict[int, HourRow] = {}
    for kept in (load_row(h) for h in rows_needed(opening)):
        if kept is not None:
            stored[kept.hour] = kept
    book = Book(dated, stored)
    begin = first_hour if opening is None else hour_of(opening.watermark_ms)
    work = Work(
        opening.copy() if opening is not None else None, dated.rules(begin), dated.context(begin, opening is None)
    )
    reopen(book, opening)
    out = Refolded(None, first_hour, last_hour + 1)
    suspect: set[bytes] = set()
    hour, through = first_hour, last_hour if through_hour is None else through_hour
    while hour <= last_hour:
        placed = loader.place(work.state, hour, last_hour)
        found = missed(placed, loader, (opening, work.state), (first_hour, hour), stands, sealed_until)
        if found.is_before or found.batches:
            return Refolded(None, first_hour, first_hour, earlier=found)
        through = max(through, found.through)
        suspect.update(placed.suspect)
        last_hour = max(last_hour, loader.newest)
        items = [i for i in placed.items if i.ms // HOUR_MS == hour]
        if work.state is not None:
            items = [i for i in items if not is_late(i, work.state)]
        if items:
            for sha in {i.sha256 for i in items}:
                low, high = placed.touched[sha]
                known = out.touched.get(sha, (low, high))
                out.touched[sha] = (min(low, known[0]), max(high, known[1]))
            take_hour(work, items, hour, book, dated)
            old, new = load_row(hour), book.rows.get(hour)
            same = old is not None and new is not None and old.closing_state == new.closing_state
            if same and hour >= through and _same_inputs(placed, hour + 1, load_row, work.state, dated):
                out.converged, out.end_hour = True, hour + 1
                break
        hour += 1
    if not out.converged:
        out.end_hour = last_hour + 1
    out.events, out.suspect = work.events, tuple(sorted(suspect))
    out.state = None if out.converged else work.state
    book.put(work.emissions())
    book.close()
    if out.converged and work.state is not None:
        _keep_tail(book, work.state.open_slot, out.end_hour, load_row)
    for hour in range(first_hour, out.end_hour):
        if hour not in book.rows and load_row(hour) is not None:
            book.row(hour)  # nothing is said of it any more
    gone = []
    for hour, row in book.rows.items():
        old = load_row(hour)
        if row.is_empty:
            gone += [hour] if old is not None else []
        elif old is None or old.to_bytes() != row.to_bytes():
            out.rows[hour] = row
    out.gone = tuple(sorted(gone))
    return out


def _same_inputs(
    placed: Placed, hour: int, load_row: Callable[[int], HourRow | None], state: NodeState | None, dated: Dated
) -> bool:
    """Whether the stored row of this hour was folded from the items that are placed in it now, under the same rules."""
    items = [i for i in placed.items if i.ms // HOUR_MS == hour and not (state and is_late(i, state))]
    row = load_row(hour)
    if row is None or not row.closing_state:
        return not items
    rules, context = dated.rules(hour), dated.context(hour, state is None)
    return row.input_digest == digest_with(seed(rules, context), items, asked_of(items, state, context, dated))


def _keep_tail(book: Book, slot: int, end_hour: int, load_row: Callable[[int], HourRow | None]) -> None:
    """What a later hour closed stays as stored: the state it started from is the same."""
    for hour in range(hour_of_slot(slot), end_hour):
        old = load_row(hour)
        if old is not None:
            row = book.row(hour)
            row.copy_from(old, slot)
            row.final, row.closed_by = old.final, old.closed_by
