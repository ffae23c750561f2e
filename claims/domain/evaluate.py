"""The result of one contract and one period: `evaluate(contract, inputs)`, a pure function (contract.md).

Each of the three readings goes through all rules to its credit; the claim is the least of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from decimal import Decimal
from fractions import Fraction
from functools import reduce

from claims.domain.classify import LOWER, NOMINAL, READINGS, UPPER, Classifier, UnitSlots, known_share, pauses, windows
from claims.domain.clock_hours import hours_over
from claims.domain.contract import Cap, Contract, Minimum, Unit
from claims.domain.credit import Basis, Credit, apply_minimum, credit_of, how_much
from claims.domain.facts import UNREACHABLE
from claims.domain.lost_nodes import with_parties
from claims.domain.money import rounded
from claims.domain.outages import Tally, tally
from claims.domain.result import (
    INSUFFICIENT_DATA,
    NOT_MEASURABLE,
    OK,
    Against,
    Coverage,
    Inputs,
    Reading,
    Result,
    UnitResult,
)
from claims.domain.rows import Overlays
from claims.domain.spans import clip, intersect, size, subtract
from claims.domain.weighted import lost_slots
from claims.errors import InputsError, NoEntitlement

POOLED = "*"


def evaluate(contract: Contract, inputs: Inputs) -> Result:
    """The contract's result. Every field that its kind needs must be there (see `completeness.assess`).

    Raises NoEntitlement where nothing was owed, InputsError for inputs that contradict the contract.
    """
    inputs = with_parties(inputs)
    overlays = Overlays(inputs.rows)
    looked_at = (
        min(inputs.period.first_slot, inputs.first_slot),
        max(inputs.period.end_slot, inputs.end_slot),
    )
    classifier = Classifier(contract, inputs.facts, overlays, inputs.witnessed, looked_at)
    if not contract.units:
        raise InputsError("The contract names no unit that a percentage is judged by.", "units")
    _refuse_strangers(contract, inputs)
    groups = [
        [_Part(contract, inputs, overlays, classifier.unit(one, unit.name)) for one in _judged(contract, unit)]
        for unit in contract.units
    ]
    parts = [part for group in groups for part in group]
    if not any(part.charged for part in parts):
        raise NoEntitlement(f"Nothing was owed in {inputs.period.label}: no entitlement lies in it.", "entitlement")
    fees = [
        inputs.fees.get(unit.name, Decimal(0) if inputs.fees else contract.fee_charged or Decimal(0))
        for unit in contract.units
    ]
    if contract.pooling == "slots":
        fee = sum(fees, Decimal(0)) if inputs.fees else contract.fee_charged or Decimal(0)
        extra = sum((_extra(contract, inputs, unit) for unit in contract.units), Decimal(0))
        units = [_pooled(contract, inputs, parts, POOLED, fee, extra)]
    else:
        units = [
            _pooled(contract, inputs, group, unit.name, fee, _extra(contract, inputs, unit))
            if unit.members and not contract.binary
            else group[0].result(fee)
            for unit, group, fee in zip(contract.units, groups, fees, strict=True)
        ]
    return _total(contract, inputs, parts, units)


def _refuse_strangers(contract: Contract, inputs: Inputs) -> None:
    """Raise InputsError for a fee or an automatic credit of something that the contract does not cover."""
    units = {unit.name for unit in contract.units}
    known = units | {name for unit in contract.units for name in unit.members}
    for name in inputs.fees:
        if name not in units:
            raise InputsError(f"There is a fee for {name}, which is no unit of {contract.name}.", "fees")
    for row in inputs.automatic:
        if row.unit not in known:
            raise InputsError(
                f"There is an automatic credit for {row.unit}, which {contract.name} does not cover.", "automatic"
            )


def _extra(contract: Contract, inputs: Inputs, unit: Unit) -> Decimal:
    """Automatic credits of a unit whose members are judged one by one."""
    if contract.binary or not unit.members:
        return Decimal(0)
    return sum((row.amount for row in inputs.automatic if row.unit == unit.name), Decimal(0))


def _judged(contract: Contract, unit: Unit) -> list[Unit]:
    """What is up or down by itself: the unit; in a weighted contract each of its members."""
    return [unit] if contract.binary or not unit.members else [Unit(name) for name in unit.members]


class _Part:
    """One unit's slots and tallies of all readings."""

    def __init__(self, contract: Contract, inputs: Inputs, overlays: Overlays, slots: UnitSlots) -> None:
        self.contract, self.inputs, self.slots = contract, inputs, slots
        period = inputs.period
        edges = (period.first_slot, period.end_slot)
        entitled = clip(slots.entitled, *edges)
        excluded = intersect(slots.excluded, entitled)
        self.charged = size(entitled)
        self.excluded = size(excluded)
        removed = contract.exclusion_mode == "removed_from_denominator"
        self.owed = subtract(entitled, excluded) if removed else entitled
        full = contract.denominator == "full_month" and contract.binary
        self.denominator = period.slots - size(excluded) * removed if full else size(self.owed)
        self.known, self.owed_slots = known_share(self.owed, slots.slots.unknown)
        self.unknown = self.owed_slots - self.known
        self.customer_unknown = size(intersect(slots.slots.customer_unknown, self.owed))
        stopped = pauses(contract, overlays, slots)
        self.lost: dict[str, Fraction] = {}
        self.tallies: dict[str, Tally] = {}
        for reading in READINGS:
            down = slots.slots.down(reading)
            kept = subtract(windows(contract, overlays, slots, down, reading), stopped)
            if contract.binary:
                self.tallies[reading] = tally(contract, period, down, kept, slots.entitled)
                self.lost[reading] = Fraction(self.tallies[reading].slots)
            else:
                self.lost[reading] = lost_slots(contract, inputs, overlays, slots, clip(kept, *edges), reading)
        self.estimate = self._estimate()
        covered = {slots.unit.name, *slots.unit.members}
        invoiced = [row.amount for row in inputs.automatic if row.unit in covered]
        self.invoiced = sum(invoiced, Decimal(0)) if inputs.automatic or inputs.invoice_complete else None
        self.automatic = self.estimate if self.invoiced is None else self.invoiced

    def denominator_of(self, reading: str) -> int:
        """Slots of the percentage: the nominal reading leaves the unknown ones out (contract.md 5)."""
        return self.denominator - self.unknown if reading == NOMINAL else self.denominator

    def free_hours(self, reading: str) -> int:
        """Clock hours that the contract's rule makes free; each unit's hours stand by themselves."""
        rule = self.contract.clock_hour_rule
        if rule is None or reading not in self.tallies:
            return 0
        return len(hours_over(rule, self.tallies[reading].spans))

    def _estimate(self) -> Decimal:
        """Automatic credits as the clock-hour rule would give them, from the lower reading; an estimate."""
        if self.contract.kind == "clock_hour":
            return Decimal(0)
        return self.free_hours(LOWER) * (self.contract.hourly_price or Decimal(0))

    def result(self, fee: Decimal) -> UnitResult:
        """The unit's own percentage and credit."""
        spend = self.inputs.previous_month_spend
        readings = {}
        for reading in READINGS:
            outages = self.tallies[reading].outages if self.tallies else ()
            basis = Basis(
                fee,
                self.denominator_of(reading),
                self.charged,
                self.lost[reading],
                outages,
                self.free_hours(reading),
                self.automatic,
                spend,
            )
            credit = credit_of(self.contract, basis)
            readings[reading] = _reading(self.denominator_of(reading), self.lost[reading], credit)
        tally_lower = self.tallies.get(LOWER)
        covered = Coverage(self.known, self.owed_slots, self.customer_unknown)
        return UnitResult(
            self.slots.unit.name,
            readings,
            covered,
            _covered(self.contract, covered),
            fee,
            self.charged,
            self.automatic,
            self.estimate,
            self.invoiced,
            tally_lower.outages if tally_lower else (),
            self.against(tally_lower),
        )

    def against(self, lower: Tally | None) -> Against:
        """What was taken away from the claim, in slots of the period."""
        period, slots = self.inputs.period, self.slots
        edges = (period.first_slot, period.end_slot)
        taken = Against(
            self.excluded, size(clip(slots.down_excluded, *edges)), size(clip(slots.down_unentitled, *edges))
        )
        if lower is None:
            return taken
        return replace(
            taken,
            outside_clock=lower.outside_clock,
            outside_minutes=lower.outside_minutes,
            below_minimum=lower.below_minimum,
            outside_period=lower.outside_period,
        )


