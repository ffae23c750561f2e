"""Silent nodes with an open condition, or at which the probe fails: their hours are written as far as can be said.
They stay provisional.

An hour without a row is unknown, so a silent node without a condition needs no row. When something comes from the node
again, the fold writes these hours anew.
"""

from __future__ import annotations

import logging
from datetime import datetime, timedelta

from django.db import transaction
from django.db.models import Q

from fleet.bodies import decompress, load_row
from fleet.dated import dated_for, hour_at
from fleet.domain.node_hours import rows_needed, silence_rows
from fleet.domain.state import NodeState
from fleet.folding import sealed_hour
from fleet.incidents import sync_incidents
from fleet.models import NodeHour, NodeLive, ProbeRun
from fleet.node_rows import write_hours

log = logging.getLogger(__name__)
SILENT_AFTER = timedelta(seconds=90)
FORGOTTEN_AFTER = timedelta(days=40)  # a claim is made long before
NODES_AT_ONCE = 200
PROBED_WITHIN = timedelta(minutes=10)


def close_silence(now: datetime) -> int:
    """Write the provisional hours of the current org's silent nodes that have an open condition; the nodes done."""
    waiting = NodeLive.objects.filter(
        last_sample_at__lt=now - SILENT_AFTER,
        last_sample_at__gt=now - FORGOTTEN_AFTER,
        dirty_hour=None,
    ).filter(Q(summary__contains={"has_conditions": True}) | Q(pk__in=_unreachable(now)))
    done = 0
    for node_id in waiting.order_by("pk").values_list("pk", flat=True)[:NODES_AT_ONCE]:
        try:
            done += _close(node_id, now)
        except Exception:  # one bad node must not stop the others; it is tried again in a minute
            log.exception("the silence of node %s can't be written", node_id)
    return done


def _unreachable(now: datetime) -> list[int]:
    """The nodes at which a probe failed lately: their silence has a witness."""
    runs = ProbeRun.objects.filter(outcome=ProbeRun.Outcome.FAILED, last_at__gt=now - PROBED_WITHIN, rounds__gt=1)
    return list(runs.values_list("node_id", flat=True).distinct())


@transaction.atomic
def _close(node_id: int, now: datetime) -> bool:
    """Write one node's provisional hours up to `now`, if no worker holds it."""
    live = NodeLive.objects.select_for_update(skip_locked=True).filter(pk=node_id).first()
    if live is None or live.state is None or live.dirty_hour is not None:
        return False
    dated = dated_for([node_id])(node_id)
    state = NodeState.from_bytes(decompress(live.state))
    needed = rows_needed(state)
    stored = {
        hour: load_row(body)
        for hour, body in NodeHour.objects.filter(node_id=node_id, hour__gte=min(needed)).values_list("hour", "body")
    }
    rows = silence_rows(
        state,
        {hour: stored[hour] for hour in needed if hour in stored},
        int(now.timestamp() * 1000),
        dated,
    )
    sealed = sealed_hour()
    changed = {
        (node_id, hour): row
        for hour, row in rows.items()
        if hour >= sealed and (hour not in stored or stored[hour].to_bytes() != row.to_bytes())
    }
    write_hours(changed)
    sync_incidents(changed, dated.rules(hour_at(now)))
    return True
