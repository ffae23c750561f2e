"""From a unit's down slots to what counts: minutes, bridging, minimum, the period's edge (contract.md 10, 11)."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

from claims.domain.contract import PER_OUTAGE, Contract
from claims.domain.periods import Period
from claims.domain.spans import Span, Spans, clip, covers, size
from fleet.domain.slots import SLOT_S

SLOTS_PER_MINUTE = 60 // SLOT_S


@dataclass(frozen=True, slots=True)
class Outage:
    """One run after all rules: its counted parts (absolute slots), whole, and what of them counts in the period."""

    parts: tuple[Span, ...]
    counted: tuple[Span, ...]

    @property
    def slots(self) -> int:
        """Counted slots."""
        return size(self.counted)


@dataclass(frozen=True, slots=True)
class Tally:
    """What a reading of one unit counts, and what each rule took away, in slots of the period.

    `outside_period`: counted parts that belong to another period.
    """

    outages: tuple[Outage, ...]
    outside_clock: int
    outside_minutes: int
    below_minimum: int
    outside_period: int

    @property
    def slots(self) -> int:
        """Counted slots of the period."""
        return sum(outage.slots for outage in self.outages)

    @property
    def spans(self) -> list[Span]:
        """Counted spans of the period."""
        return sorted(span for outage in self.outages for span in outage.counted)


def tally(contract: Contract, period: Period, down: Spans, in_clock: Spans, entitled: Spans) -> Tally:
    """What counts of a unit's down slots.

    `down`: classified, entitled, not excluded. `in_clock`: the part between clock start and end, outside stop-clock.
    """
    whole = clip(in_clock, period.first_slot, period.end_slot)
    minutes = _whole_minutes(in_clock) if contract.minute_rule == "clock_minute" else list(in_clock)
    runs = _bridge(minutes, (contract.bridging_s or 0) // SLOT_S, entitled)
    if contract.min_duration_test == "clipped":
        runs = [part for run in runs for part in _cut(run, period)]
    kept = [run for run in runs if _long_enough(contract, run)]
    if contract.kind in PER_OUTAGE:
        return _per_outage(contract, period, down, whole, minutes, kept)
    outages = []
    long_slots = outside = 0
    for run in kept:
        counted = clip(run, period.first_slot, period.end_slot)
        long_slots += size(counted)
        outside += size(run)
        if contract.minute_rule == "elapsed_floor":
            counted = _floor_minutes(counted)
        if counted:
            outages.append(Outage(tuple(run), tuple(counted)))
    in_period = size(clip(minutes, period.first_slot, period.end_slot))
    counted_slots = sum(outage.slots for outage in outages)
    return Tally(
        tuple(outages),
        outside_clock=size(clip(down, period.first_slot, period.end_slot)) - size(whole),
        outside_minutes=size(whole) - in_period + long_slots - counted_slots,
        below_minimum=in_period - long_slots,
        outside_period=outside - long_slots,
    )


def _per_outage(
    contract: Contract,
    period: Period,
    down: Spans,
    whole: Spans,
    minutes: Spans,
    kept: Sequence[list[Span]],
) -> Tally:
    """Whole outages that start in the period. Parts of one down run are one outage, whatever paused its clock."""
    groups: list[list[Span]] = []
    last = -1
    starts = [span[0] for span in down]
    for run in kept:
        if groups and bisect_right(starts, run[0][0]) == last:
            groups[-1] += run
        else:
            groups.append(list(run))
        last = bisect_right(starts, run[-1][0])
    outages, other = [], 0
    for parts in groups:
        if not period.first_slot <= parts[0][0] < period.end_slot:
            other += size(parts)
            continue
        counted = _floor_minutes(parts) if contract.minute_rule == "elapsed_floor" else parts
        if counted:
            outages.append(Outage(tuple(parts), tuple(counted)))
    in_period = size(clip(minutes, period.first_slot, period.end_slot))
    long_slots = sum(size(clip(run, period.first_slot, period.end_slot)) for run in kept)
    return Tally(
        tuple(outages),
        outside_clock=size(clip(down, period.first_slot, period.end_slot)) - size(whole),
        outside_minutes=size(whole) - in_period,
        below_minimum=in_period - long_slots,
        outside_period=other,
    )


def _whole_minutes(spans: Spans) -> list[Span]:
    """Clock minutes of UTC that lie wholly in the spans."""
    out = []
    for a, b in spans:
        first, end = -(-a // SLOTS_PER_MINUTE) * SLOTS_PER_MINUTE, b // SLOTS_PER_MINUTE * SLOTS_PER_MINUTE
        if first < end:
            out.append((first, end))
    return out


def _bridge(spans: Spans, gap: int, entitled: Spans) -> list[list[Span]]:
    """Runs whose gaps are at most `gap` slots; never over the edge of an entitlement."""
    out: list[list[Span]] = []
    for span in spans:
        if out and gap:
            end = out[-1][-1][1]
            if span[0] - end <= gap and covers(entitled, end, span[0]):
                out[-1].append(span)
                continue
        out.append([span])
    return out


def _cut(run: list[Span], period: Period) -> list[list[Span]]:
    """The run's pieces before, in and after the period."""
    inside = clip(run, period.first_slot, period.end_slot)
    before = clip(run, run[0][0], period.first_slot) if run[0][0] < period.first_slot else []
    after = clip(run, period.end_slot, run[-1][1]) if run[-1][1] > period.end_slot else []
    return [piece for piece in (before, inside, after) if piece]


def _long_enough(contract: Contract, run: list[Span]) -> bool:
    seconds, least = size(run) * SLOT_S, contract.min_duration_s or 0
    return seconds > least if contract.min_duration_compare == ">" else seconds >= least


def _floor_minutes(parts: list[Span]) -> list[Span]:
    """The parts without the last slots that make no whole minute."""
    over = size(parts) % SLOTS_PER_MINUTE
    out = list(parts)
    while over:
        a, b = out.pop()
        taken = min(over, b - a)
        over -= taken
        if taken < b - a:
            out.append((a, b - taken))
    return out
