"""Where and in which order the items of batches stand (fold.md 1 to 3, 25).

A sample stands at CLOCK_BOOTTIME plus its segment's offset: the running median of (ts - boottime) over the segment's
first 20 live samples with a synchronised clock, then frozen; before any, the median of the receipts; before any, its
own clock. A sample's place rests only on samples of its boot that
were taken before it, so it does not depend on how delivery was cut up. Whether a jump of `ts` was a pause or a step of
the clock is said by a later sync; until then the samples behind it are unknown (`CLOCK`).
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from fleet.domain.clocks import NO_FIT, Fit
from fleet.domain.facts import Batch, Event, Interval
from fleet.domain.receipts import (
    AHEAD_MS,
    BEHIND_MS,
    JUMP_MS,
    UPTIME_MS,
    Jump,
    Pause,
    Piece,
    ReceivedBatch,
    decide,
    pieces_of,
    sync_of,
)
from fleet.domain.slots import SLOT_MS, hour_of
from fleet.domain.state import Key

NO_OTHERS: Mapping[str, Fit] = {}
LIVE_MS = 120_000  # a sample is live when its boottime is at most this far after its batch's sync (fold.md 25)
FIT_SAMPLES = 20
CLOCK_ERROR_MS = SLOT_MS  # a clock worse than one slot


class Item(NamedTuple):
    """A sample (`event` is None) or an event at its own instant; `clock_ok` False = not known to one slot.

    `boot_ms` is when its boot began: by the placement of the boot-time clock, not by the wall clock that the machine
    woke up with (`boot_at`), which a flat battery sets years back. `boot_at` where there is no boot-time clock, else 0.
    `received_ms`: when the server took its batch.
    """

    ms: int
    kind: int
    agent: str
    seq: int
    position: int
    sub: int
    sha256: bytes
    clock_ok: bool
    batch: Batch
    interval: Interval
    event: Event | None
    fit: Fit
    boot_ms: int
    received_ms: int = 0

    @property
    def key(self) -> Key:
        return (self.ms, self.kind, self.agent, self.seq, self.position, self.sub)


@dataclass(slots=True)
class Placed:
    """Items in order; the hours each batch touches; batches never folded; hours whose placement was decided late.

    `decided`: per boot the newest boottime from which on something decided a jump of its clock.
    """

    items: list[Item] = field(default_factory=list)
    touched: dict[bytes, tuple[int, int]] = field(default_factory=dict)
    suspect: list[bytes] = field(default_factory=list)
    dirty: list[int] = field(default_factory=list)
    undecided: bool = False
    decided: dict[str, int] = field(default_factory=dict)


def place(batches: Iterable[ReceivedBatch], start: Fit, others: Mapping[str, Fit] = NO_OTHERS) -> Placed:
    """The items of these batches in their order; `start` is the placement of the state they continue, `others` what it
    remembers of other boots' clocks.

    The same bytes given twice count once. Samples not after the start's last boottime are placed but teach nothing.
    """
    placed = Placed()
    known: dict[bytes, ReceivedBatch] = {}
    for received in batches:
        known.setdefault(received.sha256, received)
    boots: dict[str, list[ReceivedBatch]] = {}
    for received in known.values():
        boots.setdefault(received.batch.boot_id or "", []).append(received)
    order = boots if len(boots) == 1 else sorted(boots, key=lambda b: (b != start[0], _boot_at(boots[b]), b))
    for boot in order:
        fit = start if boot == start[0] else others.get(boot) or (boot, *NO_FIT[1:])
        _place_boot(boots[boot], fit, placed)
    placed.items.sort(key=_order)
    return placed


def _order(item: Item) -> tuple[int, int, str, int, int, int, bytes]:
    return item[:7]


def _boot_at(batches: list[ReceivedBatch]) -> int:
    first = min(batches, key=lambda r: r.batch.intervals[0].ts)
    return min((r.batch.boot_at for r in batches if r.batch.boot_at), default=first.batch.intervals[0].ts)


def _first(received: ReceivedBatch) -> tuple[int, str, int, bytes]:
    interval = received.batch.intervals[0]
    instant = interval.ts if interval.boottime is None else interval.boottime
    return (instant, received.batch.agent_id or "", received.batch.seq or 0, received.sha256)


def _place_boot(batches: list[ReceivedBatch], fit: Fit, placed: Placed) -> None:
    """Place one boot's batches, `fit` being what was known before them."""
    if len(batches) > 1:
        batches.sort(key=_first)
    batches = [received for received in batches if not _absurd(received, placed)]
    pieces = pieces_of(batches)
    pauses, jumps, decided = decide(pieces, fit)
    for piece in pieces:
        fit = _place_piece(piece, fit, pauses, jumps, placed)
    placed.dirty += decided
    if jumps:
        placed.undecided = placed.undecided or jumps[-1][2] is None
        placed.decided[fit[0]] = max((jump[2] for jump in jumps if jump[2] is not None), default=-1)


