"""Ports as subjects of their own, and what they take from the GPUs they serve (fold.md 16, 18)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from math import lcm
from typing import TYPE_CHECKING

from fleet.domain import conditions as cond
from fleet.domain import installations
from fleet.domain.facts import Port
from fleet.domain.judge import Run, Share
from fleet.domain.slots import VOUCH_MS
from fleet.domain.state import ABSENT, BLIND, GOOD, LOST, NodeState, Place, PortState
from fleet.domain.verdicts import State

if TYPE_CHECKING:
    from fleet.domain.placement import Item
    from fleet.domain.work import Stretch, Work

LEARNED_MS = 86_400_000  # a port is learned after 24 h ACTIVE (fold.md 16)
FLAPS = "link_downed"
NOT_SEEN = "NOT_SEEN"  # the last word on a declared port that its source has never listed
_WAITING = ("INIT", "ARMED")

#: A port, its verdicts, how many GPUs it serves.
Served = tuple[PortState, list[Run], int]


def key_of(port: Port) -> str:
    """A port is its GUID; where that is hidden, its device and number."""
    return port.guid_hash or f"{port.device}/{port.port}"


def only_virtual(listed: Iterable[Port]) -> bool:
    """Whether no physical port is seen: then a virtual function is what the node has, and counts."""
    return all(port.is_vf for port in listed)


def are_well(state: NodeState, listed: Iterable[Port]) -> bool:
    """Whether every known port was well and is listed ACTIVE without a flap."""
    active = {key_of(p) for p in listed if p.state == "ACTIVE" and not (p.counters or {}).get(FLAPS)}
    return all(port.kind == GOOD and not port.conditions and port.key in active for port in state.ports)


def read(work: Work, item: Item, ib: str, clock: str, stretch: Stretch) -> list[tuple[PortState, str, str]]:
    """Take every port's reading: (port, subject, cause of unknown of the gap before it)."""
    state = work.state
    assert state is not None
    listed = {key_of(p): p for p in item.interval.ib_ports} if ib == "ok" and not clock else {}
    cause = clock or ("" if ib == "ok" else "IB_BLIND")
    work.port_last = {p.key: (p.last_weight, p.last_code) for p in state.ports if p.last_weight < 100}
    declared = work.context.ports
    if declared is not None:
        for key, _ in declared:
            if not any(p.key == key for p in state.ports):
                state.ports.append(PortState(key=key, expected=True, active_ms=0, last_code=NOT_SEEN))
        names = {key for key, _ in declared}
        for port in state.ports:
            if port.key in names and not port.expected:
                port.expected, port.active_ms = True, 0
    virtual_counts = only_virtual(listed.values())
    for key, fact in listed.items():
        active = declared is None and fact.state == "ACTIVE" and (virtual_counts or not fact.is_vf)
        if active and not any(p.key == key for p in state.ports):
            state.ports.append(PortState(key=key))
    if listed:
        order = {key: i for i, key in enumerate(listed)}
        state.ports.sort(key=lambda p: (order.get(p.key, len(order)), p.key))
    out = []
    for port in state.ports:
        gap = _take(work, item, port, listed.get(port.key), cause, stretch)
        out.append((port, f"p:{port.key}", gap))
    if declared is None:
        state.ports = [p for p in state.ports if p.expected or p.active_ms > 0]
    return out


def _take(work: Work, item: Item, port: PortState, fact: Port | None, cause: str, stretch: Stretch) -> str:
    ms = item.ms
    slot = ms // 15_000
    if not port.expected:
        _learn(port, fact, cause, stretch, ms)
        return ""
    key = f"p:{port.key}"
    if fact is not None and not fact.state:
        cause = cause or "IB_BLIND"  # absent is not DOWN
    was, unknown_gap = port.kind, False
    work.again = work.shared and (was == BLIND) == bool(cause)
    if cause:
        kind = BLIND
        for c in port.conditions:
            if not cond.read_elsewhere(work, c, stretch):
                cond.freeze(port, c)
                c.stance = "U"
    else:
        kind, unknown_gap = _judge_port(work, key, port, fact, stretch, ms)
        if fact is not None:
            if fact.near:
                port.near = tuple(fact.near)
            flaps = (fact.counters or {}).get(FLAPS, 0)
            if flaps and fact.state == "ACTIVE":
                reason = work.reason("IB_PORT_FLAP")
                weight = reason.weight if reason.lowers else 100
                flap = (reason.code, "O", slot, slot + 1, weight)
                told = flap in port.segments
                port.segments.append(flap)
                for what in ("opened", "closed") if reason.lowers and not told else ():
                    work.report(what, key, reason.code, ms, ms, ms, weight)
    port.kind, port.cause = kind, cause
    state = work.state
    assert state is not None
    vouches = work.several and installations.vouches(state, port, kind == GOOD, stretch, item)
    if stretch.end == stretch.first and slot == stretch.first:
        if not state.agents:
            port.slot_cause = cause
        elif work.several:  # another installation's blindness is no evidence
            port.slot_cause = port.slot_cause if cause else ""
        else:
            port.slot_cause = cause or port.slot_cause
    if stretch.heard and not unknown_gap:
        if vouches or kind == was == GOOD or (kind == was == ABSENT):
            return ""
        if kind == was == BLIND:
            return cause
    return stretch.cause


