"""Keeps cluster-wide incidents in step with the nodes' own: a second pass, outside the fold and its locks.

A member keeps its row and points to the head by `part_of`; the head counts the nodes. Rows that changed wait with
`waits_for_grouping`. A row that a worker holds is left for the next pass.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from django.db import transaction

from fleet.alerts.outbox import tell_of_incident
from fleet.dated import get_org_dated
from fleet.domain.incidents import NODE_LOST, TOGETHER_SLOTS, party_of
from fleet.domain.incidents_cluster import NodeFault, cluster_faults, component
from fleet.domain.rules import Rules
from fleet.domain.slots import hour_of_slot
from fleet.models import Incident

AT_ONCE = 500
REACH_SLOTS = 50 * TOGETHER_SLOTS  # read so far around a change; further when no gap lies within
MOST_REACH_SLOTS = 5760  # a day


def group_waiting() -> int:
    """Group what waits in the current org; the number of incidents looked at."""
    waiting = Incident.objects.filter(waits_for_grouping=True).order_by("pk")
    causes: dict[tuple[int, str], list[tuple[int, int]]] = defaultdict(list)
    for pk, cluster_id, code, slot in waiting.values_list("pk", "cluster_id", "code", "first_slot")[:AT_ONCE]:
        causes[cluster_id, code].append((pk, slot))
    for (cluster_id, code), rows in causes.items():
        for chunk in _near(rows):
            _group(cluster_id, code, chunk)
    return sum(map(len, causes.values()))


def _near(rows: list[tuple[int, int]]) -> list[list[tuple[int, int]]]:
    """The changes of one cause, those far apart in time each for themselves."""
    chunks: list[list[tuple[int, int]]] = []
    for row in sorted(rows, key=lambda row: row[1]):
        if chunks and row[1] - chunks[-1][-1][1] <= REACH_SLOTS:
            chunks[-1].append(row)
        else:
            chunks.append([row])
    return chunks


@transaction.atomic
def _group(cluster_id: int, code: str, touched: Sequence[tuple[int, int]]) -> None:
    """Group anew what lies around these (key, first slot)."""
    keys = [pk for pk, _ in touched]
    first, last = min(slot for _, slot in touched), max(slot for _, slot in touched)
    reach = REACH_SLOTS
    while True:
        low, high = first - reach, last + reach
        found = Incident.objects.filter(cluster_id=cluster_id, code=code, first_slot__gte=low, first_slot__lte=high)
        rows = found.values_list("pk", "node_id", "first_slot", "nodes_together")
        inside = component([NodeFault(pk, node, slot, together > 1) for pk, node, slot, together in rows], keys)
        is_whole = not inside or (
            inside[0].first_slot - low > TOGETHER_SLOTS and high - inside[-1].first_slot > TOGETHER_SLOTS
        )
        if is_whole or reach >= MOST_REACH_SLOTS:
            break
        reach *= 4
    _write(keys, [one.key for one in inside])


def _write(touched: Sequence[int], inside: Sequence[int]) -> None:
    """Set heads and members of these incidents, if no worker holds any of them.

    Who shared a head with one of them before and lies elsewhere waits for a pass of its own.
    """
    own = {*inside, *touched}
    heads = set(Incident.objects.filter(pk__in=own).exclude(part_of=None).values_list("part_of_id", flat=True))
    wanted = own | heads | set(Incident.objects.filter(part_of__in=own | heads).values_list("pk", flat=True))
    rows = Incident.objects.select_for_update(skip_locked=True, of=("self",)).filter(pk__in=wanted).order_by("pk")
    locked = {one.pk: one for one in rows}
    if set(locked) != wanted:
        return
    live = [locked[pk] for pk in inside if locked[pk].withdrawn_at is None]
    groups = cluster_faults(NodeFault(one.pk, one.node_id, one.first_slot, one.nodes_together > 1) for one in live)
    head_of = {m.key: group.head.key for group in groups for m in group.members if m is not group.head}
    nodes_of = {group.head.key: group.nodes for group in groups}
    for pk in sorted(wanted - own):
        Incident.objects.filter(pk=pk).update(waits_for_grouping=True)
    book = get_org_dated().book
    for pk in sorted(own):
        one, head, nodes = locked[pk], head_of.get(pk), nodes_of.get(pk, 1)
        told: dict[str, Any] = {"part_of": head, "nodes_together": nodes, "waits_for_grouping": False}
        if one.code == NODE_LOST:
            rules = book.at(hour_of_slot(one.first_slot))
            told["party"] = _party(one, rules, head is not None or nodes > 1)
        Incident.objects.filter(pk=pk).update(**told)
        if (one.part_of_id, one.nodes_together) != (head, nodes) and one.withdrawn_at is None:
            tell_of_incident(one, "worsened")
        if one.withdrawn_at is not None and not (one.has_human_layer or one.notes.exists()):
            one.delete()


def _party(incident: Incident, rules: Rules, is_together: bool) -> str:
    """Whose fault it is, grouped like this: a node that died with others died by the infrastructure."""
    codes = {code for part in incident.parts for code in part["codes"]}
    return party_of(codes, incident.code, rules, is_together)
