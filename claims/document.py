"""result.json: one computation as plain data. Whatever a page, a PDF, the API or a pack shows comes from here.

Pure, and standard library only: the offline verifier runs this very code.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from typing import Any

from claims.domain.completeness import assess
from claims.domain.contract import Contract as Terms
from claims.domain.contract import Unit
from claims.domain.deadlines import claim_ticket, windows
from claims.domain.evaluate import POOLED
from claims.domain.facts import ancestors
from claims.domain.incidents import Incident, incidents
from claims.domain.lost_nodes import with_parties
from claims.domain.periods import Period, local_midnight_ms, utc_text, zone_of
from claims.domain.plain import plain_assessment, share
from claims.domain.projection import if_nothing_more_happens
from claims.domain.result import Inputs, Result
from claims.domain.rows import ENTITLEMENT, Overlays
from claims.domain.spans import Span, Spans, clip, intersect, normalise, size, subtract
from claims.domain.weighted import capability
from fleet.domain.slots import SLOT_MS, SLOT_S

FORMAT = "goodput-report/1"


def document_of(
    terms: Terms, inputs: Inputs, head: Mapping[str, str], overlays: list[Any], is_simulated: bool, now_ms: int
) -> dict[str, Any]:
    """The computation of a month: over when it is over, so far with a projection while it runs.

    `head`: name, version, digest, valid_from and cluster of the contract; `overlays`: the rows as they are shown.
    Raises what the arithmetic raises: NoEntitlement, InputsError.
    """
    given = inputs
    whole = inputs.period
    now_slot = now_ms // SLOT_MS
    is_over = now_slot >= whole.end_slot
    if not is_over:
        end_ms = max(whole.start_ms + SLOT_MS, now_slot * SLOT_MS)
        inputs = replace(inputs, period=Period(whole.kind, whole.zone, whole.label, whole.start_ms, end_ms))
    assessment = assess(terms, inputs)
    result = assessment.result
    found = {} if result is None else incidents_of(terms, inputs, result)
    out: dict[str, Any] = {
        "format": FORMAT,
        "is_simulated": is_simulated,
        "is_over": is_over,
        "contract": about(terms, head),
        "assessment": plain_assessment(assessment, found),
        "capability": plain_capability(terms, inputs),
        "days": days_of(terms, inputs, result),
        "overlays": overlays,
        "whole_period": {"start_utc": utc_text(whole.start_ms), "end_utc": utc_text(whole.end_ms)},
        "deadlines": [
            {
                "about": one.about,
                "opens_utc": utc_text(one.opens_ms),
                "closes_utc": None if one.closes_ms is None else utc_text(one.closes_ms),
                "why": one.why,
            }
            for one in windows(terms, whole, found)
        ],
    }
    if not is_over:
        ahead = if_nothing_more_happens(given, now_slot, _subjects(terms))
        out["projection"] = plain_assessment(assess(terms, ahead))
    elif result is not None:
        ticket = claim_ticket(terms, result, found, {})
        out["ticket"] = {"subject": ticket.subject, "body": ticket.body, "missing": list(ticket.missing)}
    return out


def about(terms: Terms, head: Mapping[str, str]) -> dict[str, Any]:
    """The contract in words that a report's head needs."""
    return {
        **head,
        "provider": terms.provider,
        "customer": terms.customer,
        "source": terms.source,
        "kind": terms.kind,
        "scope": terms.scope,
        "counts": list(terms.counts),
        "min_healthy": None if terms.min_healthy is None else str(terms.min_healthy),
        "tiers": [[str(tier.below), str(tier.credit)] for tier in terms.tiers],
        "filing_channel": terms.filing_channel,
        "claim_deadline": terms.claim_deadline,
        "evidence": list(terms.evidence),
        "denominator": terms.denominator,
    }


