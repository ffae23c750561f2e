"""Reads of `/metrics`: nodes now, their sums of the last 24 hours, the last full hour of each GPU."""

from __future__ import annotations

from datetime import datetime

from django.db import connection

from fleet.domain.slots import SLOTS_PER_HOUR, hour_of
from fleet.metrics_text import MAX_GPUS, NodeFigures
from fleet.selectors_api import NodeLine, Span, Wanted, iter_nodes
from fleet.selectors_api_availability import sums_by_node
from fleet.selectors_hours import read_hour
from fleet.selectors_live import to_ms

DAY = 24

_LAST = "select node_id, body from fleet_nodehour where node_id = any(%s) and hour = %s"


def read_metrics(now: datetime, wanted: Wanted) -> tuple[list[NodeLine], dict[int, NodeFigures]]:
    """(nodes, node id → figures). Four queries for up to 250 nodes."""
    nodes = list(iter_nodes(now, wanted))
    hour = hour_of(to_ms(now))
    span = Span((hour - DAY) * SLOTS_PER_HOUR, hour * SLOTS_PER_HOUR)
    sums = sums_by_node(now, span, {line.id: line for line in nodes})
    last: dict[int, dict[int, int]] = {}
    if sum(len(line.now.gpus) for line in nodes) <= MAX_GPUS:
        with connection.cursor() as cursor:
            cursor.execute(_LAST, [[line.id for line in nodes], hour - 1])
            for node_id, body in cursor.fetchall():
                last[node_id] = {place: one.known for place, one in read_hour(bytes(body)).sums.items()}
    figures = {
        node_id: NodeFigures(tally.nominal, tally.known, tally.counted, last.get(node_id))
        for node_id, tally in sums.items()
    }
    return nodes, figures
