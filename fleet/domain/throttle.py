"""Throttling: the loss in proportion to the throttled share of a span (fold.md 4, 26; review of the weights)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from fleet.domain import conditions as cond
from fleet.domain.slots import SLOT_MS, VOUCH_MS

if TYPE_CHECKING:
    from fleet.domain.facts import Gpu
    from fleet.domain.placement import Item
    from fleet.domain.state import Place
    from fleet.domain.work import Stretch, Work


def losses(work: Work, gpu: Gpu, item: Item, span: int = 0) -> tuple[tuple[str, int], ...]:
    """(code, loss) of each throttle reason in this sample, sorted: by the counters of time, else by the mask.

    The loss is the reason's for the throttled share of the span, never more than the clocks show (fold.md 4, 26).
    `span`: ms since the previous sample where that is known to vouch.
    """
    times = gpu.throttle_time
    if times is None:
        rules = work.rules
        mask = (gpu.throttle_reasons or 0) & rules.bad_mask
        if not mask:
            return ()
        clocks = _clock_loss(gpu)
        return _least(work, [(r.code, min(100 - r.weight, clocks)) for r in rules.masks if mask & r.mask])
    known, only, mine = work.rules.counter_losses, None, 0
    for name, spent in times.items():
        if spent and name in known:
            if only is not None:
                return _several(work, gpu, times, span or _span(work, item))
            only, mine = known[name], spent
    if only is None:
        return ()
    code, full = only  # the usual one: a single reason
    if not span:
        span = _span(work, item)
    loss = full if mine * 100 >= span * 99 else full * mine // span  # share_loss
    clock, most = gpu.sm_clock, gpu.sm_clock_max
    if clock is not None and most:
        shown = 100 - clock * 100 // most if clock < most else 0
        if shown < loss:
            loss = shown
    return ((code, loss),)


def _several(work: Work, gpu: Gpu, times: Mapping[str, int], span: int) -> tuple[tuple[str, int], ...]:
    known, clocks = work.rules.counter_losses, _clock_loss(gpu)
    found = []
    for name, spent in times.items():
        if spent and name in known:
            code, full = known[name]
            found.append((code, min(share_loss(full, spent, span), clocks)))
    return _least(work, found)


def _least(work: Work, found: list[tuple[str, int]]) -> tuple[tuple[str, int], ...]:
    """The greatest loss of each code, without those that another one supersedes."""
    if len(found) > 1:
        dropped = {other for code, _ in found for other in work.reason(code).supersedes}
        best: dict[str, int] = {}
        for code, loss in found:
            if code not in dropped:
                best[code] = max(loss, best.get(code, 0))
        found = sorted(best.items())
    return tuple(found)


def _clock_loss(gpu: Gpu) -> int:
    """What the clocks show to be lost, per cent; 100 where they say nothing."""
    clock, most = gpu.sm_clock, gpu.sm_clock_max
    if clock is None or not most:
        return 100
    return 100 - clock * 100 // most if clock < most else 0


def take(
    work: Work, key: str, place: Place, gpu: Gpu, stretch: Stretch, item: Item, seen: set[str], change: cond.Change
) -> None:
    """Throttling: own-slot reasons from counters, conditions with persistence from the mask."""
    found = losses(work, gpu, item)
    slot = item.ms // SLOT_MS
    counted = gpu.throttle_time is not None
    current = {} if counted else dict(found)
    if counted and found:
        first = stretch.first + 1 if _span(work, item, 0) and slot > stretch.first else slot
        for code, loss in found:
            if loss > 0:
                place.segments.append((code, "O", min(first, slot), slot + 1, 100 - loss))
                _counted(work, key, place, code, 100 - loss, item.ms)
                seen.discard(code)
    for code, loss in current.items():
        c = place.find(code)
        if c is None:
            if loss <= 0:
                continue
            c = cond.start(work, place, code, item.ms, 100 - loss, work.reason(code).persistence_samples <= 1, False)
        if c.stance == "S":  # counters before, none now: the mask has to last again
            c.confirmed, c.stance, c.seen = False, "P", 0
        if not c.confirmed:
            c.seen += not work.again
            if c.seen >= work.reason(code).persistence_samples and stretch.vouched:
                cond.confirm(place, c, item.ms, slot, stretch.first)
                c.run_from = -1
        if c.confirmed:
            if c.weight != 100 - loss:
                cond.freeze(place, c)
                c.weight = 100 - loss
            if cond.bad(work, key, place, c, stretch, item.ms, False, False):
                change.gap_unknown = True
        else:
            cond.pending(place, c, stretch, item.ms)
    for code in sorted(seen):
        over = place.find(code)
        if over is None or work.reason(code).lasts != "share" or code in current:
            continue
        if over.stance == "S":
            cond.close(work, key, place, over, item.ms)
        elif cond.ended_by_sample(work, key, place, over, stretch, item.ms):
            change.gap_unknown = True


def _counted(work: Work, key: str, place: Place, code: str, weight: int, ms: int) -> None:
    """Keep a condition for what counters say: it lowers nothing itself, it only tells beginning and end."""
    c = place.find(code)
    if c is None:
        c = cond.start(work, place, code, ms, weight, True, False)
    elif c.stance != "S":
        cond.freeze(place, c)
        c.seen = 0
    c.confirmed, c.stance, c.weight, c.last = True, "S", weight, ms
    enough = work.reason(code).persistence_samples
    if c.seen < enough:
        c.seen += not work.again
    if c.seen >= enough:
        work.opened(key, place, c, ms)


def share_loss(full: int, spent_ms: int, span_ms: int) -> int:
    """The loss of `full` for the throttled share of a span, rounded down; 99 % of the span counts as all of it.

    >>> share_loss(50, 6000, 15000)
    20
    """
    if spent_ms * 100 >= span_ms * 99:
        return full
    return full * spent_ms // span_ms


def _span(work: Work, item: Item, far: int = SLOT_MS) -> int:
    """ms since the previous sample of this installation; `far` where that is too far away to vouch or lies in another
    boot or before a pause."""
    state = work.state
    own = state.agents.get(item.agent) if state is not None else None
    if state is None or own is None or item.fit[9] != state.segment_number:
        return far
    if item.batch.boot_id is not None and item.batch.boot_id != state.boot_id:
        return far
    span = item.ms - own
    return span if 0 < span <= VOUCH_MS else far
