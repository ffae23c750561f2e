"""Money: exact fractions until the unit's final credit, then one rounding (contract.md 13 to 15)."""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction
from math import ceil, floor


def rounded(amount: Fraction, mode: str, decimals: int) -> Decimal:
    """The amount with so many decimals: floor, half_up, half_even or ceiling."""
    scaled = amount * 10**decimals
    if mode == "floor":
        whole = floor(scaled)
    elif mode == "ceiling":
        whole = ceil(scaled)
    elif mode == "half_even":
        whole = round(scaled)
    else:
        whole = floor(scaled + Fraction(1, 2))
    return Decimal(whole).scaleb(-decimals)


def percent_text(share: Fraction | None, decimals: int = 4) -> str:
    """The share as a percentage for display, floored: 0.99899884 → '99.8998' (sla.md trap 14); None → ''."""
    if share is None:
        return ""
    whole = floor(share * 100 * 10**decimals)
    sign = "-" if whole < 0 else ""
    left, right = divmod(abs(whole), 10**decimals)
    return f"{sign}{left}.{right:0{decimals}d}" if decimals else f"{sign}{left}"


def fraction_of(amount: Decimal | None) -> Fraction:
    """The exact fraction; 0 for None."""
    return Fraction(0) if amount is None else Fraction(amount)
