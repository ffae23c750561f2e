"""Where and in which order the items of batches stand (fold.md 1 to 3, 25).

A sample stands at CLOCK_BOOTTIME plus its segment's offset: the running median of (ts - boottime) over the segment's
first 20 live samples with a synchronised clock, then frozen. A sample's place rests only on samples of its boot that
were taken before it, so it does not depend on how delivery was cut up. Whether a jump of `ts` was a pause or a step of
the clock is said by a later sync; until then the samples behind it are unknown (`CLOCK`).
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from fleet.domain.facts import Batch, Event, Interval
from fleet.domain.slots import SLOT_MS, hour_of
from fleet.domain.state import NO_FIT, Fit, Key

LIVE_MS = 120_000  # a sample is live when its boottime is at most this far after its batch's sync (fold.md 25)
FIT_SAMPLES = 20
JUMP_MS = SLOT_MS // 2
CLOCK_ERROR_MS = SLOT_MS  # a clock worse than one slot
AHEAD_MS = 600_000  # further ahead of its receipt than this is never folded (issue 2: suspect clock)
BEHIND_MS = 400 * 86_400_000  # and so is what claims to be older than this


Pause = tuple[int, tuple[int, int]]


class ReceivedBatch(NamedTuple):
    """A batch as the inbox holds it: SHA-256 of its MessagePack bytes, first receipt, decoded content."""

    sha256: bytes
    received_at_ms: int
    batch: Batch


class Item(NamedTuple):
    """A sample (`event` is None) or an event at its own instant; `clock_ok` False = not known to one slot."""

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

    @property
    def key(self) -> Key:
        return (self.ms, self.kind, self.agent, self.seq, self.position, self.sub)


@dataclass(slots=True)
class Placed:
    """Items in order; the hours each batch touches; batches never folded; hours whose placement was decided late."""

    items: list[Item] = field(default_factory=list)
    touched: dict[bytes, tuple[int, int]] = field(default_factory=dict)
    suspect: list[bytes] = field(default_factory=list)
    dirty: list[int] = field(default_factory=list)
    undecided: bool = False


def place(batches: Iterable[ReceivedBatch], start: Fit) -> Placed:
    """The items of these batches in their order; `start` is the placement of the state they continue.

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
    fit = start
    for boot in order:
        if boot != fit[0]:
            fit = (boot, *NO_FIT[1:])
        fit = _place_boot(boots[boot], fit, placed)
    if placed.suspect:
        bad = set(placed.suspect)
        placed.items = [item for item in placed.items if item.sha256 not in bad]
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


def _place_boot(batches: list[ReceivedBatch], fit: Fit, placed: Placed) -> Fit:
    """Place one boot's batches, `fit` being what was known before them; returns what is known after."""
    if len(batches) > 1:
        batches.sort(key=_first)
    pauses, jump = _decide(batches, fit, placed)
    placed.undecided = placed.undecided or jump is not None
    for received in batches:
        batch = received.batch
        agent, seq, sha = batch.agent_id or "", batch.seq or 0, received.sha256
        low = high = soonest = -1
        for position, interval in enumerate(batch.intervals):
            boottime = interval.boottime
            if boottime is None:
                ms = interval.ts
                clock_ok = _clock_ok(interval)
            else:
                fit, ms, clock_ok = _sample(batch, interval, boottime, fit, pauses, jump)
            low = ms if low < 0 or ms < low else low
            high = ms if ms > high else high
            least = ms if ms < interval.ts else interval.ts
            soonest = least if least > soonest else soonest
            placed.items.append(Item(ms, 1, agent, seq, position, 0, sha, clock_ok, batch, interval, None, fit))
            events = interval.events or interval.xids
            if events:
                for sub, event in enumerate(events):
                    at = _event_ms(event, batch, interval, fit, ms)
                    if at < received.received_at_ms - BEHIND_MS:
                        continue
                    low, high = min(low, at), max(high, at)
                    placed.items.append(
                        Item(at, 0, agent, seq, position, sub, sha, clock_ok, batch, interval, event, fit)  # type: ignore[arg-type]
                    )
        placed.touched[sha] = (hour_of(low), hour_of(high))
        if soonest > received.received_at_ms + AHEAD_MS or low < received.received_at_ms - BEHIND_MS:
            placed.suspect.append(sha)
    return fit


def _clock_ok(interval: Interval) -> bool:
    """Whether `ts` alone places the sample to one slot."""
    clock = interval.clock
    if clock is None:
        return True
    if clock.error_ms is not None and clock.error_ms > CLOCK_ERROR_MS:
        return False
    return clock.status != "unsynchronised" or clock.error_ms is not None


