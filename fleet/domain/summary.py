"""What a page shows of a node now: the last verdict of each subject, its open conditions, how old the news is."""

from __future__ import annotations

from dataclasses import dataclass

from fleet.domain import conditions as cond
from fleet.domain.context import EMPTY, Context
from fleet.domain.fold import silence
from fleet.domain.judge import judge
from fleet.domain.ports import shares
from fleet.domain.rules import Rules
from fleet.domain.slots import SLOT_MS
from fleet.domain.state import NodeState, Subject
from fleet.domain.verdicts import Verdict, unknown
from fleet.domain.work import Work

SILENT_MS = 90_000  # no sample for longer than this: what is shown is unknown, not the last verdict


@dataclass(frozen=True, slots=True)
class ConditionNow:
    """An open condition: since its first evidence, with its last evidence; `certain` = corroborated."""

    code: str
    party: str
    since_ms: int
    last_ms: int
    weight: int
    certain: bool


@dataclass(frozen=True, slots=True)
class SubjectNow:
    """A subject's present: `kind` is node, gpu or port; `device` the UUID or the port's key in it ('' = none)."""

    subject: str
    kind: str
    device: str
    bus_id: str
    verdict: Verdict
    conditions: tuple[ConditionNow, ...] = ()


@dataclass(frozen=True, slots=True)
class NodeNow:
    """A node's present. `silent`: its last sample is older than 90 s, so every verdict is what silence says.
    `installations`: how many agents the newest samples came from; `overruled`: another one's samples came after the
    last one that was taken.
    """

    node: SubjectNow
    subjects: tuple[SubjectNow, ...]
    last_sample_ms: int
    silent: bool
    sources: dict[str, str]
    boot_id: str
    installations: int = 1
    overruled: bool = False


def current(state: NodeState, now_ms: int, rules: Rules, context: Context = EMPTY) -> NodeNow:
    """The node at `now_ms`: the verdicts of its newest sample's slot, or what silence says when that is too old."""
    silent = now_ms - state.last_ms > SILENT_MS
    verdicts: dict[str, Verdict] = {}
    if silent:
        slot = max(now_ms // SLOT_MS, state.open_slot + 1)
        for emission in silence(state, (slot + 1) * SLOT_MS, rules, context):
            if emission.first_slot <= slot < emission.end_slot:
                verdicts[emission.subject] = emission.verdict
    else:
        verdicts = _newest(state, rules, context)
    gone = _GONE
    subjects = [
        SubjectNow(f"g{i}", "gpu", p.uuid, p.bus, verdicts.get(f"g{i}", gone), _conditions(p, rules))
        for i, p in enumerate(state.places)
    ]
    subjects += [
        SubjectNow(f"p:{p.key}", "port", p.key, "", verdicts.get(f"p:{p.key}", gone), _conditions(p, rules))
        for p in state.ports
        if p.expected
    ]
    node = SubjectNow("n", "node", "", "", verdicts.get("n", gone), _conditions(state.node, rules))
    nvml, ib, kmsg = state.sources
    sources = {"nvml": nvml, "ib": ib, "kmsg": kmsg}
    heard = 1 if silent else len(state.agents)
    is_overruled = any(at > state.last_ms for at in state.agents.values())
    return NodeNow(node, tuple(subjects), state.last_ms, silent, sources, state.boot_id, heard, is_overruled)


_GONE = unknown("NO_DATA")


def _newest(state: NodeState, rules: Rules, context: Context) -> dict[str, Verdict]:
    """The verdicts of the open slot as its own sample gives them: bad evidence on one side is an edge."""
    slot = state.open_slot
    work = Work(state, rules, context)
    work.port_last = {p.key: (p.last_weight, p.last_code) for p in state.ports if p.last_weight < 100}
    out = {"n": _one(state.node, slot)}
    runs = []
    for port in state.ports:
        if port.expected:
            mine = judge(port, slot, slot + 1, port.slot_cause, "", cond.chains(port))
            out[f"p:{port.key}"] = mine[0].verdict
            runs.append((port, mine))
    for index, place in enumerate(state.places):
        taken = shares(work, index, place, runs)
        out[f"g{index}"] = judge(place, slot, slot + 1, place.slot_cause, "", cond.chains(place), taken)[0].verdict
    return out


def _one(subject: Subject, slot: int) -> Verdict:
    return judge(subject, slot, slot + 1, subject.slot_cause, "", cond.chains(subject))[0].verdict


def _conditions(subject: Subject, rules: Rules) -> tuple[ConditionNow, ...]:
    return tuple(
        ConditionNow(
            c.code,
            rules.reasons[c.code].party if c.code in rules.reasons else "ambiguous",
            c.since,
            max(c.last, c.since),
            c.weight,
            c.confirmed,
        )
        for c in subject.conditions
    )