def _reading(denominator: int, lost: Fraction, credit: Credit) -> Reading:
    uptime = None if denominator <= 0 else 1 - lost / denominator
    return Reading(denominator, lost, uptime, credit)


def _pooled(
    contract: Contract, inputs: Inputs, parts: Sequence[_Part], name: str, fee: Decimal, extra: Decimal
) -> UnitResult:
    """Parts pooled by seconds: one percentage, one fee (contract.md 8). `extra`: automatic credits of no part."""
    charged = sum(part.charged for part in parts)
    automatic = sum((part.automatic for part in parts), extra)
    owing = [part for part in parts if part.charged]
    readings = {}
    for reading in READINGS:
        denominator = sum(part.denominator_of(reading) for part in owing)
        lost = sum((part.lost[reading] for part in parts), Fraction(0))
        outages = [one for part in parts if part.tallies for one in part.tallies[reading].outages]
        free = sum(part.free_hours(reading) for part in parts)
        basis = Basis(fee, denominator, charged, lost, outages, free, automatic, inputs.previous_month_spend)
        readings[reading] = _reading(denominator, lost, credit_of(contract, basis))
    single = [part.result(Decimal(0)) for part in parts]
    covered = Coverage(
        sum(part.known for part in parts),
        sum(part.owed_slots for part in parts),
        sum(part.customer_unknown for part in parts),
    )
    invoiced = [part.invoiced for part in parts if part.invoiced is not None]
    return UnitResult(
        name,
        readings,
        covered,
        _covered(contract, covered),
        fee,
        charged,
        automatic,
        sum((part.estimate for part in parts), Decimal(0)),
        sum(invoiced, extra) if invoiced else None,
        tuple(one for result in single for one in result.outages),
        reduce(Against.plus, (result.against for result in single)),
    )