def _absurd(received: ReceivedBatch, placed: Placed) -> bool:
    """Whether a boot-time clock or, without one, a wall clock says what cannot be; such a batch is never folded."""
    earliest, latest = received.received_at_ms - BEHIND_MS, received.received_at_ms + AHEAD_MS
    for interval in received.batch.intervals:
        bt = interval.boottime
        if (bt is None and not earliest <= interval.ts <= latest) or (bt is not None and bt > UPTIME_MS):
            placed.suspect.append(received.sha256)
            hour = hour_of(received.received_at_ms)
            placed.touched[received.sha256] = (hour, hour)
            return True
    return False


def _place_piece(piece: Piece, fit: Fit, pauses: list[Pause], jumps: list[Jump], placed: Placed) -> Fit:
    """Add the piece's items; returns the placement after it."""
    found = placed.items
    received = piece.received
    batch, sha = received.batch, received.sha256
    earliest, latest = received.received_at_ms - BEHIND_MS, received.received_at_ms + AHEAD_MS
    agent, seq = batch.agent_id or "", batch.seq or 0
    sync = sync_of(received)
    low, high = latest, earliest
    at = received.received_at_ms
    # where nothing speaks of a jump the frozen offset says it all
    plain = not pauses and not jumps and fit[5] is None and fit[1] is not None and not fit[2]
    for position in range(piece.first, piece.end):
        interval = batch.intervals[position]
        boottime = interval.boottime
        guess = False
        if boottime is None:
            ms, boot_ms, clock_ok = interval.ts, batch.boot_at or 0, _clock_ok(interval)
        else:
            boot, offset, _, _, known, _, start, last_bt, _, number, before, place, least, back = fit
            ms = boottime + offset if offset is not None else -1
            if (
                plain
                and known is not None
                and offset is not None
                and least is not None
                and boottime > last_bt
                and place < ms <= latest
            ):
                if sync is not None and sync[1] > known[1]:
                    known = sync
                if offset < least:
                    least = offset
                diff = interval.ts - boottime
                fit = (boot, offset, (), (), known, None, start, boottime, diff, number, before, ms, least, back)
                clock_ok = True
            else:
                guess = boottime <= last_bt
                fallback = _fallback(batch, interval, boottime, at)
                fit, ms, clock_ok = _sample(sync, interval, boottime, fallback, fit, pauses, jumps, (earliest, latest))
                plain = not pauses and not jumps and fit[5] is None and fit[1] is not None and not fit[2]
            boot_ms = ms - boottime
        if ms < low:
            low = ms
        if ms > high:
            high = ms
        if guess and boottime is not None:
            low = min(low, earliest_of(boottime, fit, ms))
        found.append(Item(ms, 1, agent, seq, position, 0, sha, clock_ok, batch, interval, None, fit, boot_ms, at))
        events = interval.events or interval.xids
        if events:
            for sub, event in enumerate(events):
                when = _event_ms(event, batch, interval, fit, ms)
                if earliest <= when <= latest:
                    low, high = min(low, when), max(high, when)
                    said: Event = event  # type: ignore[assignment]
                    head = (sha, clock_ok, batch, interval, said, fit, boot_ms, at)
                    found.append(Item(when, 0, agent, seq, position, sub, *head))
    hours = (hour_of(max(low, earliest)), hour_of(max(low, high)))
    other = placed.touched.get(sha)
    placed.touched[sha] = hours if other is None else (min(hours[0], other[0]), max(hours[1], other[1]))
    return fit


def _fallback(batch: Batch, interval: Interval, boottime: int, received_at_ms: int) -> tuple[int, bool]:
    """Where a sample stands without an offset, and whether that is to be trusted: its own clock, else its receipt."""
    if _clock_ok(interval) and interval.ts <= received_at_ms + JUMP_MS:
        return interval.ts, True
    newest = max(i.boottime for i in batch.intervals if i.boottime is not None)
    return received_at_ms - (newest - boottime), False


def earliest_of(boottime: int, fit: Fit, guess: int) -> int:
    """Where a late sample stands at the earliest, whatever pauses lie between it and what is known."""
    low, back = fit[12], fit[13]
    guess = guess if low is None else min(guess, boottime + low)
    return guess if back is None else min(guess, back)


def _clock_ok(interval: Interval) -> bool:
    """Whether `ts` alone places the sample to one slot."""
    clock = interval.clock
    if clock is None:
        return True
    if clock.error_ms is not None and clock.error_ms > CLOCK_ERROR_MS:
        return False
    return clock.status != "unsynchronised" or clock.error_ms is not None


