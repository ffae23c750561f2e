"""How a condition begins, lasts and ends (fold.md 5 to 7, 10 to 14, 28 to 30)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from fleet.domain.slots import SLOT_MS, VOUCH_MS
from fleet.domain.state import GOOD, Condition, Segment, Subject

if TYPE_CHECKING:
    from fleet.domain.placement import Item
    from fleet.domain.rules import Rules
    from fleet.domain.work import Stretch, Work

SLICES = 7  # compute slices of a GPU under MIG
ACT_MS = 180_000  # an owner's act is remembered this long
ADMIN_MS = 120_000  # an owner's act explains an Xid 79 this long after it (review of the weights)
LAPSE_MS = 600_000  # a pending reason lapses ten minutes after its event (fold.md 11, 24)


@dataclass(slots=True)
class Change:
    """What a sample changed: `gap_unknown` = a slot missed before it lies between a good and a bad sample."""

    gap_unknown: bool = False


def chains(subject: Subject) -> list[Segment]:
    """The covers of the subject's open conditions."""
    return [(c.code, "C", c.run_from, c.last, c.weight) for c in subject.conditions if c.run_from >= 0]


def start(work: Work, subject: Subject, code: str, at: int, weight: int, confirmed: bool, event: bool) -> Condition:
    """Open a condition at this instant; an event is a piece of evidence itself. What never lowers weighs 100."""
    if not work.reason(code).lowers:
        weight = 100
    condition = Condition(code, weight, at, confirmed, "E")
    if confirmed and event:
        condition.run_from = condition.last = at
    subject.conditions.append(condition)
    subject.conditions.sort(key=lambda c: (c.code, c.since))  # as in the state's bytes
    return condition


def confirm(subject: Subject, condition: Condition, at: int, end_slot: int, first: int) -> None:
    """A pending condition is corroborated at this instant; what lay before stays pending (up to `end_slot`)."""
    if condition.stance != "U":  # else what lay before is unknown
        pend(subject, condition, first, end_slot)
    condition.confirmed = True
    condition.run_from = condition.last = at
    condition.stance = "E"


