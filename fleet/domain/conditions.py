"""How a condition begins, lasts and ends (fold.md 5 to 7, 10 to 14, 28 to 30)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from fleet.domain.slots import SLOT_MS, VOUCH_MS
from fleet.domain.state import ABSENT, BLIND, LOST, NEVER, Condition, Place, Segment, Subject

if TYPE_CHECKING:
    from fleet.domain.facts import Gpu
    from fleet.domain.placement import Item
    from fleet.domain.work import Stretch, Work

ADMIN_MS = 120_000  # an owner's act explains an Xid 79 this long after it (review of the weights)
LAPSE_MS = 600_000  # a pending reason lapses ten minutes after its event (fold.md 11, 24)
POWERED_SAMPLES = 20  # under power without a new event ends a condition on old drivers (fold.md 12)
ENUMERATED_SAMPLES = 2  # samples that enumerate the device refute an Xid 79 (fold.md 11)
BROKEN_SAMPLES = 2  # samples with NVML errors corroborate Xid 119 and 120 (issue: review of the weights)


@dataclass(slots=True)
class Change:
    """What a sample changed: `gap_unknown` = a slot missed before it lies between a good and a bad sample."""

    gap_unknown: bool = False


def chains(subject: Subject) -> list[Segment]:
    """The covers of the subject's open conditions."""
    return [(c.code, "C", c.run_from, c.last, c.weight) for c in subject.conditions if c.run_from >= 0]


def start(work: Work, subject: Subject, code: str, at: int, weight: int, confirmed: bool, event: bool) -> Condition:
    """Open a condition at this instant; an event is a piece of evidence itself."""
    condition = Condition(code, weight, at, confirmed, "E")
    if confirmed and event:
        condition.run_from = condition.last = at
    subject.conditions.append(condition)
    subject.conditions.sort(key=lambda c: (c.code, c.since))  # as in the state's bytes
    return condition


def confirm(subject: Subject, condition: Condition, at: int, end_slot: int, first: int) -> None:
    """A pending condition is corroborated at this instant; what lay before stays pending (up to `end_slot`)."""
    _pend(subject, condition, first, end_slot)
    condition.confirmed = True
    condition.run_from = condition.last = at
    condition.stance = "E"