def incidents_of(terms: Terms, inputs: Inputs, result: Result) -> dict[str, list[Incident]]:
    """Each unit's counted outages with their reasons."""
    inputs = with_parties(inputs)
    units = {unit.name: unit for unit in terms.units}
    everything = tuple(dict.fromkeys(name for unit in terms.units for name in (unit.name, *unit.members)))
    units[POOLED] = Unit(POOLED, everything)
    return {
        one.name: incidents(terms, inputs, units[one.name], one.outages) for one in result.units if one.name in units
    }


def _subjects(terms: Terms) -> list[str]:
    names = (name for unit in terms.units for one in (unit.name, *unit.members) for name in ancestors(one))
    return list(dict.fromkeys(names))


def gpus_of(terms: Terms, facts: Mapping[str, Sequence[Any]]) -> dict[str, str]:
    """GPU → unit: every GPU that the contract names, and those of a node that it names whole."""
    out: dict[str, str] = {}
    for unit in terms.units:
        for name in (unit.name, *unit.members):
            if "/" in name:
                out.setdefault(name, unit.name)
            else:
                out.update({one: unit.name for one in sorted(facts) if one.startswith(f"{name}/") and one not in out})
    return out


def owed_of(terms: Terms, inputs: Inputs) -> dict[str, Spans]:
    """Each GPU's entitled slots of the period."""
    overlays = Overlays(inputs.rows)
    edges = (inputs.period.first_slot, inputs.period.end_slot)
    out: dict[str, Spans] = {}
    for gpu, unit in gpus_of(terms, inputs.facts).items():
        rows = overlays.rows(ENTITLEMENT, gpu) or overlays.rows(ENTITLEMENT, unit)
        out[gpu] = clip(normalise(row.span for row in rows), *edges)
    return out


def plain_capability(terms: Terms, inputs: Inputs) -> dict[str, Any]:
    """The capability availability over the GPUs that the contract owes, with both bounds."""
    owed = owed_of(terms, inputs)
    found = capability(inputs.facts, owed)
    return {
        "gpus": str(len(owed)),
        "availability": share(found.availability),
        "best": share(found.best),
        "worst": share(found.worst),
        "owed_gpu_seconds": str(found.owed * SLOT_S),
        "known_gpu_seconds": str(found.known * SLOT_S),
        "lost_gpu_seconds_hundredths": str((100 * found.known - found.nominal) * SLOT_S),
    }


def days_of(terms: Terms, inputs: Inputs, result: Result | None) -> list[dict[str, str]]:
    """Each local day of the period: seconds owed, counted (lower reading) and unknown, summed over the units."""
    period = inputs.period
    zone = terms.zone or "UTC"
    counted = [] if result is None else [one.counted for unit in result.units for one in unit.outages]
    known, owed = [], list(owed_of(terms, inputs).items())
    for gpu, _ in owed:
        known.append([(run.first_slot, run.end_slot) for run in inputs.facts.get(gpu, ()) if not run.facts.blind])
    missing = [subtract(spans, normalise(seen)) for (_, spans), seen in zip(owed, known, strict=True)]
    out = []
    for day, first, end in local_days(period, zone):
        span: list[Span] = [(first, end)]
        out.append(
            {
                "day": day.isoformat(),
                "seconds": str((end - first) * SLOT_S),
                "counted_seconds": str(sum(size(intersect(parts, span)) for parts in counted) * SLOT_S),
                "owed_gpu_seconds": str(sum(size(intersect(spans, span)) for _, spans in owed) * SLOT_S),
                "unknown_gpu_seconds": str(sum(size(intersect(spans, span)) for spans in missing) * SLOT_S),
            }
        )
    return out


def local_days(period: Period, zone: str) -> list[tuple[date, int, int]]:
    """(day, first slot, end slot) of the period's local days, clipped to it."""
    at = datetime.fromtimestamp(period.start_ms / 1000, UTC).astimezone(zone_of(zone)).date()
    out = []
    while (start := local_midnight_ms(at, zone)) < period.end_ms:
        following = at + timedelta(days=1)
        first = max(start, period.start_ms) // SLOT_MS
        end = min(local_midnight_ms(following, zone), period.end_ms) // SLOT_MS
        if first < end:
            out.append((at, first, end))
        at = following
    return out