def _sample(
    pair: tuple[int, int] | None,
    interval: Interval,
    bt: int,
    fallback: tuple[int, bool],
    fit: Fit,
    pauses: list[Pause],
    jumps: list[Jump],
    bounds: tuple[int, int],
) -> tuple[Fit, int, bool]:
    """(placement after this sample, its instant, whether its slot is known).

    `bounds`: between which it must lie by its receipt; `pair`: the batch's sync; `fallback`: where the sample stands
    without an offset, and whether that is to be trusted.
    """
    boot, offset, live, syncs, sync, old_jump, start, last_bt, _, number, before, place, low, back = fit
    diff = interval.ts - bt
    frozen = offset is not None and not live
    jump = next((j for j in jumps if j[0] <= bt and (j[2] is None or bt < j[2])), None)
    undecided = jump is not None and jump[2] is None
    if bt <= last_bt:  # already known: placed, teaches nothing
        used = offset if offset is not None or not syncs else _median(syncs)
        used = before if bt < start and before is not None else used
        ms, known = fallback if used is None else (bt + used, True)
        if bt == last_bt:  # another installation's sample of the same instant
            return fit, place, known and not undecided and ms == place
        return fit, min(max(ms, bounds[0]), bounds[1]), known and not undecided
    if frozen and not pauses and jump is None and old_jump is None and (pair is None or pair == sync):
        assert offset is not None
        ms = bt + offset
        if place < ms <= bounds[1] and low is not None and offset >= low:
            return (boot, offset, (), (), sync, None, start, bt, diff, number, before, ms, low, back), ms, True
    crossed = [p for p in pauses if last_bt < p[0] <= bt] if pauses else ()
    if crossed:
        # the receipt that showed the pause is the first to say something of the offset behind it
        before = offset if offset is not None else before
        shown = crossed[-1][1]
        offset, live, syncs, start, number, frozen = None, (), (shown[0] - shown[1],), bt, number + 1, False
    if pair is not None and (sync is None or pair[1] > sync[1]):
        taught = offset if offset is not None else _median(live) if live else None
        if sync is None and taught is not None and abs(taught - (pair[0] - pair[1])) > JUMP_MS:
            # the first receipt says that the clock was wrong which the samples before it were placed by
            before, offset, live, start, frozen = taught, None, (), bt, False
        # a receipt of before the pause says nothing of the time after it, the one that showed it was counted there
        is_counted = bool(crossed) or jump is not None or (old_jump is not None and old_jump[0] == start)
        sync = pair
        if not frozen and not live and len(syncs) < FIT_SAMPLES and not is_counted:
            syncs = tuple(sorted((*syncs, pair[0] - pair[1])))
    if not frozen:
        if not undecided and fallback[1] and _teaches(interval, diff, bt, pair, live, bool(syncs)):
            values = list(live)
            insort(values, diff)
            live, syncs = tuple(values), ()
        offset = _median(live) if live else _median(syncs) if syncs else None
        if len(live) >= FIT_SAMPLES:
            live = ()
    ms, known = fallback if offset is None else (bt + offset, True)
    if not bounds[0] <= ms <= bounds[1]:  # further from its receipt than can be
        ms, known = min(max(ms, bounds[0]), bounds[1]), False
    if ms <= place:  # the receipts went back: a sample never stands before what was taken before it
        back = place if back is None else back
        ms, known = place + 1, False
    else:
        low = ms - bt if low is None else min(low, ms - bt)
    was = place if place >= 0 else ms
    mark = (jump[0], hour_of(min(ms, was)) if jump[1] < 0 else jump[1]) if jump is not None else None
    if mark is not None and old_jump is not None and old_jump[0] == mark[0]:
        mark = old_jump
    # a median of receipts is not frozen: it is given again by the receipts
    kept = None if syncs else offset
    after = (boot, kept, live, syncs, sync, mark, start, bt, diff, number, before, ms, low, back)
    return after, ms, known and not undecided


def _teaches(
    interval: Interval, diff: int, bt: int, pair: tuple[int, int] | None, live: tuple[int, ...], receipts: bool
) -> bool:
    """Whether a sample's (ts - boottime) goes into the fit: its clock is synchronised and nothing speaks against it.

    A live sample is checked against the receipt (a clock step is ignored, fold.md 2); before the first receipt a sample
    teaches what it is placed by.
    """
    clock = interval.clock
    if clock is not None and clock.status != "synchronised":
        return False
    if pair is None:
        return not receipts and (not live or abs(diff - _median(live)) <= JUMP_MS)
    return bt - pair[1] <= LIVE_MS and abs(diff - (pair[0] - pair[1])) <= JUMP_MS


def _median(values: tuple[int, ...]) -> int:
    middle = len(values) // 2
    return values[middle] if len(values) % 2 else (values[middle - 1] + values[middle]) // 2


def _event_ms(event: object, batch: Batch, interval: Interval, fit: Fit, sample_ms: int) -> int:
    """An event's own instant; the sample's that carried it where it has none."""
    at: int | None = getattr(event, "at", None)
    mono: int | None = getattr(event, "mono", None)
    boot: str | None = getattr(event, "boot_id", None)
    offset = fit[1]
    if (
        mono is not None
        and interval.mono is not None
        and interval.boottime is not None
        and (boot is None or boot == batch.boot_id)
    ):
        bt = mono + interval.boottime - interval.mono
        if offset is None:  # placed by receipts: the node's wall clock may be anywhere, the sample is not
            return sample_ms + bt - interval.boottime
        if bt < fit[6] and fit[10] is not None:
            offset = fit[10]
        return bt + offset
    return at if at is not None else sample_ms
