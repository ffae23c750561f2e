"""Two installations of the agent on one node (fold.md 17)."""

from __future__ import annotations

from fleet.domain.state import BLIND, NodeState, Place


def marks(state: NodeState) -> list[frozenset[str]]:
    """Per place the lowering reasons of its open slot."""
    return [_lowering(place, state.open_slot) for place in state.places]


def contradict(state: NodeState, before: list[frozenset[str]], slot: int, ms: int) -> None:
    """Make a slot unknown where the sample at `ms` and one of another installation in it differ in lowering reasons.

    `before`: `marks` before the sample was taken.
    """
    for place, old in zip(state.places, before, strict=False):
        if place.kind == BLIND:
            continue
        now = frozenset(c.code for c in place.conditions if c.stance == "B" and c.last == ms)
        now |= frozenset(s[0] for s in place.segments if s[1] == "O" and s[2] <= slot < s[3])
        if _lowering(place, slot) != old or (old and not now):
            place.segments.append(("TWO_INSTALLATIONS", "X", slot, slot + 1, 100))
        place.segments = sorted(set(place.segments))


def _lowering(place: Place, slot: int) -> frozenset[str]:
    return frozenset(s[0] for s in place.segments if s[1] in "BO" and s[4] < 100 and s[2] <= slot < s[3])
