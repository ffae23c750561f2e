"""Limits that somebody set below what a board is delivered with: told beside a verdict, never part of one.

Who set them, the renter or the provider (application clocks: perhaps the maker), no sample says: the party is
ambiguous, and they lower nothing (review of the weights). Pure functions.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from fleet.domain.skus import sku

if TYPE_CHECKING:
    from fleet.domain.facts import Gpu
    from fleet.domain.rules import Rules

POWER_LIMIT, APPLICATION_CLOCKS = "POWER_LIMIT", "APPLICATION_CLOCKS"


@dataclass(frozen=True, slots=True)
class Lowered:
    """A limit below the default, as a sample shows it: the reason's code, and what was read."""

    code: str
    words: str


def lowered(gpu: Gpu, rules: Rules) -> tuple[Lowered, ...]:
    """The limits of a GPU that stand below their default in this sample; none where the default is not known."""
    found = []
    default, limit = sku(gpu.name).power, gpu.power_limit
    if default and limit is not None and 0 < limit < default:
        found.append(Lowered(POWER_LIMIT, f"{limit / 1000:.0f} of {default / 1000:.0f} W"))
    clocks = rules.of(APPLICATION_CLOCKS)
    if clocks is not None and (gpu.throttle_reasons or 0) & clocks.mask:
        at = f" at {gpu.sm_clock} of {gpu.sm_clock_max} MHz" if gpu.sm_clock and gpu.sm_clock_max else ""
        found.append(Lowered(APPLICATION_CLOCKS, f"set by somebody{at}"))
    return tuple(found)