def _covered(contract: Contract, coverage: Coverage) -> bool:
    """Whether enough is known: at least the contract's minimum coverage, and anything at all."""
    if coverage.owed == 0:
        return True
    if coverage.known == 0:
        return False
    least = contract.minimum_coverage_percent
    return least is None or Fraction(coverage.known, coverage.owed) * 100 >= Fraction(least)


def _total(contract: Contract, inputs: Inputs, parts: Sequence[_Part], units: list[UnitResult]) -> Result:
    coverage = Coverage(
        sum(part.known for part in parts),
        sum(part.owed_slots for part in parts),
        sum(part.customer_unknown for part in parts),
    )
    sums: Mapping[str, Decimal] = {
        reading: claim_level(
            contract,
            [unit.readings[reading].credit for unit in units if unit.covered],
            [unit.fee for unit in units],
            sum((unit.automatic for unit in units), Decimal(0)),
            inputs.previous_month_spend,
        )
        for reading in READINGS
    }
    status = OK
    if not _covered(contract, coverage):
        status = NOT_MEASURABLE if set(contract.counts) == {UNREACHABLE} else INSUFFICIENT_DATA
    claim = min(sums.values()) if status == OK else None
    basis = next(reading for reading in READINGS if sums[reading] == min(sums.values()))
    return Result(
        contract.name,
        contract.version,
        contract.currency,
        inputs.period,
        status,
        claim,
        basis,
        dict(sums),
        tuple(units),
        coverage,
        inputs.fees == {} and contract.fee_charged is None,
    )


def claim_level(
    contract: Contract, credits: Sequence[Credit], fees: Sequence[Decimal], automatic: Decimal, spend: Decimal | None
) -> Decimal:
    """The units' credits added, then a cap and a minimum that stand on the claim or the period (contract.md 14).

    Automatic credits come off after the cap, wherever it stands: what the provider has credited already is paid out of
    the same cap.
    """
    total = Fraction(sum((credit.amount for credit in credits), Decimal(0)))
    fee = base = Fraction(sum(fees, Decimal(0)))
    if contract.auto_credit_rule == "reduce_base":
        base = max(Fraction(0), fee - Fraction(automatic))
    if isinstance(contract.cap, Cap) and contract.cap.level != "unit":
        most = how_much(contract.cap, fee, base, spend) - sum((credit.subtracted for credit in credits), Fraction(0))
        total = min(total, max(Fraction(0), most))
    if isinstance(contract.minimum, Minimum) and contract.minimum.level != "unit":
        total = apply_minimum(contract.minimum, how_much(contract.minimum, fee, base, spend), total)
    return rounded(total, contract.rounding, contract.decimals)


__all__ = ["LOWER", "NOMINAL", "POOLED", "UPPER", "claim_level", "evaluate"]
