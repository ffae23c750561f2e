"""One slot of one GPU, explained: facts as received, the verdict, its reasons in words, the incident it belongs to."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from fleet.domain.explain import STATES, Explained, explain
from fleet.domain.limits import lowered
from fleet.domain.rules import Reason, Rules
from fleet.domain.slots import SLOT_MS
from fleet.models import Amendment, Incident, NodeLive
from fleet.selectors_api import GpuLine, Span, get_gpu
from fleet.selectors_api_facts import Fact, gpu_in, list_facts
from fleet.selectors_api_time import SlotRun, slot_runs
from fleet.selectors_rules import find_rules

AROUND_SLOTS = 20  # five minutes on each side, for events
EDGE_SLOTS = 240  # an hour, in which the last sample before an incident and the first after it are looked for
SAMPLES = 2  # on each side


@dataclass(frozen=True)
class Explanation:
    """Everything about one slot. `run` is the stretch of equal verdicts around it, within five minutes."""

    line: GpuLine
    slot: int
    run: SlotRun
    meaning: str
    reasons: tuple[Explained, ...]
    samples: tuple[Fact, ...]
    events: tuple[Fact, ...]
    incidents: tuple[Incident, ...]
    rules: Rules
    is_rules_found: bool
    amendments: tuple[Amendment, ...] = ()  # of the reasons of this slot
    limits: tuple[tuple[Reason, str], ...] = ()  # what somebody set below its default, as read in the slot or before it


def find_gpu(uuid: str) -> tuple[int, int] | None:
    """(node id, index) of the place in which a GPU sits now."""
    live = NodeLive.objects.filter(
        summary__subjects__contains=[{"kind": "gpu", "device": uuid}], node__cluster__removed_at=None
    ).first()
    if live is None:
        return None
    subject = next(s["subject"] for s in live.summary["subjects"] if s.get("device") == uuid)
    return live.pk, int(subject[1:])


def get_explanation(now: datetime, node_id: int, place: int, slot: int, scope: str = "") -> Explanation | None:
    """What is known of a slot of a GPU's place; None if there is no such place.

    At most six queries, and eight more where no sample is near.
    """
    line = get_gpu(now, node_id, place, scope)
    if line is None:
        return None
    around = Span(max(0, slot - AROUND_SLOTS), slot + AROUND_SLOTS + 1)
    run = next(run for run in slot_runs(node_id, f"g{place}", around) if run.first_slot <= slot < run.end_slot)
    facts = list_facts([node_id], around)
    samples = [fact for fact in facts if fact.event is None]
    before = [fact for fact in samples if fact.ms < slot * SLOT_MS][-SAMPLES:]
    within = [fact for fact in samples if fact.ms // SLOT_MS == slot]
    after = [fact for fact in samples if fact.ms >= (slot + 1) * SLOT_MS][:SAMPLES]
    found = find_rules(run.rules)
    codes = {*run.verdict.certain, *run.verdict.possible}
    incidents = tuple(_incidents(node_id, place, slot))
    if incidents and not (before or within or after):
        before, after = _edges(node_id, place, incidents[0])
    return Explanation(
        line=line,
        slot=slot,
        run=run,
        meaning=STATES[run.verdict.state],
        reasons=explain(run.verdict, found.rules),
        samples=tuple(before + within + after),
        events=tuple(fact for fact in facts if fact.event is not None),
        incidents=incidents,
        rules=found.rules,
        is_rules_found=found.is_found,
        amendments=tuple(one for one in found.amendments if one.code in codes),
        limits=_limits(within or before[-1:], line.gpu.uuid, line.gpu.bus_id, found.rules),
    )


def _limits(samples: list[Fact], uuid: str, bus_id: str, rules: Rules) -> tuple[tuple[Reason, str], ...]:
    """(reason, what was read) of each limit below its default in the last of these samples."""
    found = gpu_in(samples[-1].interval, uuid, bus_id) if samples else None
    told = lowered(found, rules) if found is not None else ()
    return tuple((reason, one.words) for one in told if (reason := rules.of(one.code)) is not None)


def _edges(node_id: int, place: int, incident: Incident) -> tuple[list[Fact], list[Fact]]:
    """(the last sample before an incident's part of a GPU, the first after it), for a slot that has none near it."""
    part = next(part for part in incident.parts if part["subject"] == f"g{place}")
    first, end = part["first_slot"], part["end_slot"]
    before = list_facts([node_id], Span(max(0, first - EDGE_SLOTS), first + 1), events=False)
    after = list_facts([node_id], Span(end, end + EDGE_SLOTS), events=False)
    return before[-1:], after[:1]


def _incidents(node_id: int, place: int, slot: int) -> list[Incident]:
    """Those whose part of this GPU holds the slot."""
    found = Incident.objects.filter(node_id=node_id, first_slot__lte=slot, end_slot__gt=slot, withdrawn_at=None)
    return [
        incident
        for incident in found
        if any(
            part["subject"] == f"g{place}" and part["first_slot"] <= slot < part["end_slot"] for part in incident.parts
        )
    ]
