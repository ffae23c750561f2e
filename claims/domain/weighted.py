"""Weighted contracts and the capability availability: sums of weights over slots (contract.md 7, architecture 6)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from claims.domain.classify import LOWER, NOMINAL, UPPER, UnitSlots, eligible, party_counts
from claims.domain.contract import Contract
from claims.domain.facts import WITNESS_CODES, FactRun, Facts, Standing, ancestors
from claims.domain.result import Inputs
from claims.domain.rows import RECORD, TICKET, Overlays
from claims.domain.spans import Span, Spans, clip, intersect, normalise, size, subtract


def lost_slots(
    contract: Contract, inputs: Inputs, overlays: Overlays, unit: UnitSlots, kept: Spans, reading: str
) -> Fraction:
    """Slots lost in a reading: Σ (100 − weight) / 100 over the kept slots (in the clock, in the period).

    A slot weighs the least weight of its counted reasons, 100 without one. Unknown is 0 lost in the lower reading,
    wholly lost in the upper one. The unit is one subject and what it lies in: members are added by `evaluate`.
    """
    if not kept:
        return Fraction(0)
    by_weight: dict[int, list[Span]] = {}
    for name in ancestors(unit.unit.name):
        records = normalise(row.span for kind in (RECORD, TICKET) for row in overlays.rows(kind, name))
        provider = normalise(row.span for row in overlays.rows(RECORD, name) if row.provider_word)
        for run in inputs.facts.get(name, ()):
            for weight, spans in _weights(contract, run, reading, records, provider):
                if weight < 100:
                    by_weight.setdefault(weight, []).extend(spans)
    if reading == UPPER:
        by_weight.setdefault(0, []).extend(unit.slots.unknown)
    left: Spans = kept
    lost = 0
    for weight in sorted(by_weight):
        spans = intersect(left, normalise(by_weight[weight]))
        lost += (100 - weight) * size(spans)
        left = subtract(left, spans)
    return Fraction(lost, 100)


def _weights(
    contract: Contract, run: FactRun, reading: str, records: Spans, provider: Spans
) -> Iterable[tuple[int, list[Span]]]:
    whole = [(run.first_slot, run.end_slot)]
    for reason in run.facts.reasons:
        if not eligible(contract, reason):
            continue
        if reading == UPPER:
            yield reason.weight, whole
            continue
        if not party_counts(contract, reason):
            continue
        bad = reason.standing is Standing.CERTAIN or (
            reading == NOMINAL and reason.standing in (Standing.EDGE_BAD, Standing.HELD)
        )
        if bad:
            yield reason.weight, whole
        elif reason.standing is Standing.HELD:
            yield reason.weight, intersect(whole, records)
        elif reason.code in WITNESS_CODES:
            yield reason.weight, intersect(whole, provider)


@dataclass(frozen=True, slots=True)
class Capability:
    """Sums of weight (0..100) × slots over what was owed, for the capability availability."""

    owed: int
    known: int
    nominal: int
    lower: int
    upper: int

    @property
    def availability(self) -> Fraction | None:
        """Weight over the known slots; None where nothing is known."""
        return Fraction(self.nominal, 100 * self.known) if self.known else None

    @property
    def best(self) -> Fraction | None:
        """Over the owed slots, in the reading with the lower loss (unknown is 100)."""
        return Fraction(self.lower, 100 * self.owed) if self.owed else None

    @property
    def worst(self) -> Fraction | None:
        """Over the owed slots, in the reading with the higher loss (unknown is 0)."""
        return Fraction(self.upper, 100 * self.owed) if self.owed else None


def capability(facts: Mapping[str, Sequence[FactRun]], owed: Mapping[str, Spans]) -> Capability:
    """The capability of the GPUs named in `owed`, over the slots in which they were owed; gaps are unknown."""
    total = [0, 0, 0, 0, 0]
    for name, spans in owed.items():
        slots = size(spans)
        seen = 0
        for first, end, fact in facts.get(name, ()):
            count = size(clip(spans, first, end))
            if count:
                seen += count
                total[1] += count * (not fact.blind)
                _add(total, fact, count)
        total[0] += slots
        total[3] += 100 * (slots - seen)
    return Capability(*total)


def _add(total: list[int], facts: Facts, slots: int) -> None:
    total[2] += (facts.nominal or 0) * slots
    total[3] += facts.lower * slots
    total[4] += facts.upper * slots


__all__ = ["LOWER", "NOMINAL", "UPPER", "Capability", "capability", "lost_slots"]