def _pend(subject: Subject, condition: Condition, first: int, end_slot: int) -> None:
    a = max(condition.since // SLOT_MS, first)
    if a < end_slot:
        subject.segments.append((condition.code, "P", a, end_slot, condition.weight))


def freeze(subject: Subject, condition: Condition) -> None:
    """Close the chain of bad evidence; what it covers stays until its slots are emitted."""
    if condition.run_from >= 0:
        subject.segments.append((condition.code, "C", condition.run_from, condition.last, condition.weight))
        condition.run_from = -1


def bad(
    work: Work, key: str, subject: Subject, c: Condition, stretch: Stretch, ms: int, stays: bool, event_born: bool
) -> bool:
    """The sample is bad evidence of `c`; returns whether the gap is unknown. `stays`: it holds across a boot."""
    sticky = work.reason(c.code).sticky
    linked = c.run_from >= 0 and c.stance in "BE"
    near = ms - c.last <= VOUCH_MS and (stretch.same_boot or stays)
    lasting = sticky and (stretch.same_boot or stays)
    fresh = False
    if linked and (near or lasting):
        c.last = ms
    else:
        fresh = c.run_from < 0
        if c.run_from >= 0:
            if sticky and stretch.end > stretch.first + 1 and ms - c.last > VOUCH_MS:
                subject.segments.append((c.code, "H", c.last // SLOT_MS + 1, stretch.end, 0))
            freeze(subject, c)
        c.run_from = c.last = ms
    slot = ms // SLOT_MS
    subject.segments.append((c.code, "B", slot, slot + 1, c.weight))
    c.stance = "B"
    if c.confirmed:
        work.opened(key, subject, c, ms)
    return fresh and not event_born


def possible(work: Work, key: str, subject: Subject, c: Condition, stretch: Stretch, ms: int) -> None:
    """A source that could show the end was not read: the condition is possible here (fold.md 7)."""
    slot = ms // SLOT_MS
    first = slot
    if stretch.same_boot and (c.stance in "QE" or (c.stance == "B" and work.reason(c.code).sticky)):
        first = stretch.first + 1
    if c.stance == "E":
        first = max(first, c.last // SLOT_MS + 1)
    freeze(subject, c)
    subject.segments.append((c.code, "Q", min(first, slot), slot + 1, c.weight))
    c.stance = "Q"
    work.opened(key, subject, c, ms)


def contested(subject: Subject, c: Condition, stretch: Stretch, ms: int) -> None:
    """Down by rule, but the GPU works."""
    slot = ms // SLOT_MS
    first = stretch.first + 1 if c.stance == "K" and stretch.vouched else slot
    freeze(subject, c)
    subject.segments.append((c.code, "K", min(first, slot), slot + 1, c.weight))
    c.stance = "K"


def pending(subject: Subject, c: Condition, stretch: Stretch, ms: int) -> None:
    """No corroboration yet."""
    _pend(subject, c, stretch.first, ms // SLOT_MS + 1)
    c.stance = "P"


def ended_by_sample(work: Work, key: str, subject: Subject, c: Condition, stretch: Stretch, ms: int) -> bool:
    """The sample shows that `c` is over. Returns whether a slot missed before it is unknown."""
    slot = ms // SLOT_MS
    gap = False
    if not c.confirmed:
        if c.stance != "U":
            _pend(subject, c, stretch.first, slot)
    else:
        if work.reason(c.code).sticky and c.stance in "BEQ" and ms - c.last > VOUCH_MS and slot > stretch.first:
            first = max(c.last // SLOT_MS, stretch.first) + 1
            if first < slot:
                subject.segments.append((c.code, "H", first, slot, 0))
                work.opened(key, subject, c, ms)
        gap = c.stance in "BE"
        freeze(subject, c)
    close(work, key, subject, c, ms)
    return gap


def ended_by_event(work: Work, key: str, subject: Subject, c: Condition, at: int, first: int) -> None:
    """An event ends `c` at its instant and is the second piece of evidence for the slots before it."""
    slot = at // SLOT_MS
    if not c.confirmed:
        _pend(subject, c, first, slot + 1)
    elif c.stance in "BE" and c.run_from >= 0:
        c.last = max(at, c.last)
        work.opened(key, subject, c, at)
        freeze(subject, c)
    elif c.stance in "QK":
        subject.segments.append((c.code, "T" if c.stance == "Q" else "K", slot, slot + 1, c.weight))
    close(work, key, subject, c, at)


def end_held(work: Work, key: str, subject: Subject, c: Condition, first: int, at: int) -> None:
    """A replacement elsewhere ends a held condition at this instant."""
    slot = at // SLOT_MS
    if c.confirmed and work.reason(c.code).sticky and c.stance in "BEQ":
        if slot > first + 1:
            subject.segments.append((c.code, "H", max(c.last // SLOT_MS, first) + 1, slot, 0))
            work.opened(key, subject, c, at)
        freeze(subject, c)
        close(work, key, subject, c, at)


def close(work: Work, key: str, subject: Subject, c: Condition, at: int) -> None:
    """Drop the condition and report its end if its beginning was reported."""
    subject.conditions.remove(c)
    if c.opened:
        work.report("closed", key, c.code, at, c.since, c.last, c.weight)
    elif not c.confirmed:
        own = work.reason(c.code).own_slot
        if own:
            for kind in ("opened", "closed"):
                work.report(kind, key, own, at, c.since, c.since, work.reason(own).weight)


# -- a GPU that NVML lists ----------------------------------------------------------------------------------------


def good(work: Work, key: str, place: Place, gpu: Gpu, stretch: Stretch, item: Item, change: Change) -> None:
    """Take a listed GPU's reading."""
    ms, slot = item.ms, item.ms // SLOT_MS
    action = gpu.recovery_action
    if action is not None:
        place.has_action = True
    under_power = powered(gpu)
    seen: set[str] = set()
    if place.conditions:
        order = sorted(place.conditions, key=lambda c: c.code.startswith("RECOVERY_"))
        for c in order:
            seen.add(c.code)
            if _listed(work, key, place, gpu, c, action, under_power, stretch, item):
                change.gap_unknown = True
    if action:
        code = {1: "RECOVERY_REQUIRED", 2: "RECOVERY_REQUIRED", 3: "RECOVERY_DRAIN"}.get(action)
        if code is None:
            place.segments.append(("RECOVERY_OTHER", "N", slot, slot + 1, 100))
        elif place.find(code) is None:
            c = start(work, place, code, ms, work.reason(code).weight, True, False)
            if under_power:
                contested(place, c, stretch, ms)
            elif bad(work, key, place, c, stretch, ms, False, False):
                change.gap_unknown = True
    _throttle(work, key, place, gpu, stretch, item, seen, change)
    remap = gpu.row_remap
    if remap is not None and remap.failed:
        place.segments.append(("RMA_DUE", "N", slot, slot + 1, 100))
    errors = gpu.ecc_uncorrected or 0
    if errors != place.ecc:
        if errors > place.ecc and not work.kmsg_ok:
            own = work.reason("ECC_UNCORRECTED")
            place.segments.append((own.code, "O", slot, slot + 1, own.weight))
        place.ecc = errors


def powered(gpu: Gpu) -> bool:
    """Whether the GPU works: utilisation over 10 % and power over half its limit (fold.md 12)."""
    power, limit = gpu.power, gpu.power_limit
    return bool((gpu.gpu_utilization or 0) > 10 and power is not None and limit is not None and power * 2 > limit)


def _listed(
    work: Work, key: str, place: Place, gpu: Gpu, c: Condition, action: int | None, under_power: bool,
    stretch: Stretch, item: Item,
) -> bool:  # fmt: skip
    """Judge one open condition on a listed GPU; returns whether the gap before the sample is unknown."""
    ms = item.ms
    reason = work.reason(c.code)
    if reason.lasts == "share":
        return False
    ends = reason.ends
    if "enumerates" in ends:
        if c.old or c.code == "GPU_MISSING":
            return ended_by_sample(work, key, place, c, stretch, ms)
        c.seen += 1
        if c.seen >= ENUMERATED_SAMPLES:
            ended_by_sample(work, key, place, c, stretch, ms)
        elif c.confirmed:
            contested(place, c, stretch, ms)
        else:
            pending(place, c, stretch, ms)
        return False
    if c.old and "boot" in ends and not (c.code.startswith("RECOVERY_") and action):
        return ended_by_sample(work, key, place, c, stretch, ms)
    if not c.confirmed:
        return _unconfirmed(work, key, place, gpu, c, action, under_power, stretch, ms)
    if action == 0 and "action_none" in ends:
        return ended_by_sample(work, key, place, c, stretch, ms)
    if c.code == "RECOVERY_REQUIRED" and action is not None and action not in (1, 2):
        return ended_by_sample(work, key, place, c, stretch, ms)
    if c.code == "RECOVERY_DRAIN" and action is not None and action != 3:
        return ended_by_sample(work, key, place, c, stretch, ms)
    if under_power and reason.lowers:
        c.powered += 1
        if c.powered >= POWERED_SAMPLES and not place.has_action:
            return ended_by_sample(work, key, place, c, stretch, ms)
        contested(place, c, stretch, ms)
    elif action is not None or (work.kmsg_ok and not place.has_action):
        return bad(work, key, place, c, stretch, ms, False, c.stance == "E")
    else:
        possible(work, key, place, c, stretch, ms)
    return False


def _unconfirmed(
    work: Work, key: str, place: Place, gpu: Gpu, c: Condition, action: int | None, under_power: bool,
    stretch: Stretch, ms: int,
) -> bool:  # fmt: skip
    needs = work.reason(c.code).needs
    slot = ms // SLOT_MS
    confirmed = "action" in needs and action in (1, 2)
    if not confirmed and "links" in needs and gpu.nvlink_inactive:
        confirmed, c.weight = True, max(c.weight, 50)
    if not confirmed and "clocks" in needs and gpu.sm_clock and gpu.sm_clock_max and gpu.gpu_utilization:
        confirmed = gpu.sm_clock * 2 <= gpu.sm_clock_max
    if confirmed:
        confirm(place, c, ms, slot, stretch.first)
        if under_power:
            contested(place, c, stretch, ms)
        else:
            bad(work, key, place, c, stretch, ms, False, True)
        return False
    if action == 0 and "action" in needs:
        return ended_by_sample(work, key, place, c, stretch, ms)
    lapse = c.since + LAPSE_MS
    if ms >= lapse and (work.kmsg_ok or action is not None):
        _pend(place, c, stretch.first, lapse // SLOT_MS + 1)
        close(work, key, place, c, lapse)
        return False
    pending(place, c, stretch, ms)
    return False


def not_listed(
    work: Work, key: str, place: Place, kind: int, cause: str, stretch: Stretch, item: Item, change: Change
) -> None:
    """Take the reading of a GPU that NVML does not list or could not be asked about."""
    ms = item.ms
    missing = place.find("GPU_MISSING")
    fresh = None
    if missing is None and kind in (LOST, ABSENT, NEVER):
        fresh = missing = start(work, place, "GPU_MISSING", ms, work.reason("GPU_MISSING").weight, False, False)
    for c in sorted(place.conditions, key=lambda c: c.code == "GPU_MISSING"):
        reason = work.reason(c.code)
        if c is missing:
            if kind == LOST:
                if not c.confirmed:
                    confirm(place, c, ms, ms // SLOT_MS, stretch.first)
                    c.run_from = -1
                    if bad(work, key, place, c, stretch, ms, True, False) and c is fresh:
                        change.gap_unknown = True
                else:
                    bad(work, key, place, c, stretch, ms, True, True)
            elif c.confirmed:
                possible(work, key, place, c, stretch, ms)
            elif kind == NEVER or ms - c.since <= LAPSE_MS:
                pending(place, c, stretch, ms)
            else:
                if c.stance != "U":
                    _pend(place, c, stretch.first, (c.since + LAPSE_MS) // SLOT_MS + 1)
                c.stance = "U"
        elif reason.lasts == "share":
            freeze(place, c)
            place.conditions.remove(c)
        elif c.confirmed:
            if kind in (LOST, ABSENT, NEVER):
                bad(work, key, place, c, stretch, ms, True, c.stance == "E")
            elif c.code.startswith("RECOVERY_") or place.has_action or not work.kmsg_ok or cause == "CLOCK":
                possible(work, key, place, c, stretch, ms)
            else:
                bad(work, key, place, c, stretch, ms, False, c.stance == "E")
        else:
            _unlisted_pending(work, key, place, c, kind, cause, stretch, ms)


def _unlisted_pending(
    work: Work, key: str, place: Place, c: Condition, kind: int, cause: str, stretch: Stretch, ms: int
) -> None:
    needs = work.reason(c.code).needs
    if kind == BLIND and cause in ("NVML_ERROR", "NVML_TIMEOUT", "NVML_LOST") and "nvml_errors" in needs:
        c.seen += 1
    if (kind == LOST and "missing" in needs) or ("nvml_errors" in needs and c.seen >= BROKEN_SAMPLES):
        confirm(place, c, ms, ms // SLOT_MS, stretch.first)
        bad(work, key, place, c, stretch, ms, True, True)
        return
    lapse = c.since + LAPSE_MS
    if ms >= lapse and kind != BLIND and work.kmsg_ok:
        _pend(place, c, stretch.first, lapse // SLOT_MS + 1)
        close(work, key, place, c, lapse)
        return
    pending(place, c, stretch, ms)


# -- throttling ---------------------------------------------------------------------------------------------------


def losses(work: Work, gpu: Gpu, item: Item) -> tuple[tuple[str, int], ...]:
    """(code, loss) of each throttle reason in this sample, sorted: by the counters of time, else by the mask.

    The loss is the reason's for the throttled share of the span, never more than the clocks show (fold.md 4, 26).
    """
    times = gpu.throttle_time
    found: list[tuple[str, int]] = []
    rules = work.rules
    if times is not None:
        span = -1
        for name, spent in times.items():
            if not spent:
                continue
            reason = rules.by_counter.get(name)
            if reason is not None:
                if span < 0:
                    span, clocks = _span(work, item), _clock_loss(gpu)
                found.append((reason.code, min(share_loss(100 - reason.weight, spent, span), clocks)))
    else:
        mask = (gpu.throttle_reasons or 0) & rules.bad_mask
        if mask:
            clocks = _clock_loss(gpu)
            found = [(r.code, min(100 - r.weight, clocks)) for r in rules.masks if mask & r.mask]
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
    if gpu.sm_clock is None or not gpu.sm_clock_max:
        return 100
    return max(0, 100 - gpu.sm_clock * 100 // gpu.sm_clock_max)


def _throttle(
    work: Work, key: str, place: Place, gpu: Gpu, stretch: Stretch, item: Item, seen: set[str], change: Change
) -> None:
    """Throttling: own-slot reasons from counters, conditions with persistence from the mask."""
    found = losses(work, gpu, item)
    slot = item.ms // SLOT_MS
    current: dict[str, int] = {}
    if gpu.throttle_time is not None:
        if found:
            first = stretch.first + 1 if _span(work, item, 0) and slot > stretch.first else slot
            for code, loss in found:
                if loss > 0:
                    place.segments.append((code, "O", min(first, slot), slot + 1, 100 - loss))
    else:
        current = dict(found)
    for code, loss in current.items():
        c = place.find(code)
        if c is None:
            if loss <= 0:
                continue
            c = start(work, place, code, item.ms, 100 - loss, work.reason(code).persistence_samples <= 1, False)
        if not c.confirmed:
            c.seen += 1
            if c.seen >= work.reason(code).persistence_samples and stretch.vouched:
                confirm(place, c, item.ms, slot, stretch.first)
                c.run_from = -1
        if c.confirmed:
            if c.weight != 100 - loss:
                freeze(place, c)
                c.weight = 100 - loss
            if bad(work, key, place, c, stretch, item.ms, False, False):
                change.gap_unknown = True
        else:
            pending(place, c, stretch, item.ms)
    for code in seen:
        c = place.find(code)
        over = c is not None and work.reason(code).lasts == "share" and code not in current
        if over and c is not None and ended_by_sample(work, key, place, c, stretch, item.ms):
            change.gap_unknown = True


def share_loss(full: int, spent_ms: int, span_ms: int) -> int:
    """The loss of `full` for the throttled share of a span, rounded down; 99 % of the span counts as all of it.

    >>> share_loss(50, 6000, 15000)
    20
    """
    if spent_ms * 100 >= span_ms * 99:
        return full
    return full * spent_ms // span_ms


def _span(work: Work, item: Item, far: int = SLOT_MS) -> int:
    """ms since the previous sample of this installation; `far` where that is too far away to vouch."""
    state = work.state
    own = state.agents.get(item.agent) if state else None
    return item.ms - own if own is not None and 0 < item.ms - own <= VOUCH_MS else far
