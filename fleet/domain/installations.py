"""Two installations of the agent on one node (fold.md 17)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from fleet.domain import throttle
from fleet.domain.rules import Rules
from fleet.domain.slots import SLOT_MS, VOUCH_MS
from fleet.domain.state import BLIND, GOOD, NodeState, Place, PortState, Subject

if TYPE_CHECKING:
    from fleet.domain.placement import Item
    from fleet.domain.presence import Reading
    from fleet.domain.work import Stretch, Work

CODE = "TWO_INSTALLATIONS"
MARK_SLOTS = 4  # the slots that two samples at most 37.5 s apart lie in


class Mark(NamedTuple):
    """What the samples of the open slot so far said of a subject."""

    lowering: frozenset[str]
    unsure: frozenset[str]  # pending, or possible as a source was not read
    device: str  # '' = none listed
    known: bool
    last: tuple[int, str]  # a port's last weight and its code


def note_sole(state: NodeState, agent: str) -> None:
    """Another installation is heard beside the only one so far: remember what that one's last sample read well."""
    if len(state.agents) == 1 and agent not in state.agents:
        for sole, ms in state.agents.items():
            for _, subject in _subjects(state):
                if subject.kind == GOOD:
                    note_good(subject, sole, ms // SLOT_MS, True)


def note_good(subject: Subject, agent: str, slot: int, is_good: bool) -> None:
    """Remember whether this installation's newest sample read the subject well, for as long as it may vouch."""
    name = f"@{agent}"
    subject.segments = [s for s in subject.segments if s[0] != name]
    if is_good:
        subject.segments.append((name, "A", slot, slot + MARK_SLOTS, 100))


def vouches(state: NodeState, subject: Subject, is_good: bool, stretch: Stretch, item: Item) -> bool:
    """Whether this installation's last two samples are good and vouch for what lies between (fold.md 5).

    What another, blind one left unknown in the open slot is known then: blindness is no evidence (fold.md 17).
    """
    name, slot = f"@{item.agent}", item.ms // SLOT_MS
    own = state.agents.get(item.agent, -1) // SLOT_MS
    was_good = any(s[0] == name and s[3] == own + MARK_SLOTS for s in subject.segments)
    note_good(subject, item.agent, slot, is_good)
    if not (is_good and was_good and stretch.heard):
        return False
    if own < stretch.first < slot:
        subject.slot_cause = ""
    return True


def marks(rules: Rules, state: NodeState) -> dict[str, Mark]:
    """Per GPU's place and expected port what its last sample said."""
    slot = state.open_slot
    return {
        key: Mark(
            _lowering(rules, subject, slot), _unsure(subject, slot), _device(subject), subject.kind != BLIND,
            (subject.last_weight, subject.last_code) if isinstance(subject, PortState) else (100, ""),
        )
        for key, subject in _subjects(state)
    }  # fmt: skip


def _device(subject: Subject) -> str:
    return subject.uuid if isinstance(subject, Place) and subject.kind == GOOD else ""


def overruled(state: NodeState, agent: str, ms: int) -> None:
    """Remember an installation whose sample was not taken, as it is of a boot that began before the newest one.

    Of one machine such a sample would stand before that boot: another machine has the node's name.
    """
    if agent not in state.agents or state.agents[agent] > state.last_ms:
        state.agents[agent] = ms
        state.agents = {a: t for a, t in state.agents.items() if ms - t <= VOUCH_MS}


def tells_nothing(state: NodeState, item: Item, sources: tuple[str, str, str]) -> bool:
    """Whether this sample reads nothing that the one before, of another installation and at most 37.5 s old, does not:
    it closes no stretch then, so that what the other one sees goes on, whichever comes first in a slot (fold.md 17).
    An installation that goes blind tells so once.
    """
    interval, (nvml, _, log) = item.interval, sources
    if all(name == item.agent for name in state.agents):
        return False
    if not item.clock_ok or not 0 <= item.ms - state.last_ms <= VOUCH_MS or item.ms // SLOT_MS < state.open_slot:
        return False
    if state.sources[0] != "ok" or (nvml == "ok" and interval.gpus) or (log == "ok" and state.sources[2] != "ok"):
        return False
    if item.fit[9] != state.segment_number or any(f in ("dead", "absent") for f in (interval.pci or {}).values()):
        return False
    if any(s[0] == f"@{item.agent}" and s[1] == "A" for place in state.places for s in place.segments):
        return False
    return any(ms == state.last_ms and name != item.agent for name, ms in _taken(state))


def hear(state: NodeState, item: Item, cause: str, ports_cause: str) -> None:
    """Remember of such a sample that the node was heard in its slot and what could not be read there ('' = could)."""
    slot, name = item.ms // SLOT_MS, f"@{item.agent}"
    for _, subject in _subjects(state):
        subject.segments.append((ports_cause if isinstance(subject, PortState) else cause, "V", slot, slot + 1, 100))
    node = state.node
    node.segments = [s for s in node.segments if s[0] != name]
    node.segments += [("", "V", slot, slot + 1, 100), (name, "S", slot, slot + MARK_SLOTS, 100)]
    state.agents[item.agent] = item.ms
    state.watermark = item.key
    state.learn(item.fit, item.ms)


def _taken(state: NodeState) -> list[tuple[str, int]]:
    """The installations whose newest sample told something, and its instant."""
    heard = {(s[0], s[3] - MARK_SLOTS) for s in state.node.segments if s[1] == "S"}
    return [(name, ms) for name, ms in state.agents.items() if (f"@{name}", ms // SLOT_MS) not in heard]


def shares_slot(state: NodeState, agent: str, slot: int) -> bool:
    """Whether another installation has a sample in this slot; several of one are no conflict."""
    return any(name != agent and ms // SLOT_MS == slot for name, ms in _taken(state))


def counted(work: Work, item: Item, readings: Sequence[Reading]) -> dict[str, frozenset[str]]:
    """Per GPU's place the throttle reasons of which this sample's counters tell."""
    return {
        f"g{index}": frozenset(code for code, loss in throttle.losses(work, gpu, item) if loss)
        for index, (_, _, _, gpu) in enumerate(readings)
        if gpu is not None and gpu.throttle_time is not None
    }


def contradict(
    rules: Rules, state: NodeState, before: Mapping[str, Mark], slot: int, ms: int, told: Mapping[str, frozenset[str]]
) -> None:
    """Make a slot unknown where the sample at `ms` and one of another installation in it differ in lowering reasons or
    name different devices; the node's verdict says so too (fold.md 19).

    `before`: `marks` before the sample was taken; `told`: what it counted. Blindness contradicts nothing, and an
    own-slot reason is certain whatever a sample says (fold.md 13).
    """
    found = False
    for key, subject in _subjects(state):
        mark = before.get(key)
        if subject.kind == BLIND or mark is None or not mark.known:
            continue
        now = frozenset(c.code for c in subject.conditions if c.stance == "B" and c.last == ms)
        now |= told.get(key, frozenset())
        denied = mark.lowering - now - _unsure(subject, slot)
        denied |= now - mark.lowering - mark.unsure
        if denied or _device(subject) != mark.device:
            found = True
            subject.segments.append((CODE, "X", slot, slot + 1, 100))
            if isinstance(subject, PortState):  # what is contradicted is no last word
                subject.last_weight, subject.last_code = mark.last
        subject.segments = sorted(set(subject.segments))
    if found and not state.node.slot_cause:
        state.node.slot_cause = CODE


def _subjects(state: NodeState) -> list[tuple[str, Subject]]:
    found: list[tuple[str, Subject]] = [(f"g{i}", place) for i, place in enumerate(state.places)]
    found += [(f"p:{port.key}", port) for port in state.ports if port.expected]
    return found


def _lowering(rules: Rules, subject: Subject, slot: int) -> frozenset[str]:
    return frozenset(
        code
        for code, kind, a, b, weight in subject.segments
        if a <= slot < b and weight < 100 and (kind == "B" or (kind == "O" and _is_counted(rules, code)))
    )


def _is_counted(rules: Rules, code: str) -> bool:
    reason = rules.reasons.get(code)
    return reason is not None and reason.lasts == "share"


def _unsure(subject: Subject, slot: int) -> frozenset[str]:
    return frozenset(code for code, kind, a, b, _ in subject.segments if kind in "PQ" and a <= slot < b)
