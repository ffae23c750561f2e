"""`fold(state, item, rules, context) -> (state, emissions, events)`: the heart of the product, pure to its caller.

Each sample closes the stretch since the one before it and emits that stretch's verdicts, run-length per subject.
`silence` says what may provisionally be said of slots that nothing has closed, `hold` repeats a sample each slot.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from fleet.domain import conditions as cond
from fleet.domain.clocks import CLOCK_KEPT_MS
from fleet.domain.context import EMPTY, Context
from fleet.domain.judge import judge
from fleet.domain.placement import Item
from fleet.domain.ports import shares
from fleet.domain.rules import Rules
from fleet.domain.runs import Emission
from fleet.domain.slots import SLOT_MS
from fleet.domain.state import NodeState, Segment, Subject
from fleet.domain.work import ConditionEvent, Stretch, Work

Folded = tuple[NodeState | None, list[Emission], list[ConditionEvent]]


def fold(state: NodeState | None, item: Item, rules: Rules, context: Context = EMPTY) -> Folded:
    """The state after this item, the verdicts of the stretch that it closed, the conditions it opened or closed.

    Items come in the order of `Item.key`. The given state is not changed.
    """
    return fold_all(state, (item,), rules, context)


def fold_all(state: NodeState | None, items: Iterable[Item], rules: Rules, context: Context = EMPTY) -> Folded:
    """`fold` over several items in order, with the emissions of one verdict joined."""
    work = Work(state.copy() if state is not None else None, rules, context)
    for item in items:
        work.take(item)
    return work.state, work.emissions(), work.events


def silence(state: NodeState, until_ms: int, rules: Rules, context: Context = EMPTY) -> list[Emission]:
    """Provisional verdicts from the state's open slot up to the slot of `until_ms` (excluded), nothing having come.

    Conditions that cannot end by themselves are held, pending ones stay possible, the rest is unknown.
    """
    end = until_ms // SLOT_MS
    work = Work(state.copy(), rules, context)
    state = work.state or state
    first = state.open_slot
    if end <= first:
        return []
    stretch = Stretch(state.last_ms, until_ms, first, end, False, True, "NO_DATA", False)
    for subject in (*state.places, *state.ports):
        for c in subject.conditions:
            if c.confirmed:
                if c.weight < 100 and work.reason(c.code).sticky and c.stance in "BEQ":
                    _hold_segment(subject, c.code, c.last // SLOT_MS + 1, _held_until(state, subject, end, context))
            elif c.stance != "U":
                subject.segments.append((c.code, "P", max(first, c.since // SLOT_MS), end, c.weight))
    work.put_node(stretch, stretch.cause, ())
    work.port_last = {p.key: (p.last_weight, p.last_code) for p in state.ports if p.last_weight < 100}
    port_runs = []
    for port in state.ports:
        if port.expected:
            runs = judge(port, first, end, port.slot_cause, stretch.cause, cond.chains(port))
            for run in runs:
                work.sink.put(f"p:{port.key}", run.first, run.verdict)
            port_runs.append((port, runs))
    for index, place in enumerate(state.places):
        taken = shares(work, index, place, port_runs)
        work.judge_gpu(f"g{index}", place, stretch, stretch.cause, taken, ())
    state.open_slot = end
    return work.emissions()


def _hold_segment(subject: Subject, code: str, first: int, end: int) -> None:
    if first < end:
        segment: Segment = (code, "H", first, end, 0)
        subject.segments.append(segment)


def _held_until(state: NodeState, subject: Subject, end: int, context: Context) -> int:
    """The slot up to which a condition of this place is held: the end asked for, or its replacement's instant."""
    for index, at in context.assigned:
        if index < len(state.places) and state.places[index] is subject and at > state.last_ms:
            end = min(end, at // SLOT_MS)
    return end


def hold(state: NodeState, item: Item, until_ms: int, rules: Rules, context: Context = EMPTY) -> Folded:
    """`fold` of this sample repeated at each following slot's same offset up to `until_ms` (excluded).

    Run-length: as soon as two steps leave the state equal but for its times, the rest is joined up to the next instant
    at which a time in state or context matters (fold.md 27).
    """
    work = Work(state.copy(), rules, context)
    ms = item.ms
    position = 0
    previous: bytes | None = None
    while ms < until_ms:
        assert work.state is not None
        told = len(work.events)
        work.take(item._replace(ms=ms, position=position))
        shape = _shape(work.state) if len(work.events) == told else None
        ms += SLOT_MS
        position += 1
        if shape is not None and shape == previous:
            stop = min(until_ms, _next_instant(work.state, context))
            steps = (stop - 1 - ms) // SLOT_MS - 1
            if steps > 0:
                _shift(work.state, steps)
                ms += steps * SLOT_MS
                position += steps
                shape = None
        previous = shape
    return work.state, work.emissions(), work.events


def _shape(state: NodeState) -> bytes | None:
    """The state's bytes with all its running times taken out."""
    copy = state.copy()
    offset = copy.open_slot
    base = copy.last_ms
    copy = replace(copy, watermark=(0, 0, "", 0, 0, 0), open_slot=0, last_ms=0)
    copy.agents = {a: base - t for a, t in copy.agents.items()}
    copy.fit = (*copy.fit[:7], 0, *copy.fit[8:11], 0, *copy.fit[12:])
    for subject in (copy.node, *copy.places, *copy.ports):
        subject.segments = [
            (c, k, a - base, b - base, w) if k == "C" else (c, k, a - offset, b - offset, w)
            for c, k, a, b, w in subject.segments
        ]
        for c in subject.conditions:
            c.last = c.last - base if c.last >= 0 else -1
            c.run_from = c.run_from - base if c.run_from >= 0 else -1
    return copy.to_bytes()


def _shift(state: NodeState, steps: int) -> None:
    """Move every running time of the state on by this many slots."""
    ms = steps * SLOT_MS
    w = state.watermark
    state.watermark = (w[0] + ms, w[1], w[2], w[3], w[4] + steps, w[5])
    state.open_slot += steps
    state.last_ms += ms
    state.agents = {a: t + ms for a, t in state.agents.items()}
    for subject in (state.node, *state.places, *state.ports):
        subject.segments = [
            (c, k, a + ms, b + ms, wt) if k == "C" else (c, k, a + steps, b + steps, wt)
            for c, k, a, b, wt in subject.segments
        ]
        for c in subject.conditions:
            if c.run_from >= 0:
                c.run_from += ms
            if c.last >= 0:
                c.last += ms


def _next_instant(state: NodeState, context: Context) -> int:
    """The next instant after the last sample at which a time in state or context matters."""
    times = [1 << 62]
    for a, b in (*context.probe_failed, *(context.peers_alive or ())):
        times += [a, b]
    times += [at for _, at in context.assigned]
    times += [t for t in (context.entitled_from_ms, context.entitled_to_ms) if t is not None]
    times += [c.since + cond.LAPSE_MS for p in state.places for c in p.conditions if not c.confirmed]
    times += [p.active_ms + 86_400_000 for p in state.ports if p.active_ms > 0 and not p.expected]
    times += [ms + cond.ACT_MS for _, ms in state.admin]
    times += [c.since + cond.ACT_MS for p in state.places for c in p.conditions if c.code == "XID_79"]
    times += [fit[11] + CLOCK_KEPT_MS for fit in state.others.values()]
    return min(t for t in times if t > state.last_ms - 2 * SLOT_MS)  # slots not yet closed may still meet it
