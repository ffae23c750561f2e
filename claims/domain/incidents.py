"""Counted outages as incidents: when, how long, why. Each counted slot goes to one reason, so the parts add up."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from claims.domain.classify import eligible, party_counts
from claims.domain.contract import Contract, Unit
from claims.domain.facts import CATEGORIES, WITNESS_CODES, Standing, ancestors
from claims.domain.outages import Outage
from claims.domain.result import Inputs
from claims.domain.spans import Span, Spans, intersect, normalise, size, subtract
from fleet.domain.slots import SLOT_S

#: Which category names a slot first, whatever the order of arrival (sla.md trap 5).
PRECEDENCE = ("hardware_failure", "unreachable", "firmware", "network", "degraded")


@dataclass(frozen=True, slots=True)
class Incident:
    """One counted outage of the lower reading: from its first to after its last counted slot, `counted_s` seconds of
    them counted in the period; `reasons`: seconds per primary reason, they add up to `counted_s`.
    """

    first_slot: int
    end_slot: int
    counted_s: int
    reasons: tuple[tuple[str, int], ...]
    subjects: tuple[str, ...]


def incidents(contract: Contract, inputs: Inputs, unit: Unit, outages: Sequence[Outage]) -> list[Incident]:
    """The unit's counted outages with their reasons, by a fixed precedence: category, weight, code.

    `inputs`: with the parties that a second pass gives (`lost_nodes.with_parties`), as `evaluate` sees them.
    """
    assert set(PRECEDENCE) == set(CATEGORIES)
    names = dict.fromkeys(name for one in (unit.name, *unit.members) for name in ancestors(one))
    return [_incident(contract, inputs, list(names), outage) for outage in outages]


def _incident(contract: Contract, inputs: Inputs, names: Sequence[str], outage: Outage) -> Incident:
    first, end = outage.counted[0][0], outage.counted[-1][1]
    by_reason: dict[tuple[int, int, str], list[Span]] = {}
    touched: dict[str, None] = {}
    for name in names:
        for run in inputs.facts.get(name, ()):
            if run.end_slot <= first or run.first_slot >= end:
                continue
            for reason in run.facts.reasons:
                counts = reason.standing in (Standing.CERTAIN, Standing.HELD) or reason.code in WITNESS_CODES
                if counts and eligible(contract, reason) and party_counts(contract, reason):
                    key = (PRECEDENCE.index(reason.category), reason.weight, reason.code)
                    by_reason.setdefault(key, []).append((run.first_slot, run.end_slot))
                    touched[name] = None
    left: Spans = outage.counted
    reasons = []
    for key in sorted(by_reason):
        part = intersect(left, normalise(by_reason[key]))
        if part:
            reasons.append((key[2], size(part) * SLOT_S))
            left = subtract(left, part)
    return Incident(first, end, outage.slots * SLOT_S, tuple(reasons), tuple(touched))