def _decide(batches: list[ReceivedBatch], fit: Fit, placed: Placed) -> tuple[list[Pause], tuple[int, int] | None]:
    """Pauses (boottime at which a new segment begins, the sync that showed it); the jump that none has decided."""
    pauses: list[Pause] = []
    sync, jump, last_bt, last_diff = fit[4], fit[5], fit[7], fit[8]
    pending = jump
    for received in batches:
        new = received.batch.sync
        if new is not None and (sync is None or new.boottime > sync[1]):
            if sync is not None and abs((new.received_at - new.boottime) - (sync[0] - sync[1])) > JUMP_MS:
                first = received.batch.intervals[0].boottime
                pair = (new.received_at, new.boottime)
                if jump is not None:
                    pauses.append((jump[0], pair))
                elif first is not None:
                    pauses.append((first, pair))
                if jump is not None and jump == pending:
                    placed.dirty.append(jump[1])
                jump = None
            elif jump is not None and new.boottime >= jump[0]:
                if jump == pending:
                    placed.dirty.append(jump[1])
                jump = None
            sync = (new.received_at, new.boottime)
        for interval in received.batch.intervals:
            bt = interval.boottime
            if bt is None or bt <= last_bt:
                continue
            diff = interval.ts - bt
            if last_bt >= 0 and abs(diff - last_diff) > JUMP_MS and jump is None:
                jump = (bt, -1)
            last_bt, last_diff = bt, diff
    return pauses, jump


def _sample(
    batch: Batch, interval: Interval, bt: int, fit: Fit, pauses: list[Pause], jump: tuple[int, int] | None
) -> tuple[Fit, int, bool]:
    """(placement after this sample, its instant, whether its slot is known)."""
    boot, offset, live, syncs, sync, old_jump, start, last_bt, _, number, before = fit
    diff = interval.ts - bt
    new = batch.sync
    pair = (new.received_at, new.boottime) if new is not None else None
    frozen = offset is not None and len(live) == 0
    if frozen and bt > last_bt and not pauses and jump is None and old_jump is None and (pair is None or pair == sync):
        assert offset is not None
        return (boot, offset, (), (), sync, None, start, bt, diff, number, before), bt + offset, True
    if bt <= last_bt:  # already known: placed, teaches nothing
        used = before if bt < start and before is not None else offset
        ms = interval.ts if used is None else bt + used
        return fit, ms, used is not None or _clock_ok(interval)
    crossed = [p for p in pauses if last_bt < p[0] <= bt] if pauses else ()
    if crossed:
        # the receipt that showed the pause is the first to say something of the offset behind it
        before = offset if offset is not None else before
        sync = crossed[-1][1]
        offset, live, syncs, start, number, frozen = None, (), (sync[0] - sync[1],), bt, number + 1, False
    if pair is not None and (sync is None or pair[1] > sync[1]):
        sync = pair
        if not frozen and not live and len(syncs) < FIT_SAMPLES:
            syncs = tuple(sorted((*syncs, pair[0] - pair[1])))
    if not frozen:
        clock = interval.clock
        good = clock is None or clock.status == "synchronised"
        undecided = jump is not None and bt >= jump[0]
        stepped = bool(live) and abs(diff - _median(live)) > JUMP_MS  # a step of the clock is ignored (fold.md 2)
        if good and not undecided and not stepped and new is not None and bt - new.boottime <= LIVE_MS:
            values = list(live)
            insort(values, diff)
            live = tuple(values)
        if live:
            offset = _median(live)
            syncs = ()
            if len(live) >= FIT_SAMPLES:
                live = ()
        elif syncs:
            offset = _median(syncs)
        else:
            offset = None
    undecided = jump is not None and bt >= jump[0]
    ms = interval.ts if offset is None else bt + offset
    known = not undecided and (offset is not None or _clock_ok(interval))
    mark = (jump[0], hour_of(ms) if jump[1] < 0 else jump[1]) if undecided and jump is not None else None
    if mark is not None and old_jump is not None and old_jump[0] == mark[0]:
        mark = old_jump
    if offset is not None and not live and syncs:
        # a median of receipts is not frozen: it is given again by the receipts
        return (boot, None, (), syncs, sync, mark, start, bt, diff, number, before), ms, known
    return (boot, offset, live, syncs, sync, mark, start, bt, diff, number, before), ms, known


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
        and offset is not None
        and (boot is None or boot == batch.boot_id)
    ):
        bt = mono + interval.boottime - interval.mono
        if bt < fit[6] and fit[10] is not None:
            offset = fit[10]
        return bt + offset
    return at if at is not None else sample_ms
