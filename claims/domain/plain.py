"""A result as plain data for `result.json`: numbers as texts, fractions as n/d, instants as ISO 8601 in UTC.

What a page, a PDF or the other side shows comes from here and nowhere else.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from decimal import Decimal
from fractions import Fraction
from typing import Any

from claims.domain.completeness import Assessment
from claims.domain.incidents import Incident
from claims.domain.money import percent_text
from claims.domain.periods import utc_text
from claims.domain.result import Coverage, Reading, Result, UnitResult
from fleet.domain.slots import SLOT_S, slot_start

PERCENT_DECIMALS = 6


def plain_assessment(assessment: Assessment, found: Mapping[str, Sequence[Incident]] | None = None) -> dict[str, Any]:
    """The status, what is missing, and the result; for an incomplete contract both readings of what is missing."""
    out: dict[str, Any] = {"status": assessment.status, "missing": list(assessment.missing)}
    for name in ("result", "least", "most"):
        result = getattr(assessment, name)
        if result is not None:
            out[name] = plain_result(result, found if name == "result" else None)
    return out


def plain_result(result: Result, found: Mapping[str, Sequence[Incident]] | None = None) -> dict[str, Any]:
    """The result with its units; `found`: each unit's incidents."""
    return {
        "contract": result.contract,
        "contract_version": result.version,
        "period": {
            "kind": result.period.kind,
            "zone": result.period.zone,
            "label": result.period.label,
            "start_utc": utc_text(result.period.start_ms),
            "end_utc": utc_text(result.period.end_ms),
            "first_slot": str(result.period.first_slot),
            "slots": str(result.period.slots),
            "seconds": str(result.period.seconds),
        },
        "status": result.status,
        "currency": result.currency,
        "claim": None if result.claim is None else str(result.claim),
        "claim_rests_on": result.basis,
        "credits": {reading: str(amount) for reading, amount in result.credits.items()},
        "coverage": _coverage(result.coverage),
        "units": [_unit(unit, (found or {}).get(unit.name, ())) for unit in result.units],
    }


def _unit(unit: UnitResult, found: Sequence[Incident]) -> dict[str, Any]:
    against = unit.against
    return {
        "name": unit.name,
        "fee_charged": str(unit.fee),
        "charged_seconds": str(unit.charged_slots * SLOT_S),
        "coverage": _coverage(unit.coverage),
        "covered": unit.covered,
        "readings": {name: _reading(reading) for name, reading in unit.readings.items()},
        "automatic_credits": {
            "taken": str(unit.automatic),
            "source": "estimate" if unit.invoiced is None else "invoice",
            "estimate": str(unit.automatic_estimate),
            "difference": None if unit.automatic_difference is None else str(unit.automatic_difference),
        },
        "against_ourselves_seconds": {
            name: str(getattr(against, name) * SLOT_S)
            for name in (
                "excluded", "excluded_down", "unentitled_down", "outside_clock", "outside_minutes", "below_minimum",
                "outside_period",
            )
        },
        "incidents": [
            {
                "start_utc": utc_text(slot_start(one.first_slot)),
                "end_utc": utc_text(slot_start(one.end_slot)),
                "counted_seconds": str(one.counted_s),
                "reasons": {code: str(seconds) for code, seconds in one.reasons},
                "subjects": list(one.subjects),
            }
            for one in found
        ],
    }  # fmt: skip


def _reading(reading: Reading) -> dict[str, Any]:
    credit = reading.credit
    return {
        "down_seconds": exact(reading.lost * SLOT_S),
        "denominator_slots": str(reading.denominator),
        "uptime": share(reading.uptime),
        "credit_percent": None if credit.percent is None else _decimal(credit.percent),
        "credit_exact": exact(credit.exact),
        "credit": str(credit.amount),
        "cap_applied": credit.cap_applied,
        "minimum_applied": credit.minimum_applied,
        "detail": {name: exact(value) for name, value in credit.detail},
    }


def _coverage(coverage: Coverage) -> dict[str, Any]:
    return {
        "owed_slots": str(coverage.owed),
        "known_slots": str(coverage.known),
        "unknown_by_the_customer_slots": str(coverage.customer),
        "share": share(coverage.share),
    }


def share(value: Fraction | None) -> dict[str, str] | None:
    """`{"exact": "99/100", "percent_floor_6": "99.000000"}`; None where there is no share."""
    if value is None:
        return None
    return {"exact": exact(value), "percent_floor_6": percent_text(value, PERCENT_DECIMALS)}


def exact(value: Fraction) -> str:
    """A whole number, else n/d."""
    return str(value.numerator) if value.denominator == 1 else f"{value.numerator}/{value.denominator}"


def _decimal(value: Decimal) -> str:
    return format(value.normalize(), "f")