def pend(subject: Subject, condition: Condition, first: int, end_slot: int) -> None:
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
    within = stretch.same_boot or stays or not c.old
    near = ms - c.last <= VOUCH_MS and within
    lasting = sticky and within
    fresh = False
    if linked and (near or lasting):
        c.last = ms
    else:
        fresh = c.run_from < 0
        if c.run_from >= 0:
            if sticky and c.weight < 100 and stretch.end > stretch.first + 1 and ms - c.last > VOUCH_MS:
                subject.segments.append((c.code, "H", c.last // SLOT_MS + 1, stretch.end, 0))
            freeze(subject, c)
        c.run_from = c.last = ms
    slot = ms // SLOT_MS
    subject.segments.append((c.code, "B", slot, slot + 1, c.weight))
    c.stance = "B"
    if c.confirmed:
        work.opened(key, subject, c, ms)
    return fresh and not event_born


def read_elsewhere(work: Work, c: Condition, stretch: Stretch) -> bool:
    """Whether another installation has just read what this sample could not: blindness is no evidence (fold.md 17)."""
    fresh = stretch.from_ms <= c.last and stretch.to_ms - c.last <= VOUCH_MS
    return work.several and (c.stance == "K" or (c.stance in "BES" and fresh))


def possible(work: Work, key: str, subject: Subject, c: Condition, stretch: Stretch, ms: int) -> None:
    """A source that could show the end was not read: the condition is possible here (fold.md 7)."""
    slot = ms // SLOT_MS
    if read_elsewhere(work, c, stretch):
        if c.stance != "K":
            subject.segments.append((c.code, "Q", slot, slot + 1, c.weight))
        return  # what the other one reads goes on
    first = slot
    if stretch.same_boot and (c.stance in "QE" or (c.stance == "B" and work.reason(c.code).sticky)):
        first = stretch.first + 1
    if c.stance == "E":
        first = max(first, c.last // SLOT_MS + 1)
    freeze(subject, c)
    subject.segments.append((c.code, "Q", min(first, slot), slot + 1, c.weight))
    c.stance = "Q"
    work.opened(key, subject, c, ms)


def again(work: Work, subject: Subject, c: Condition, at: int) -> None:
    """An event of a boot that no sample showed yet says again what was open before that boot: held in between, and
    of this boot from now on."""
    if c.weight < 100 and work.reason(c.code).sticky and c.stance in "BEQ":
        _held(subject, c, c.last // SLOT_MS + 1, at // SLOT_MS)
    freeze(subject, c)
    c.run_from = c.last = c.since = at
    c.stance = "E"


def _held(subject: Subject, c: Condition, first: int, end: int) -> None:
    if first < end:
        subject.segments.append((c.code, "H", first, end, 0))


def is_behind_boot(c: Condition, item: Item) -> bool:
    """Whether nothing of this boot has shown the condition yet."""
    return c.old and (not item.boot_ms or c.last < item.boot_ms)


def carried(work: Work, key: str, subject: Subject, c: Condition, stretch: Stretch, ms: int) -> None:
    """A boot ended, and whether the device enumerates in the new one could not be seen yet: held (fold.md 10, 28)."""
    slot = ms // SLOT_MS
    first = max(c.last // SLOT_MS, stretch.first - 1) + 1 if ms - c.last > VOUCH_MS else slot
    freeze(subject, c)
    if c.weight < 100:
        subject.segments.append((c.code, "H", first, slot + 1, 0))
    c.stance = "Q"
    work.opened(key, subject, c, ms)


def lapse(work: Work, key: str, subject: Subject, c: Condition, at: int) -> bool:
    """Close a pending condition whose ten minutes were over by this instant, what could corroborate it having been
    read until then: what is evidence from now on corroborates it no more (fold.md 11). Returns whether it did."""
    state, end = work.state, c.since + LAPSE_MS
    assert state is not None
    if c.confirmed or "action" not in work.reason(c.code).needs:
        return False
    if not state.last_ms <= end <= at <= state.last_ms + VOUCH_MS:
        return False
    several = len(state.agents) > 1  # then one of them may be blind
    if subject.kind != GOOD and not (several and any(s[1] == "A" for s in subject.segments)):
        return False
    if state.sources[2] != "ok" and not (several and work.kmsg_ok):
        return False
    pend(subject, c, state.open_slot, end // SLOT_MS + 1)
    close(work, key, subject, c, end)
    return True


def contested(work: Work, key: str, subject: Subject, c: Condition, stretch: Stretch, ms: int) -> None:
    """Down by rule, but the GPU works: opens a review."""
    if c.stance != "K":
        work.report("review", key, c.code, ms, c.since, c.last, c.weight)
    slot = ms // SLOT_MS
    first = stretch.first + 1 if c.stance == "K" and stretch.vouched else slot
    freeze(subject, c)
    subject.segments.append((c.code, "K", min(first, slot), slot + 1, c.weight))
    c.stance = "K"


def pending(subject: Subject, c: Condition, stretch: Stretch, ms: int) -> None:
    """No corroboration yet."""
    pend(subject, c, stretch.first, ms // SLOT_MS + 1)
    c.stance = "P"


def shown(work: Work, key: str, subject: Subject, code: str, stretch: Stretch, ms: int) -> bool:
    """The sample shows a reason that lasts while samples do. Returns whether the gap before it is unknown."""
    reason = work.reason(code)
    c = subject.find(code) or start(work, subject, code, ms, reason.weight, reason.persistence_samples <= 1, False)
    if not c.confirmed:
        c.seen += not work.again
        if c.seen >= reason.persistence_samples and stretch.vouched:
            confirm(subject, c, ms, ms // SLOT_MS, stretch.first)
            c.run_from = -1
    if not c.confirmed:
        pending(subject, c, stretch, ms)
        return False
    return bad(work, key, subject, c, stretch, ms, False, False)


def not_shown(work: Work, key: str, subject: Subject, code: str, stretch: Stretch, ms: int) -> bool:
    """The sample does not show it: it is over, if it was there. Returns whether the gap before it is unknown."""
    c = subject.find(code)
    return c is not None and ended_by_sample(work, key, subject, c, stretch, ms)


def ended_by_sample(work: Work, key: str, subject: Subject, c: Condition, stretch: Stretch, ms: int) -> bool:
    """The sample shows that `c` is over. Returns whether a slot missed before it is unknown."""
    slot = ms // SLOT_MS
    gap = False
    if work.several:  # the slot is this sample's, whatever a blind one of another installation left open in it
        kept = [s for s in subject.segments if s[:3] != (c.code, "Q", slot)]
        held = [s for s in kept if s[:2] == (c.code, "H") and s[3] > slot]
        subject.segments = [s for s in kept if s not in held]
        subject.segments += [(code, kind, a, slot, w) for code, kind, a, _, w in held if a < slot]
    if not c.confirmed:
        if c.stance != "U":
            pend(subject, c, stretch.first, slot)
    else:
        if work.reason(c.code).sticky and c.stance in "BEQ" and ms - c.last > VOUCH_MS and slot > stretch.first:
            first = max(c.last // SLOT_MS, stretch.first) + 1
            if first < slot and c.weight < 100:
                subject.segments.append((c.code, "H", first, slot, 0))
                work.opened(key, subject, c, ms)
        gap = c.stance in "BE"
        freeze(subject, c)
        last = c.last // SLOT_MS
        if (
            work.several
            and c.stance == "B"
            and last < slot
            and not any(s[1] == "X" and s[2] == last for s in subject.segments)
        ):
            work.opened(key, subject, c, ms)  # its only sample was not contradicted
    close(work, key, subject, c, ms)
    return gap


def ended_by_event(work: Work, key: str, subject: Subject, c: Condition, at: int, first: int) -> None:
    """An event ends `c` at its instant and is the second piece of evidence for the slots before it."""
    slot = at // SLOT_MS
    if not c.confirmed:
        pend(subject, c, first, slot + 1)
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
        if slot > first + 1 and c.weight < 100:
            subject.segments.append((c.code, "H", max(c.last // SLOT_MS, first) + 1, slot, 0))
            work.opened(key, subject, c, at)
        freeze(subject, c)
        close(work, key, subject, c, at)


def left(work: Work, key: str, subject: Subject, c: Condition, first: int, at: int) -> None:
    """The device of `c` is no longer that of the place: nothing more is known of it from this instant on."""
    if not c.confirmed and c.stance != "U":
        pend(subject, c, first, at // SLOT_MS + 1)
    freeze(subject, c)
    close(work, key, subject, c, at)


def weigh_again(work: Work, before: Rules, at: int) -> None:
    """The rules change at this instant: open conditions weigh what the new ones say, or are over if they lower no more.

    What lies between the last evidence and the next is judged by the new rules; what was emitted stays.
    """
    state = work.state
    assert state is not None
    keys = [("n", state.node), *((f"g{i}", p) for i, p in enumerate(state.places))]
    keys += [(f"p:{p.key}", p) for p in state.ports]
    for key, subject in keys:
        for c in tuple(subject.conditions):
            old, new = before.reasons.get(c.code), work.rules.reasons.get(c.code)
            if old == new:
                continue
            if new is None or not new.lowers:
                freeze(subject, c)
                close(work, key, subject, c, max(at, c.since))
            elif old is not None and old.weight != new.weight and new.lasts in ("condition", "sample"):
                full = sliced(old.weight, c.parts)
                weight = sliced(new.weight, c.parts)
                if c.run_from >= 0:
                    subject.segments.append((c.code, "W", state.open_slot, at // SLOT_MS, c.weight))
                c.weight = weight if c.weight == full else max(c.weight, weight)


def sliced(weight: int, parts: tuple[tuple[str, int], ...]) -> int:
    """The weight of a GPU that loses these MIG instances; the loss is rounded down, at most 7 slices (fold.md 14, 30).

    >>> sliced(0, (("1", 3),))
    58
    """
    if not parts:
        return weight
    return 100 - (100 - weight) * min(SLICES, sum(n for _, n in parts)) // SLICES


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
