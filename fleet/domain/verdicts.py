"""What a slot of a subject is worth, and why."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple


class State(StrEnum):
    """How a verdict came about (architecture 4)."""

    OBSERVED = "observed"
    EDGE = "edge"
    PENDING = "pending"
    CONTESTED = "contested"
    HELD = "held"
    UNKNOWN = "unknown"


#: Which state names a slot when several reasons give its nominal weight (fold.md 22).
STATE_RANK = {
    State.OBSERVED: 0,
    State.HELD: 1,
    State.EDGE: 2,
    State.CONTESTED: 3,
    State.PENDING: 4,
    State.UNKNOWN: 5,
}


class Verdict(NamedTuple):
    """A slot's three weights (integers 0..100), its state and its reasons.

    `nominal` is None exactly when the state is unknown. `lower` is the weight in the claims reading (lower loss),
    `upper` the one in the reading with the higher loss. `certain` reasons hold in the claims reading; causes of
    unknown and notes of weight 100 stand there too. Both are sorted.
    """

    state: State
    nominal: int | None
    lower: int
    upper: int
    certain: tuple[str, ...] = ()
    possible: tuple[str, ...] = ()


HEALTHY = Verdict(State.OBSERVED, 100, 100, 100)

#: The verdict of a slot that no evidence has closed yet.
UNKNOWN_PROVISIONAL = Verdict(State.UNKNOWN, None, 100, 0, ("OPEN",))


def unknown(*causes: str, possible: tuple[str, ...] = ()) -> Verdict:
    """An unknown verdict with its causes: never down, never up."""
    return Verdict(State.UNKNOWN, None, 100, 0, tuple(sorted(causes)), possible)
