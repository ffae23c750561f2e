"""Two installations of the agent on one node (fold.md 17)."""

from __future__ import annotations

from fleet.domain.state import BLIND, NodeState, Subject

Marks = dict[str, frozenset[str]]


def marks(state: NodeState) -> Marks:
    """Per GPU's place and expected port the lowering reasons of the open slot."""
    return {key: _lowering(subject, state.open_slot) for key, subject in _subjects(state)}


def contradict(state: NodeState, before: Marks, slot: int, ms: int) -> None:
    """Make a slot unknown where the sample at `ms` and one of another installation in it differ in lowering reasons.

    `before`: `marks` before the sample was taken. Blindness contradicts nothing.
    """
    for key, subject in _subjects(state):
        if subject.kind == BLIND or key not in before:
            continue
        old = before[key]
        now = frozenset(c.code for c in subject.conditions if c.stance == "B" and c.last == ms)
        now |= frozenset(s[0] for s in subject.segments if s[1] == "O" and s[2] <= slot < s[3])
        if _lowering(subject, slot) != old or (old and not now):
            subject.segments.append(("TWO_INSTALLATIONS", "X", slot, slot + 1, 100))
        subject.segments = sorted(set(subject.segments))


def _subjects(state: NodeState) -> list[tuple[str, Subject]]:
    found: list[tuple[str, Subject]] = [(f"g{i}", place) for i, place in enumerate(state.places)]
    found += [(f"p:{port.key}", port) for port in state.ports if port.expected]
    return found


def _lowering(subject: Subject, slot: int) -> frozenset[str]:
    return frozenset(s[0] for s in subject.segments if s[1] in "BO" and s[4] < 100 and s[2] <= slot < s[3])
