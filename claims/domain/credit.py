"""From what a unit lost to what it is owed, by the shape of the contract (contract.md 11 to 15)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction

from claims.domain.contract import Cap, Contract, Minimum
from claims.domain.money import fraction_of, rounded
from claims.domain.outages import Outage
from fleet.domain.slots import SLOT_S

HOUR_S = 3600
SLOTS_PER_HOUR = HOUR_S // SLOT_S


@dataclass(frozen=True, slots=True)
class Basis:
    """What a credit of one unit is computed from.

    `denominator`, `charged`: slots of the percentage and slots over which the fee is spread (entitled, exclusions not
    taken off). `lost`: counted down slots, for a weighted contract the lost slots as a fraction. `free_hours`: clock
    hours that the clock-hour rule makes free. `automatic`: what the provider credited by itself.
    """

    fee: Decimal
    denominator: int
    charged: int
    lost: Fraction
    outages: Sequence[Outage]
    free_hours: int
    automatic: Decimal
    previous_month_spend: Decimal | None = None


@dataclass(frozen=True, slots=True)
class Credit:
    """`percent` of the fee where the shape has one; `exact` before cap and rounding; `amount` after everything.

    `cap_applied`, `minimum_applied`: whether that changed the amount. `detail`: numbers of the shape, by name.
    `subtracted`: automatic credits that were taken off.
    """

    percent: Decimal | None
    exact: Fraction
    amount: Decimal
    cap_applied: bool
    minimum_applied: bool
    detail: tuple[tuple[str, Fraction], ...] = ()
    subtracted: Fraction = Fraction(0)


def credit_of(contract: Contract, basis: Basis) -> Credit:
    """The credit of one unit: shape, cap, automatic credits, minimum, rounding, in this order."""
    base = Fraction(basis.fee)
    if contract.auto_credit_rule == "reduce_base":
        base = max(Fraction(0), base - Fraction(basis.automatic))
    percent, exact, detail = _shape(contract, basis, base)
    amount = exact
    cap = contract.cap
    capped = False
    if isinstance(cap, Cap) and cap.level == "unit":
        most = how_much(cap, Fraction(basis.fee), base, basis.previous_month_spend)
        capped, amount = amount > most, min(amount, most)
    subtracted = Fraction(0)
    if contract.auto_credit_rule == "subtract_from_credit":
        subtracted = min(amount, Fraction(basis.automatic))
        amount -= subtracted
    before = amount
    if isinstance(contract.minimum, Minimum) and contract.minimum.level == "unit":
        least = how_much(contract.minimum, Fraction(basis.fee), base, basis.previous_month_spend)
        amount = apply_minimum(contract.minimum, least, amount)
    return Credit(
        percent,
        exact,
        rounded(amount, contract.rounding, contract.decimals),
        capped,
        amount != before,
        detail,
        subtracted,
    )


def how_much(limit: Cap | Minimum, fee: Fraction, base: Fraction, previous_month_spend: Decimal | None) -> Fraction:
    """The amount of a cap or a minimum: as named, or the share of what it names."""
    if limit.amount is not None:
        return Fraction(limit.amount)
    of = {"fee": fee, "base": base, "previous_month_spend": fraction_of(previous_month_spend)}[limit.share_of]
    return of * fraction_of(limit.percent) / 100


def apply_minimum(minimum: Minimum, least: Fraction, amount: Fraction) -> Fraction:
    """Nothing for a credit up to `least`; or a credit, if there is one, is at least that."""
    if minimum.kind == "nothing_up_to":
        return amount if amount > least else Fraction(0)
    return max(amount, least) if amount > 0 else amount


_Shape = tuple[Decimal | None, Fraction, tuple[tuple[str, Fraction], ...]]


def _shape(contract: Contract, basis: Basis, base: Fraction) -> _Shape:
    if contract.kind in ("tiers", "weighted"):
        percent = Decimal(0)
        if basis.denominator and basis.charged:
            percent = contract.tier_credit(1 - basis.lost / basis.denominator)
        return percent, base * Fraction(percent) / 100, ()
    if contract.kind == "pro_rata":
        return _pro_rata(contract, basis, base)
    if contract.kind == "multiplier":
        hours = basis.lost / SLOTS_PER_HOUR
        price = fraction_of(contract.hourly_price)
        return None, hours * price * fraction_of(contract.multiplier), (("downtime_hours", hours),)
    if contract.kind == "outage_table":
        credit_hours = sum((Fraction(_table_hours(contract, one)) for one in basis.outages), Fraction(0))
        price = fraction_of(contract.hourly_price)
        return None, credit_hours * price, (("credit_hours", credit_hours),)
    if contract.kind == "clock_hour":
        free = Fraction(basis.free_hours)
        return None, free * fraction_of(contract.hourly_price), (("free_hours", free),)
    percent = sum((repair_percent(contract, one.slots * SLOT_S) for one in basis.outages), Decimal(0))
    return percent, base * Fraction(percent) / 100, ()


def _pro_rata(contract: Contract, basis: Basis, base: Fraction) -> _Shape:
    """The fee of the time lost: beyond the allowance, or all of it once the commitment is missed (W11)."""
    if not basis.charged:
        return None, Fraction(0), ()
    allowance = (1 - fraction_of(contract.commitment) / 100) * basis.denominator
    if contract.allowance == "deducted":
        credited = max(Fraction(0), basis.lost - allowance)
    else:
        credited = basis.lost if basis.lost > allowance else Fraction(0)
    detail = (("allowance_slots", allowance), ("credited_slots", credited))
    return None, base * credited / basis.charged, detail


def _table_hours(contract: Contract, outage: Outage) -> Decimal:
    seconds = outage.slots * SLOT_S
    for step in contract.outage_table:
        if step.below_s is None or seconds < step.below_s:
            return step.credit_hours
    raise AssertionError("an outage table ends without a bound")


def repair_percent(contract: Contract, delay_s: int) -> Decimal:
    """Percent for a repair that took so long: full or started periods beyond the limit (W12)."""
    over = delay_s - (contract.limit_s or 0)
    if over <= 0:
        return Decimal(0)
    step = contract.step_s or 1
    periods = over // step if contract.steps == "full" else -(-over // step)
    return periods * (contract.credit_percent_per_step or Decimal(0))
