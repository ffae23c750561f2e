"""Reads of incidents for the API: lists with their filters, and one with its exact slots."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from django.db.models import Q, QuerySet

from fleet.bodies import load_row
from fleet.domain.incidents import opens
from fleet.domain.rules import Rules
from fleet.domain.slots import hour_of_slot
from fleet.domain.strips import StripRun
from fleet.models import Incident, NodeHour

MAX_HOURS = 31 * 24  # of slots that one answer lists; an older part keeps its sums


@dataclass(frozen=True)
class IncidentFilter:
    """What is asked for. Slots are absolute; `since` and `until` take what overlaps `[since, until)`."""

    scope: str = ""
    is_open: bool | None = None
    since_slot: int | None = None
    until_slot: int | None = None
    party: str = ""
    code: str = ""
    node: str = ""
    node_id: int | None = None
    cluster: str = ""
    with_withdrawn: bool = False


def incidents_within(scope: str) -> QuerySet[Incident]:
    """The incidents that a key may see, with node and cluster."""
    found = Incident.objects.select_related("node", "cluster").filter(cluster__removed_at=None)
    return found.filter(cluster__name=scope) if scope else found


def list_incidents(
    wanted: IncidentFilter, after: tuple[int, ...] | None, size: int
) -> tuple[list[Incident], tuple[int, int] | None]:
    """(a page of incidents, the newest beginning first, the place after which the next page begins). One query."""
    found = incidents_within(wanted.scope)
    if not wanted.with_withdrawn:
        found = found.filter(withdrawn_at=None)
    if wanted.is_open is not None:
        found = found.filter(is_open=wanted.is_open)
    if wanted.since_slot is not None:
        found = found.filter(Q(end_slot__gt=wanted.since_slot) | Q(is_open=True))
    if wanted.until_slot is not None:
        found = found.filter(first_slot__lt=wanted.until_slot)
    for name, value in (("party", wanted.party), ("node__name", wanted.node), ("cluster__name", wanted.cluster)):
        if value:
            found = found.filter(**{name: value})
    if wanted.node_id is not None:
        found = found.filter(node_id=wanted.node_id)
    if wanted.code:  # any reason in it, not only the one that leads
        found = found.filter(Q(code=wanted.code) | Q(parts__contains=[{"codes": {wanted.code: []}}]))
    if after is not None:
        found = found.filter(Q(first_slot__lt=after[0]) | Q(first_slot=after[0], pk__lt=after[1]))
    page = list(found.order_by("-first_slot", "-pk")[: size + 1])
    if len(page) <= size:
        return page, None
    last = page[size - 1]
    return page[:size], (last.first_slot, last.pk)


def get_incident(pk: int, scope: str) -> Incident | None:
    """One incident with its notes; None if there is none, or none that the key may see."""
    return incidents_within(scope).prefetch_related("notes").filter(pk=pk).first()


def bad_runs(incident: Incident, rules: Rules) -> tuple[int, dict[str, list[StripRun]]]:
    """(the slot from which they are listed, subject → the bad slots of its part as runs). One query.

    They are read from the strips; an incident of more than `MAX_HOURS` lists those of its newest hours.
    """
    last = hour_of_slot(incident.end_slot - 1)
    first = max(hour_of_slot(incident.first_slot), last - MAX_HOURS + 1)
    parts = {part["subject"]: part for part in incident.parts}
    runs: dict[str, list[StripRun]] = defaultdict(list)
    rows = NodeHour.objects.filter(node_id=incident.node_id, hour__gte=first, hour__lte=last).order_by("hour")
    for body in rows.values_list("body", flat=True):
        row = load_row(body)
        for subject, part in parts.items():
            for run in _clipped(row.runs(subject), part):
                if any(opens(code, rules) for code in (*run.verdict.certain, *run.verdict.possible)):
                    _append(runs[subject], run)
    return max(incident.first_slot, first * 240), dict(runs)


def _clipped(runs: Iterator[StripRun], part: dict[str, Any]) -> Iterator[StripRun]:
    for run in runs:
        first, end = max(run.first_slot, part["first_slot"]), min(run.end_slot, part["end_slot"])
        if first < end:
            yield StripRun(first, end, run.verdict)


def _append(runs: list[StripRun], run: StripRun) -> None:
    last = runs[-1] if runs else None
    if last and last.end_slot == run.first_slot and last.verdict == run.verdict:
        runs[-1] = StripRun(last.first_slot, run.end_slot, run.verdict)
    else:
        runs.append(run)
