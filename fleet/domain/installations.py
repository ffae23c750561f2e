"""Two installations of the agent on one node (fold.md 17)."""

from __future__ import annotations

from fleet.domain.slots import VOUCH_MS
from fleet.domain.state import BLIND, GOOD, NodeState, Place, PortState, Subject

#: Lowering reasons of the open slot, the device there ('' = none listed), whether that is known, a port's last weight
#: and its code.
Mark = tuple[frozenset[str], str, bool, tuple[int, str]]
Marks = dict[str, Mark]


def marks(state: NodeState) -> Marks:
    """Per GPU's place and expected port what its last sample said."""
    return {
        key: (_lowering(subject, state.open_slot), _device(subject), subject.kind != BLIND, _last(subject))
        for key, subject in _subjects(state)
    }


def _last(subject: Subject) -> tuple[int, str]:
    return (subject.last_weight, subject.last_code) if isinstance(subject, PortState) else (100, "")


def _device(subject: Subject) -> str:
    return subject.uuid if isinstance(subject, Place) and subject.kind == GOOD else ""


def overruled(state: NodeState, agent: str, ms: int) -> None:
    """Remember an installation whose sample was not taken, as it is of a boot that began before the newest one.

    Of one machine such a sample would stand before that boot: another machine has the node's name.
    """
    if agent not in state.agents or state.agents[agent] > state.last_ms:
        state.agents[agent] = ms
        state.agents = {a: t for a, t in state.agents.items() if ms - t <= VOUCH_MS}


def contradict(state: NodeState, before: Marks, slot: int, ms: int) -> None:
    """Make a slot unknown where the sample at `ms` and one of another installation in it differ in lowering reasons or
    name different devices.

    `before`: `marks` before the sample was taken. Blindness contradicts nothing.
    """
    for key, subject in _subjects(state):
        if subject.kind == BLIND or key not in before:
            continue
        old, device, known, last = before[key]
        now = frozenset(c.code for c in subject.conditions if c.stance == "B" and c.last == ms)
        now |= frozenset(s[0] for s in subject.segments if s[1] == "O" and s[2] <= slot < s[3])
        other = known and _device(subject) != device
        if other or _lowering(subject, slot) != old or (old and not now):
            subject.segments.append(("TWO_INSTALLATIONS", "X", slot, slot + 1, 100))
            if isinstance(subject, PortState):  # what is contradicted is no last word
                subject.last_weight, subject.last_code = last
        subject.segments = sorted(set(subject.segments))


def _subjects(state: NodeState) -> list[tuple[str, Subject]]:
    found: list[tuple[str, Subject]] = [(f"g{i}", place) for i, place in enumerate(state.places)]
    found += [(f"p:{port.key}", port) for port in state.ports if port.expected]
    return found


def _lowering(subject: Subject, slot: int) -> frozenset[str]:
    return frozenset(s[0] for s in subject.segments if s[1] in "BO" and s[4] < 100 and s[2] <= slot < s[3])