def _learn(port: PortState, fact: Port | None, cause: str, stretch: Stretch, ms: int) -> None:
    """Count the time in which an unknown port was ACTIVE; silence and blindness don't count, DOWN starts again."""
    gap = ms - stretch.from_ms
    if cause or (gap > VOUCH_MS and fact is not None and fact.state == "ACTIVE"):
        if port.active_ms > 0:
            port.active_ms = min(ms, port.active_ms + gap)
        else:
            port.active_ms = ms
    if cause:
        return
    if fact is None or fact.state != "ACTIVE":
        port.active_ms = 0
        return
    if port.active_ms <= 0:
        port.active_ms = ms
    if fact.near:
        port.near = tuple(fact.near)
    if ms - port.active_ms >= LEARNED_MS:
        port.expected, port.active_ms = True, 0


def _judge_port(
    work: Work, key: str, port: PortState, fact: Port | None, stretch: Stretch, ms: int
) -> tuple[int, bool]:
    slot = ms // 15_000
    code = ""
    if fact is None:
        code = "IB_PORT_MISSING"
    elif fact.phys_state == "Disabled" and fact.state != "ACTIVE":
        port.segments.append(("IB_PORT_DISABLED", "N", slot, slot + 1, 100))
    elif fact.state == "DOWN":
        code = "IB_PORT_DOWN"
    elif fact.state in _WAITING:
        if work.context.owns_fabric:
            code = "IB_PORT_INIT"
        else:
            port.segments.append(("IB_PORT_INIT", "N", slot, slot + 1, 100))
    gap = False
    for c in tuple(port.conditions):
        if c.code != code:
            gap = cond.ended_by_sample(work, key, port, c, stretch, ms) or gap
    if not code:
        port.last_weight, port.last_code = 100, ""
        return GOOD, gap
    reason = work.reason(code)
    c = port.find(code) or cond.start(work, port, code, ms, reason.weight, reason.persistence_samples <= 1, False)
    if port.last_code == NOT_SEEN and fact is None:  # never delivered, as a place that no device took (fold.md 23)
        cond.pending(port, c, stretch, ms)
        return ABSENT, gap
    c.seen += not work.again
    if not c.confirmed and c.seen >= reason.persistence_samples:
        cond.confirm(port, c, ms, slot, stretch.first)
        c.run_from = -1
    if not c.confirmed:
        cond.pending(port, c, stretch, ms)
        return ABSENT, gap
    gap = cond.bad(work, key, port, c, stretch, ms, False, False) or gap
    port.last_weight, port.last_code = c.weight, code
    return LOST, gap


# -- what ports take from GPUs ------------------------------------------------------------------------------------


def shares(work: Work, index: int, place: Place, runs: Sequence[tuple[PortState, list[Run]]]) -> tuple[Share, ...]:
    """What the ports take from one GPU, run by run. A mapped GPU takes its port's weight (the mean of several);
    unmapped ports take down / max(ports expected, GPUs) from every GPU, rounded down.

    A port near several GPUs shares its loss among them: an outage never costs more GPU time than ports were down.
    """
    state = work.state
    assert state is not None
    declared = dict(work.context.ports or ())
    buses = {p.bus for p in state.places if p.bus}
    mapped: list[Served] = []
    loose: list[Served] = []
    for port, port_runs in runs:
        target = declared.get(port.key)
        if target is not None:
            if target == index:
                mapped.append((port, port_runs, 1))
        elif served := len(buses.intersection(port.near)):
            if place.bus in port.near:
                mapped.append((port, port_runs, served))
        else:
            loose.append((port, port_runs, len(state.places)))
    return (*_combined(work, mapped, len(mapped)), *_combined(work, loose, len(runs)))


def _combined(work: Work, ports: Sequence[Served], least: int) -> Iterator[Share]:
    """The sum of each port's loss by the GPUs that it serves, at least by `least`."""
    if not ports:
        return
    among = lcm(*(max(least, served) for _, _, served in ports))
    bounds = sorted({b for _, runs, _ in ports for run in runs for b in (run.first, run.end)})
    for a, b in pairwise(bounds):
        losses = [0, 0, 0]
        states: list[State] = []
        codes: set[str] = set()
        for port, runs, served in ports:
            part = among // max(least, served)
            verdict = next((r.verdict for r in runs if r.first <= a < r.end), None)
            if verdict is None:
                continue
            if verdict.nominal is None:
                weight, code = work.port_last.get(port.key, (100, ""))
                if weight < 100:
                    losses[2] += (100 - weight) * part
                    states.append(State.PENDING)
                    codes.add(code)
                continue
            if verdict.upper >= 100:
                continue
            losses[0] += (100 - verdict.nominal) * part
            losses[1] += (100 - verdict.lower) * part
            losses[2] += (100 - verdict.upper) * part
            states.append(verdict.state)
            codes.update(c for c in (*verdict.certain, *verdict.possible) if c not in _NOTES)
        if not codes:
            continue
        weights = [100 - loss // among for loss in losses]
        yield Share(a, b, _state(weights, states), weights[0], weights[1], weights[2], tuple(sorted(codes)))


_NOTES = ("IB_PORT_DISABLED", "no_kernel_log")


def _state(weights: list[int], states: list[State]) -> State:
    """A triple's state (fold.md 30): lowered in claims is observed, in nominal alone edge, in neither pending."""
    if len(set(states)) == 1:
        return states[0]
    if weights[1] < 100:
        return State.OBSERVED
    return State.EDGE if weights[0] < 100 else State.PENDING
