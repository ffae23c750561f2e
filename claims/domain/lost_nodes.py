"""Whose the death of a node was: the infrastructure's where several went together or a hardware event came before it.

The fold of one node cannot know that, so every verdict calls NODE_LOST ambiguous (architecture 4); this is a second
pass over the facts of all nodes of a computation. Everything else of the facts stays as it is.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

from claims.domain.facts import FactRun, Facts, Reason, Standing, ancestors
from claims.domain.result import Inputs
from claims.domain.spans import Span, Spans, normalise
from fleet.domain.incidents import REOPEN_SLOTS
from fleet.domain.incidents_cluster import NodeFault, cluster_faults

NODE_LOST = "NODE_LOST"
#: A hardware event that began at most this long before a node's death (ten minutes, as an incident reopens) came with
#: it; a device that was broken for days says nothing of why its node died.
BEFORE_SLOTS = REOPEN_SLOTS


def with_parties(inputs: Inputs) -> Inputs:
    """The inputs with NODE_LOST the infrastructure's in those deaths that it owns; the same object where none is."""
    lost: dict[str, list[Span]] = {}
    events: dict[str, list[int]] = {}
    for name, runs in inputs.facts.items():
        spans = list(_stretches(runs, _is_lost))
        if spans:
            lost.setdefault(ancestors(name)[-1], []).extend(spans)
    if not lost:
        return inputs
    for name, runs in inputs.facts.items():
        node = ancestors(name)[-1]
        if node in lost:
            events.setdefault(node, []).extend(first for first, _ in _stretches(runs, _is_hardware))
    theirs = _theirs({node: normalise(spans) for node, spans in lost.items()}, events)
    if not theirs:
        return inputs
    return replace(inputs, facts={name: _raised(name, runs, theirs) for name, runs in inputs.facts.items()})


def _theirs(deaths: Mapping[str, Spans], events: Mapping[str, Sequence[int]]) -> dict[str, list[Span]]:
    """Node -> those of its deaths that are the infrastructure's."""
    every = [(node, span) for node, spans in deaths.items() for span in spans]
    numbers = {node: number for number, node in enumerate(deaths)}
    faults = [NodeFault(key, numbers[node], span[0]) for key, (node, span) in enumerate(every)]
    together = {member.key for fault in cluster_faults(faults) for member in fault.members}
    out: dict[str, list[Span]] = {}
    for key, (node, span) in enumerate(every):
        before = any(span[0] - BEFORE_SLOTS <= first <= span[0] for first in events.get(node, ()))
        if key in together or before:
            out.setdefault(node, []).append(span)
    return out


def _stretches(runs: Iterable[FactRun], holds: Callable[[Reason], bool]) -> Iterable[Span]:
    """Where reasons that pass the test stand, neighbouring runs joined."""
    begin = end = -1
    for first, last, facts in runs:
        if facts.reasons and any(holds(reason) for reason in facts.reasons):
            if first != end:
                if end > begin:
                    yield begin, end
                begin = first
            end = last
    if end > begin:
        yield begin, end


def _is_lost(reason: Reason) -> bool:
    return reason.code == NODE_LOST


def _is_hardware(reason: Reason) -> bool:
    """Whether it tells of broken hardware: no mere possibility, and not while the GPU works."""
    return (
        reason.category == "hardware_failure"
        and reason.party == "infrastructure"
        and reason.code != NODE_LOST
        and reason.standing not in (Standing.POSSIBLE, Standing.CONTESTED)
    )


def _raised(name: str, runs: Sequence[FactRun], theirs: Mapping[str, list[Span]]) -> Sequence[FactRun]:
    spans = theirs.get(ancestors(name)[-1])
    if spans is None:
        return runs
    made: dict[int, Facts] = {}
    begins = [first for first, _, _ in runs]
    out = list(runs)
    for begin, stop in spans:
        at = bisect_left(begins, begin)
        while at < len(out) and out[at].first_slot < stop:
            facts = out[at].facts
            if any(map(_is_lost, facts.reasons)):
                if id(facts) not in made:
                    reasons = tuple(_theirs_too(reason) for reason in facts.reasons)
                    made[id(facts)] = facts._replace(reasons=reasons)
                out[at] = out[at]._replace(facts=made[id(facts)])
            at += 1
    return out


def _theirs_too(reason: Reason) -> Reason:
    """An ambiguous NODE_LOST as the infrastructure's; what an amendment calls the customer's stays so."""
    if _is_lost(reason) and reason.party == "ambiguous":
        return reason._replace(party="infrastructure")
    return reason
