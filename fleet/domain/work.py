"""The fold's workbench: a copy of a node's state that takes items in order and emits verdicts.

A sample closes the stretch since the sample before it: the slots from that one's up to its own. Events between two
samples mark conditions and segments on their GPUs at their own instants. Subjects of which nothing but health is known
cost a comparison each.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from fleet.domain import conditions as cond
from fleet.domain import events, gpus, installations, ports, presence, quick, witnesses
from fleet.domain.context import Context
from fleet.domain.facts import Gpu
from fleet.domain.judge import Run, Share, judge
from fleet.domain.placement import Item
from fleet.domain.rules import Reason, Rules
from fleet.domain.runs import Emission, RunSink
from fleet.domain.slots import SLOT_MS, VOUCH_MS
from fleet.domain.state import ABSENT, BLIND, GOOD, LOST, NEVER, Condition, NodeState, Place, PortState, Subject
from fleet.domain.verdicts import HEALTHY, State, Verdict


class ConditionEvent(NamedTuple):
    """A condition was `opened` or `closed` at the evidence `at_ms`, or asks for a `review` there.

    A review is asked for by an unknown code and by a GPU that works though a rule says that it is down. `first_ms`,
    `last_ms`: the condition's own evidence.
    """

    kind: str
    subject: str
    code: str
    party: str
    at_ms: int
    first_ms: int
    last_ms: int
    weight: int


class Stretch(NamedTuple):
    """What lies between two samples: instants, slots, and what may be said of the slots between."""

    from_ms: int
    to_ms: int
    first: int
    end: int
    vouched: bool
    same_boot: bool
    cause: str  # of unknown in the gap
    heard: bool  # as vouched, a driver reload aside: for what does not hang on the driver


class Work:
    """A fold in progress; `state` is its own copy. `rules` and `context`: those of the hour of its newest item."""

    def __init__(self, state: NodeState | None, rules: Rules, context: Context) -> None:
        self.state = state
        self.rules = rules
        self.context = context
        self.events: list[ConditionEvent] = []
        self.sink = RunSink(self.subjects(), state.open_slot if state else 0)
        self.kmsg_ok = True
        self.several = False  # whether another installation was heard just before this sample
        self.shared = False  # whether another installation has a sample in this one's slot
        self.again = False  # whether that one has counted already what this one says of the subject
        self.reloaded = False  # whether the driver was loaded or unloaded since the last sample
        self.booted_ms = 0  # when the event's boot began of which no sample came yet, else 0
        self.nvml = "ok"
        self.port_last: dict[str, tuple[int, str]] = {}  # of ports below 100: weight and code before this sample
        self.calm: quick.Calm | None = None
        self.steady: dict[int, quick.Steady] = {}
        self._spare: Reason = rules.reasons["XID_UNKNOWN"]

    # -- public ---------------------------------------------------------------------------------------------------

    def enter(self, rules: Rules, context: Context, at_ms: int) -> None:
        """Go on under the rule set and the context of the hour that begins at `at_ms`."""
        if rules is self.rules and context is self.context:
            return
        before, self.rules, self.context = self.rules, rules, context
        self._spare = rules.reasons["XID_UNKNOWN"]
        self.steady.clear()
        self.calm = quick.Calm() if self._is_surplus() else None  # the long way drops what is over
        if rules is not before and self.state is not None:
            cond.weigh_again(self, before, at_ms)

    def subjects(self) -> list[str]:
        """Keys of the subjects that exist now."""
        state = self.state
        if state is None:
            return []
        keys = ["n", *(f"g{i}" for i in range(len(state.places)))]
        keys += [f"p:{p.key}" for p in state.ports if p.expected]
        return keys

    def take(self, item: Item) -> None:
        """Fold one item; items come in order."""
        if item.event is not None:
            if self.state is not None:
                self.state.watermark = item.key
                self.calm = None
                self.steady.clear()
                events.apply(self, item)
            return
        self.sample(item)

    def emissions(self) -> list[Emission]:
        """What was emitted, clipped to the entitlement; ends the work."""
        state = self.state
        if state is None:
            return []
        out = self.sink.finish(state.open_slot)
        low, high = self.context.entitled_from_ms, self.context.entitled_to_ms
        if low is None and high is None:
            return out
        first = -(-low // SLOT_MS) if low is not None else -1
        end = high // SLOT_MS if high is not None else 1 << 62
        return [
            Emission(e.subject, max(e.first_slot, first), min(e.end_slot, end), e.verdict)
            for e in out
            if e.first_slot < end and e.end_slot > first
        ]

    def reason(self, code: str) -> Reason:
        """The rule of a code; a code that no rule set knows any more weighs nothing."""
        return self.rules.reasons.get(code, self._spare)

    def opened(self, key: str, subject: Subject, condition: Condition, at_ms: int) -> None:
        """Report a condition once, unless it is a symptom of one that is reported."""
        reason = self.reason(condition.code)
        if condition.opened or not reason.lowers:
            return
        if self.several and condition.since == at_ms:
            return  # two installations: the next sample may contradict
        for other in subject.conditions:
            if other is not condition and other.confirmed:
                if other.code in reason.symptom_of:
                    return
                if condition.code.startswith("RECOVERY_") and not other.code.startswith("RECOVERY_"):
                    return
        condition.opened = True
        self.report("opened", key, condition.code, at_ms, condition.since, condition.last, condition.weight)

    def report(self, kind: str, key: str, code: str, at: int, first: int, last: int, weight: int) -> None:
        """Add a condition event."""
        party = self.reason(code).party
        self.events.append(ConditionEvent(kind, key, code, party, at, first, max(first, last), weight))

    # -- a sample -------------------------------------------------------------------------------------------------

    def sample(self, item: Item) -> None:
        """Close the stretch since the last sample and take this one as the newest evidence."""
        interval, batch, ms = item.interval, item.batch, item.ms
        state = self.state
        slot = ms // SLOT_MS
        if state is None:
            state = self._begin(item, slot)
        elif slot > state.open_slot and quick.take(self, item, state, slot):
            return
        self.calm = None
        self.steady.clear()
        boot = batch.boot_id or state.boot_id
        same_boot = boot == state.boot_id
        if not same_boot and item.boot_ms and item.boot_ms < state.boot_at:
            state.watermark = item.key
            state.learn(item.fit, ms, is_taken=False)
            installations.overruled(state, item.agent, ms)
            return  # a boot that a later one has already ended
        self.nvml, ib, log = quick.sources_of(interval)
        silent = same_boot and installations.tells_nothing(state, item, (self.nvml, ib, log))
        if silent and (ib != "ok" or ports.are_well(state, interval.ib_ports)):
            installations.hear(state, item, presence.cause_of(self.nvml), "" if ib == "ok" else "IB_BLIND")
            return
        self.kmsg_ok = log == "ok"
        self.reloaded = state.reload
        stretch = self._stretch(item, state, slot, same_boot)
        first_of_boot = not same_boot
        if first_of_boot:
            for subject in (state.node, *state.places, *state.ports):
                for condition in subject.conditions:
                    condition.old = condition.since < item.boot_ms or not item.boot_ms
        witnesses.assignments(self, stretch, item)
        self.several = bool(state.agents) and (item.agent not in state.agents or len(state.agents) > 1)
        if self.several:
            installations.note_sole(state, item.agent)
        before = installations.marks(self.rules, state) if self.several else None
        self.shared = before is not None and installations.shares_slot(state, item.agent, slot)

        lost_node = witnesses.node_lost(self, item, stretch) if first_of_boot else ()
        clock = "" if item.clock_ok else "CLOCK"
        gap_states: dict[str, str] = {}
        was_node = state.node.cause
        state.node.kind, state.node.cause = (BLIND, clock) if clock else (GOOD, "")
        gap_states["n"] = "" if stretch.heard and not was_node and not clock else stretch.cause
        readings = presence.read(self, item, clock)
        for index, (place, kind, cause, gpu) in enumerate(readings):
            gap_states[f"g{index}"] = self.take_gpu(f"g{index}", place, kind, cause, gpu, stretch, item)
        for _port, key, gap in ports.read(self, item, ib, clock, stretch):
            gap_states[key] = gap
        self._emit(stretch, gap_states, lost_node)
        self._drop(slot)
        counted = installations.counted(self, item, readings) if self.shared else {}
        self._advance(item, state, slot, boot, clock)
        state.sources = (self.nvml, ib, log)
        if before is not None and self.shared:
            installations.contradict(self.rules, state, before, slot, item.ms, counted)

    def _begin(self, item: Item, slot: int) -> NodeState:
        state = NodeState(item.key, slot, item.ms, item.batch.boot_id or "", item.boot_ms, item.fit)
        self.state = state
        state.segment_number = item.fit[9]
        start = self.context.entitled_from_ms
        self.sink = RunSink(["n"], slot)
        if start is not None and start < slot * SLOT_MS:
            first = -(-start // SLOT_MS)
            seen = Verdict(State.UNKNOWN, None, 100, 0, ("NOT_SEEN",))
            keys = ["n", *(f"g{i}" for i in range(self.context.gpus or 0))]
            keys += [f"p:{key}" for key, _ in self.context.ports or ()]
            self.sink = RunSink(keys, first)
            for key in keys:
                self.sink.put(key, first, seen)
        return state

    def _stretch(self, item: Item, state: NodeState, slot: int, same_boot: bool) -> Stretch:
        own = state.agents.get(item.agent, -1 if state.agents else item.ms)
        paused = item.fit[9] != state.segment_number and same_boot
        near = own >= 0 and item.ms - own <= VOUCH_MS
        heard = near and same_boot and not paused
        cause = "NO_DATA"
        if paused:
            cause = "PAUSED"
        elif not same_boot and item.batch.last_shutdown == "clean":
            cause = "SHUTDOWN"
        return Stretch(
            state.last_ms,
            item.ms,
            state.open_slot,
            max(slot, state.open_slot),
            heard and not state.reload,
            same_boot,
            cause,
            heard,
        )

    def vouched_stretch(self, item: Item, slot: int) -> Stretch:
        """The stretch before a sample that the one before it vouches for."""
        state = self.state
        assert state is not None
        self.nvml, self.kmsg_ok, self.several = "ok", state.sources[2] == "ok", False
        self.shared = self.again = self.reloaded = False
        return Stretch(state.last_ms, item.ms, state.open_slot, slot, True, True, "NO_DATA", True)

    # -- a GPU ----------------------------------------------------------------------------------------------------

    def take_gpu(
        self, key: str, place: Place, kind: int, cause: str, gpu: Gpu | None, stretch: Stretch, item: Item
    ) -> str:
        """Take one GPU's reading; returns the cause of unknown of the gap before it ('' = vouched)."""
        ms, slot, state = item.ms, item.ms // SLOT_MS, self.state
        assert state is not None
        was, was_cause = place.kind, place.cause
        vouches = self.several and installations.vouches(state, place, kind == GOOD, stretch, item)
        self.again = self.shared and (was == BLIND) == (kind == BLIND)
        changed = cond.Change()
        if kind == GOOD and gpu is not None:
            gpus.good(self, key, place, gpu, stretch, item, changed)
        else:
            gpus.not_listed(self, key, place, kind, cause, stretch, item, changed)
        if not self.kmsg_ok:
            place.segments.append(("no_kernel_log", "N", slot, slot + 1, 100))
        place.kind, place.cause = kind, cause
        if stretch.end == stretch.first and slot == stretch.first:
            # two samples in one slot: the worst, but another installation's blindness is no evidence
            other = self.several
            fresh = state.last_ms == ms and not state.agents
            if fresh:
                place.slot_cause = cause
            elif cause and not (other and not place.slot_cause):
                place.slot_cause = place.slot_cause or cause
            elif not cause and other:
                place.slot_cause = ""
        if stretch.vouched and not changed.gap_unknown:
            if vouches or kind == was == GOOD or (kind == was and kind in (ABSENT, NEVER)):
                return ""
            if kind == was == BLIND and cause == was_cause:
                return cause
        return stretch.cause

    # -- emission -------------------------------------------------------------------------------------------------

    def _emit(self, stretch: Stretch, gaps: dict[str, str], lost: tuple[Any, ...]) -> None:
        state = self.state
        assert state is not None
        if stretch.end <= stretch.first:
            return
        self.put_node(stretch, gaps["n"], lost)
        port_runs: list[tuple[PortState, list[Run]]] = []
        troubled = False
        for port in state.ports:
            key = f"p:{port.key}"
            if not port.expected or key not in self.sink.runs:
                continue  # no subject, or one from this sample on
            runs = judge(
                port, stretch.first, stretch.end, port.slot_cause, gaps.get(key, stretch.cause), cond.chains(port)
            )
            for run in runs:
                self.sink.put(key, run.first, run.verdict)
                troubled = troubled or run.verdict != HEALTHY
            port_runs.append((port, runs))
        for index, place in enumerate(state.places):
            shares = ports.shares(self, index, place, port_runs) if troubled else ()
            if f"g{index}" in self.sink.runs:
                self.judge_gpu(f"g{index}", place, stretch, gaps[f"g{index}"], shares, lost)

    def judge_gpu(
        self, key: str, place: Place, stretch: Stretch, gap: str, shares: tuple[Share, ...], lost: tuple[Any, ...]
    ) -> None:
        for run in judge(
            place, stretch.first, stretch.end, place.slot_cause, gap, (*cond.chains(place), *lost), shares
        ):
            self.sink.put(key, run.first, run.verdict)

    def put_node(self, stretch: Stretch, gap: str, lost: tuple[Any, ...]) -> None:
        state = self.state
        assert state is not None
        extra = (*lost, *witnesses.unreachable(self, stretch, gap))
        for run in judge(state.node, stretch.first, stretch.end, state.node.slot_cause, gap, extra):
            self.sink.put("n", run.first, run.verdict)

    # -- after a sample -------------------------------------------------------------------------------------------

    def _is_surplus(self) -> bool:
        """Whether the declaration in force no longer names a subject of the state."""
        state, context = self.state, self.context
        if state is None:
            return False
        names = {key for key, _ in context.ports or ()}
        return (context.gpus is not None and len(state.places) > context.gpus) or (
            context.ports is not None and any(port.key not in names for port in state.ports)
        )

    def _drop(self, slot: int) -> None:
        """End what the declaration in force no longer names (fold.md 16): it was a subject up to this slot.

        The places with the highest numbers end, so the others keep theirs; a device that loses its place so takes a
        missing one with its next sample.
        """
        state, context = self.state, self.context
        if state is None or not self._is_surplus():
            return
        if context.gpus is not None:
            for index in range(context.gpus, len(state.places)):
                self.sink.end(f"g{index}", slot)
            del state.places[context.gpus :]
        if context.ports is not None:
            names = {key for key, _ in context.ports}
            for port in state.ports:
                if port.key not in names:
                    self.sink.end(f"p:{port.key}", slot)
            state.ports = [port for port in state.ports if port.key in names]

    def _advance(self, item: Item, state: NodeState, slot: int, boot: str, clock: str) -> None:
        new_slot = slot > state.open_slot or not state.agents
        self.sink.begin(self.subjects(), state.open_slot if slot < state.open_slot else slot)
        state.open_slot = max(slot, state.open_slot)
        for subject in (state.node, *state.places, *state.ports):
            if new_slot:
                subject.slot_cause = subject.cause
            if subject.segments or subject.conditions:
                self.tidy(subject, state.open_slot)
        if boot != state.boot_id:
            state.boot_id, state.boot_at = boot, item.boot_ms
            state.agents.clear()
        state.watermark = item.key
        state.last_ms = item.ms
        state.learn(item.fit, item.ms)
        state.segment_number = item.fit[9]
        state.reload = False
        state.agents[item.agent] = item.ms
        if len(state.agents) > 1:
            state.agents = {a: t for a, t in state.agents.items() if item.ms - t <= VOUCH_MS}
        state.admin = [a for a in state.admin if item.ms - a[1] <= cond.ACT_MS]

    def tidy(self, subject: Subject, open_slot: int) -> None:
        """Forget what no longer touches an open slot."""
        start = open_slot * SLOT_MS
        kept = set()
        for code, kind, a, b, w in subject.segments:
            if kind == "C":
                if b >= start:
                    kept.add((code, kind, max(a, start), b, w))
            elif b > open_slot:
                kept.add((code, kind, max(a, open_slot), b, w))
        subject.segments = sorted(kept)
        for condition in subject.conditions:
            if 0 <= condition.run_from < start <= condition.last:
                condition.run_from = start


__all__ = ["ABSENT", "BLIND", "GOOD", "LOST", "NEVER", "ConditionEvent", "Stretch", "Work"]
