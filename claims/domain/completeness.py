"""Whether a contract says enough for a period: a missing field matters when any allowed value gives another tier or
another cent; zone, clock start, unit, fee and min_healthy always matter (contract.md 9).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any

from claims.domain import contract as terms
from claims.domain.contract import HOURLY, NONE, Cap, Contract, Minimum
from claims.domain.evaluate import evaluate
from claims.domain.result import INCOMPLETE, Inputs, Result
from claims.domain.rows import EXCLUSIONS

#: Long enough to drop, or to join, every run of a year.
ENDLESS_S = 366 * 86_400
_NOTHING = Cap("claim", amount=Decimal(0))
_UNREACHED = Minimum("nothing_up_to", "claim", amount=Decimal(10) ** 15)


@dataclass(frozen=True, slots=True)
class Assessment:
    """`result` where the contract is complete; else the fields that matter and both readings of what is missing:
    each missing field at its value that gives the least, and at the one that gives the most.
    """

    status: str
    missing: tuple[str, ...]
    result: Result | None
    least: Result | None
    most: Result | None


def missing_fields(contract: Contract, inputs: Inputs) -> dict[str, tuple[Any, ...]]:
    """The fields that the contract does not say and its kind needs, each with the values to try, least first."""
    out: dict[str, tuple[Any, ...]] = {}

    def need(name: str, *values: Any) -> None:
        if getattr(contract, name) is None:
            out[name] = values

    need("zone")
    need("clock_start", "acknowledgement", "ticket", "measured")
    need("pooling", *terms.POOLINGS)
    need("ambiguous_counts", False, True)
    for what in sorted(_asked_owners(contract, inputs)):
        need(f"owns_{what}", False, True)
    need("exclusion_mode", *terms.EXCLUSION_MODES)
    if any(row.kind in EXCLUSIONS for row in inputs.rows):
        need("excludes", EXCLUSIONS, ())
    need("cap", _NOTHING, NONE)
    need("minimum", _UNREACHED, NONE)
    if contract.binary:
        need("denominator", *terms.DENOMINATORS)
        need("min_duration_s", ENDLESS_S, 0)
        need("bridging_s", 0, ENDLESS_S)
        need("minute_rule", "clock_minute", "elapsed_floor", "slots")
        if contract.min_duration_s != 0:
            need("min_duration_compare", ">", ">=")
            need("min_duration_test", *reversed(terms.MIN_DURATION_TESTS))
        if any(unit.members and contract.required(unit) is None for unit in contract.units):
            most = min(len(unit.members) for unit in contract.units if unit.members)
            out["min_healthy"] = (1, most)
    if contract.fee_charged is None and any(unit.name not in inputs.fees for unit in contract.units):
        out["fee_charged"] = (Decimal(0),)
    if any(row.pauses for row in inputs.rows):
        need("stop_clock", True, False)
    if contract.kind in HOURLY or contract.clock_hour_rule is not None:
        need("hourly_price")
    if contract.kind == "pro_rata":
        need("allowance", *terms.ALLOWANCES)
    if contract.kind == "repair_time":
        need("steps", *terms.STEPS)
    if inputs.automatic or (contract.clock_hour_rule is not None and contract.kind != "clock_hour"):
        need("auto_credit_rule", *terms.AUTO_CREDIT_RULES)
    return out


def _asked_owners(contract: Contract, inputs: Inputs) -> set[str]:
    """What a counted reason of these facts is the infrastructure's only with: `driver`, `fabric`."""
    return {
        reason.owner
        for runs in inputs.facts.values()
        for run in runs
        for reason in run.facts.reasons
        if reason.owner and reason.party in ("infrastructure", "ambiguous") and reason.category in contract.counts
    }


ALWAYS = ("zone", "clock_start", "pooling", "fee_charged", "min_healthy", "hourly_price")


def assess(contract: Contract, inputs: Inputs) -> Assessment:
    """The result, or what is missing with both readings. Raises what `evaluate` raises."""
    missing = missing_fields(contract, inputs)
    if not missing:
        result = evaluate(contract, inputs)
        return Assessment(result.status, (), result, None, None)
    matters = {name for name in missing if name in ALWAYS}
    # No draft without an hour's price; a zone does not move the arithmetic of a given period.
    if "hourly_price" in missing:
        return Assessment(INCOMPLETE, tuple(sorted(missing)), None, None, None)
    open_fields = {name: values for name, values in missing.items() if values}
    low = _with(contract, {name: values[0] for name, values in open_fields.items()})
    high = _with(contract, {name: values[-1] for name, values in open_fields.items()})
    results = {id(low): evaluate(low, inputs), id(high): evaluate(high, inputs)}
    least, most = results[id(low)], results[id(high)]
    for name, values in open_fields.items():
        for base, result in ((low, least), (high, most)):
            for value in values:
                if value == getattr(base, name):
                    continue
                other = evaluate(_with(base, {name: value}), inputs)
                if _money(other) != _money(result):
                    matters.add(name)
                if _rank(other) < _rank(least):
                    least = other
                if _rank(other) > _rank(most):
                    most = other
    if _money(least) != _money(most) and not matters:
        matters = set(open_fields)
    if matters:
        return Assessment(INCOMPLETE, tuple(sorted(matters)), None, least, most)
    return Assessment(least.status, (), least, None, None)


def _with(contract: Contract, values: Mapping[str, Any]) -> Contract:
    return replace(contract, **values)


def _money(result: Result) -> tuple[Any, ...]:
    """What must not move: status, every reading's credit, every unit's tier."""
    tiers = tuple(reading.credit.percent for unit in result.units for reading in unit.readings.values())
    return result.status, tuple(result.credits.values()), tiers


def _rank(result: Result) -> tuple[Decimal, Decimal]:
    return result.claim or Decimal(0), max(result.credits.values())
