"""Groups of contracts whose credits don't add: per unit and month the better one (contract.md 16)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from claims.domain.classify import READINGS
from claims.domain.result import OK, Result


@dataclass(frozen=True, slots=True)
class Stacked:
    """The claim of a group: per reading the units' better credits added; `chosen`: unit → contract in the lower one."""

    claim: Decimal | None
    credits: dict[str, Decimal]
    chosen: dict[str, str]


def better_credit(results: Sequence[Result]) -> Stacked:
    """The claim of contracts of one stacking group and period; results that are not ok give nothing.

    A cap or minimum that stands on a contract's whole claim was not applied to a unit: such a contract's group total
    never exceeds the sum of the contracts' own claims, which bounds it.
    """
    good = [result for result in results if result.status == OK]
    if not good:
        return Stacked(None, {}, {})
    credits: dict[str, Decimal] = {}
    chosen: dict[str, str] = {}
    names = sorted({unit.name for result in good for unit in result.units})
    for reading in READINGS:
        total = Decimal(0)
        for name in names:
            offers = [
                (unit.readings[reading].credit.amount, result.contract)
                for result in good
                for unit in result.units
                if unit.name == name and unit.covered
            ]
            best = max(offers, key=lambda offer: offer[0], default=(Decimal(0), ""))
            total += best[0]
            if reading == READINGS[0]:
                chosen[name] = best[1]
        credits[reading] = min(total, sum((result.credits[reading] for result in good), Decimal(0)))
    return Stacked(min(credits.values()), credits, chosen)


def better_of_documents(results: Sequence[Mapping[str, Any]]) -> Decimal:
    """The claim of a group from its issued results as plain data (`result.json`, assessment.result)."""
    totals = []
    for reading in READINGS:
        total = Decimal(0)
        for name in {unit["name"] for result in results for unit in result["units"]}:
            offers = [
                Decimal(unit["readings"][reading]["credit"])
                for result in results
                for unit in result["units"]
                if unit["name"] == name and unit["covered"]
            ]
            total += max(offers, default=Decimal(0))
        totals.append(min(total, sum((Decimal(result["credits"][reading]) for result in results), Decimal(0))))
    return min(totals)
