"""Nodes with fewer network ports than their neighbours: what the majority of a cluster's nodes of one kind has.

Nobody declared those ports and nobody saw them, so nothing is lowered: it is told as something to look at, with what
each GPU would weigh at worst (fold.md 16, "else peer majority"; architecture 4, second pass).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from django.db.models import Q

from fleet.attention import Trouble
from fleet.domain.second_pass import PEERS, NodePorts, Shortfall, shortfalls
from fleet.models import ExpectedHardware, Node
from fleet.reading import NodeRow
from fleet.selectors_live import action_of, title_of
from fleet.sql import execute

#: A port is known after 24 hours ACTIVE: a younger node has none yet.
YOUNG = timedelta(hours=25)
_COUNTS = """
select n.id, (select count(*) from jsonb_array_elements(l.summary -> 'subjects') s where s ->> 'kind' = 'gpu'),
       (select count(*) from jsonb_array_elements(l.summary -> 'subjects') s where s ->> 'kind' = 'port')
  from fleet_node n join fleet_nodelive l on l.node_id = n.id
 where n.cluster_id = %b and n.merged_into_id is null and n.retired_at is null and l.summary ? 'subjects'
"""


def with_neighbours(rows: Sequence[NodeRow], now: datetime) -> list[NodeRow]:
    """The same nodes, those with fewer ports than their neighbours with that among their troubles.

    One query, and only where there is such a node.
    """
    counts: dict[int, list[tuple[int, int, int]]] = defaultdict(list)
    for row in rows:
        counts[row.cluster_id].append((row.id, len(row.now.gpus), len(row.now.ports)))
    found = _found(counts.values(), now)
    if not found:
        return list(rows)
    return [
        replace(row, troubles=(*row.troubles, _trouble(row, found[row.id]))) if row.id in found else row for row in rows
    ]


def shortfall_of(node: Node, now: datetime) -> Shortfall | None:
    """How many ports this node lacks beside its neighbours; None where it lacks none. Two queries."""
    return _found([execute(_COUNTS, [node.cluster_id])], now).get(node.pk)


def _found(clusters: Iterable[Iterable[tuple[Any, ...]]], now: datetime) -> dict[int, Shortfall]:
    found: dict[int, Shortfall] = {}
    for counts in clusters:
        nodes = [NodePorts(str(node_id), gpus, ports) for node_id, gpus, ports in counts if gpus]
        found |= {int(one.node): one for one in shortfalls(nodes)}
    if not found:
        return {}
    declared = ExpectedHardware.objects.filter(
        Q(until_at=None) | Q(until_at__gt=now), node__in=found, withdrawn_at=None, from_at__lte=now
    ).exclude(ports=None)
    told = Node.objects.filter(pk__in=found, first_seen_at__lt=now - YOUNG).exclude(pk__in=declared.values("node_id"))
    return {pk: found[pk] for pk in told.values_list("pk", flat=True)}


def sentence(one: Shortfall) -> str:
    """What is known and what it would mean at worst."""
    have = one.expected - one.missing
    other, them, they = ("others", "them", "they") if one.missing > 1 else ("other", "it", "it")
    return (
        f"Most nodes of its kind in the cluster have {one.expected} ports, this one ever had {have}."
        f" Nobody declared the {other} and nobody saw {them}, so nothing is lowered;"
        f" were {they} down, each of its GPUs would weigh {one.upper} of 100."
    )


def _trouble(row: NodeRow, one: Shortfall) -> Trouble:
    return Trouble(
        node_id=row.id,
        node=row.name,
        cluster=row.cluster,
        word="available",
        code=PEERS,
        what=title_of(PEERS),
        text=sentence(one),
        action=action_of(PEERS),
        party="ambiguous",
        since_ms=None,
        subjects=(),
        is_condition=False,
        is_certain=False,
        mark="to look at",
        headline=f"{row.name} has {one.expected - one.missing} ports, its neighbours have {one.expected}",
    )
