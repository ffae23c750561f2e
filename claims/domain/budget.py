"""How much of a month's downtime budget is used: which step of the credit a unit crosses next, and after how long.

Everything is read off the month's document (result.json): its projection is the month as it ends if nothing more
happens, so what is counted there and its divisor are the whole month's. The lower reading decides, as for a claim:
nobody is woken by time of which nothing is known.

Example (tests): October 2026 in Europe/Berlin has 2,682,000 s. Below 99.5 % lies what lost more than 13,410 s. A node
that lost 10,800 s has 2,610 s left: 80 % of the budget is used, and the step is near.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from math import floor
from typing import Any

from claims.domain.contract import Contract as Terms
from fleet.domain.slots import SLOT_S

#: A step is near once this share is used of what lies between it and the step before.
NEAR = Fraction(3, 4)
#: Below this share what was told as near is taken back: far enough from NEAR that a figure that sways tells nothing.
FAR = Fraction(1, 2)
#: Drafts are computed hourly. Who is down now and would cross a step before the next one is near it whatever is used.
LOOK_S = 3600


@dataclass(frozen=True, slots=True)
class Step:
    """Uptime strictly below `below` percent gives `credit`, in words. `allowed_s`: counted seconds that don't cross."""

    below: str
    credit: str
    allowed_s: Fraction


@dataclass(frozen=True, slots=True)
class Budget:
    """A unit's month. `uptime`: in per cent, of the whole month if nothing more happens. `ahead`: the next step, None
    after the last; `left_s`: whole seconds that may still count without crossing it. `is_down`: it counts right now.
    """

    unit: str
    uptime: Fraction
    counted_s: Fraction
    crossed: tuple[Step, ...]
    ahead: Step | None
    left_s: int
    used: Fraction
    is_down: bool
    parts: int

    def could_cross_within(self, seconds: int) -> bool:
        """Whether the next step may be crossed before so many seconds are over: all parts down all the time."""
        return self.ahead is not None and self.left_s < seconds * self.parts

    @property
    def is_near(self) -> bool:
        """Whether people want to hear of the step ahead."""
        return self.ahead is not None and (self.used >= NEAR or (self.is_down and self.could_cross_within(LOOK_S)))

    @property
    def is_far(self) -> bool:
        """Whether nothing of it is worth telling any more."""
        return not self.crossed and self.used < FAR

    @property
    def marks(self) -> list[str]:
        """What of it is told once a month: `99.5 crossed`, `99 near`. Who crossed a step was near it."""
        out = [f"{self.unit} {step.below} {what}" for step in self.crossed for what in ("near", "crossed")]
        if self.ahead is not None and self.is_near:
            out.append(f"{self.unit} {self.ahead.below} near")
        return out


def budgets(terms: Terms, document: Mapping[str, Any]) -> list[Budget]:
    """Each unit's budget in a month that runs, the nearest to its next step first; none for a shape without steps, a
    contract that is incomplete, and a unit of which too little is known to owe anything.
    """
    ahead = document.get("projection", {}).get("result")
    if ahead is None or not (terms.tiers or terms.commitment is not None):
        return []
    now = document["assessment"].get("result") or {"units": (), "period": {"end_utc": ""}}
    until = now["period"]["end_utc"]
    down = {one["name"] for one in now["units"] for run in one["incidents"] if run["end_utc"] == until}
    whole = int(ahead["period"]["seconds"])
    found = [_budget(terms, unit, unit["name"] in down, whole) for unit in ahead["units"] if unit["covered"]]
    return sorted((one for one in found if one is not None), key=lambda one: (-len(one.crossed), -one.used, one.unit))


def _budget(terms: Terms, unit: Mapping[str, Any], is_down: bool, whole_s: int) -> Budget | None:
    reading = unit["readings"]["lower"]
    seconds = int(reading["denominator_slots"]) * SLOT_S
    if seconds <= 0:
        return None
    lost = Fraction(reading["down_seconds"])
    ladder = _steps(terms, seconds)
    crossed = tuple(step for step in ladder if lost > step.allowed_s)
    step = next((step for step in ladder if lost <= step.allowed_s), None)
    before = crossed[-1].allowed_s if crossed else Fraction(0)
    room = step.allowed_s - before if step else Fraction(0)
    used = Fraction(1) if room <= 0 else (lost - before) / room
    return Budget(
        unit["name"],
        100 * (1 - lost / seconds),
        lost,
        crossed,
        step,
        0 if step is None else floor(step.allowed_s - lost),
        used,
        is_down,
        -(-seconds // whole_s),
    )


def _steps(terms: Terms, seconds: int) -> list[Step]:
    """The contract's steps from the first one down, over a divisor of so many seconds."""
    if terms.commitment is not None and not terms.tiers:
        below = [
            (
                terms.commitment,
                "the price of the time beyond it" if terms.allowance == "deducted" else "the price of all time lost",
            )
        ]
    else:
        below = [(tier.below, f"{tier.credit.normalize():f} % of the fee") for tier in terms.tiers]
    return [
        Step(f"{one.normalize():f}", credit, (1 - Fraction(one) / 100) * seconds)
        for one, credit in sorted(below, key=lambda step: -step[0])
    ]
