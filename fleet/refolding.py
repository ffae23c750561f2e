"""Folding again: hours that late facts reached, and on request everything from the inbox.

Re-delivery and order of arrival don't matter because a row is the fold of its hour's items from the closing state
before it: dirty hours are folded oldest first, and the hours after them until the closing state's bytes are equal.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterable
from datetime import datetime

from django.db import connection, transaction

from fleet.bodies import compress, load_row
from fleet.dated import dated_for, hour_at
from fleet.domain.node_hours import ReceivedBatch, refold
from fleet.domain.state import NodeState
from fleet.domain.strips import HourRow
from fleet.domain.summary import current
from fleet.folding import fold_waiting, instant, received_batch, write_hours
from fleet.incidents import sync_incidents
from fleet.models import NodeHour, NodeLive
from fleet.node_summary import as_json

log = logging.getLogger(__name__)

_BATCHES = """
select sha256, body, received_at from fleet_inbox
 where node_ref = %s and last_hour >= %s and first_hour <= %s and error is null
"""


def refold_dirty(now: datetime, limit: int = 50) -> int:
    """Fold dirty hours of the current org again, one node a transaction; the number of nodes done."""
    done = 0
    for node_id in (
        NodeLive.objects.filter(dirty_hour__isnull=False).order_by("dirty_hour").values_list("pk", flat=True)[:limit]
    ):
        try:
            done += refold_node(node_id, now)
        except Exception:  # one bad node must not stop the others; its hours stay dirty and are tried again
            log.exception("re-folding node %s failed", node_id)
    return done


@transaction.atomic
def refold_node(node_id: int, now: datetime) -> bool:
    """Fold a node's dirty hours again, from its earliest on. False if none is dirty or another worker has the node."""
    live = NodeLive.objects.select_for_update(skip_locked=True).filter(pk=node_id, dirty_hour__isnull=False).first()
    if live is None or live.dirty_hour is None:
        return False
    dated = dated_for([node_id])(node_id)
    rules = dated.rules(hour_at(now))
    refolded = refold(
        _opening(node_id, live.dirty_hour),
        live.dirty_hour,
        _last_hour(node_id, live.dirty_hour),
        _batches_of(node_id),
        lambda hour: _row(node_id, hour),
        dated,
        through_hour=live.dirty_through,
    )
    written = {(node_id, hour): row for hour, row in refolded.rows.items()}
    write_hours(written)
    gone = {(node_id, hour): HourRow(hour) for hour in refolded.gone}  # nothing is said of them any more
    if gone:
        NodeHour.objects.filter(node_id=node_id, hour__in=refolded.gone).delete()
    sync_incidents(written | gone, rules)
    live.dirty_hour = live.dirty_through = None
    if refolded.state is not None:
        live.state = compress(refolded.state.to_bytes())
        live.last_sample_at = instant(refolded.state.last_sample_ms)
        node_now = current(refolded.state, int(now.timestamp() * 1000), rules, dated.context(hour_at(now)))
        live.summary = json.loads(as_json(node_now, live.summary.get("models", {}), live.summary.get("driver")))
    live.save(update_fields=["dirty_hour", "dirty_through", "state", "last_sample_at", "summary"])
    return True


def _opening(node_id: int, hour: int) -> NodeState | None:
    """The closing state of the newest hour before `hour` that holds items."""
    earlier = NodeHour.objects.filter(node_id=node_id, hour__lt=hour).order_by("-hour").values_list("body", flat=True)
    for body in earlier.iterator(chunk_size=8):  # the first nearly always holds some; silence may leave a row of hours
        row = load_row(body)
        if row.closing_state:
            return NodeState.from_bytes(row.closing_state)
    return None


def _last_hour(node_id: int, at_least: int) -> int:
    """The newest hour that has items or a row of this node."""
    with connection.cursor() as cursor:
        cursor.execute(
            "select greatest(%s, (select max(last_hour) from fleet_inbox where node_ref = %s and error is null),"
            " (select max(hour) from fleet_nodehour where node_id = %s))",
            [at_least, node_id, node_id],
        )
        newest: int = cursor.fetchone()[0]
        return newest


def _row(node_id: int, hour: int) -> HourRow | None:
    body = NodeHour.objects.filter(node_id=node_id, hour=hour).values_list("body", flat=True).first()
    return None if body is None else load_row(body)


def _batches_of(node_id: int) -> Callable[[int], Iterable[ReceivedBatch]]:
    """A function: every batch of the node that touches an hour or its neighbours."""

    def load(hour: int) -> Iterable[ReceivedBatch]:
        with connection.cursor() as cursor:
            cursor.execute(_BATCHES, [node_id, hour - 1, hour + 1])
            return [received_batch(bytes(sha256), bytes(body), at) for sha256, body, at in cursor.fetchall()]

    return load


def refold_everything(now: datetime, progress: Callable[[int], None] = lambda done: None) -> int:
    """Throw away what is derived in the current org and fold its inbox again; the number of batches folded.

    Facts are not touched. Pages show the org as empty until the first chunk is through.
    """
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("select 1 from fleet_nodelive for update")  # wait for workers that hold a node
        cursor.execute("delete from fleet_nodehour")
        cursor.execute("delete from agents_agentseen")  # counted anew with each batch
        cursor.execute(
            "update fleet_nodelive set state = null, dirty_hour = null, dirty_through = null, summary = '{}',"
            " batches = 0"
        )
        cursor.execute(
            "update fleet_inbox set folded_at = null, node_ref = null, first_hour = null, last_hour = null,"
            " attempts = 0, error = null"
        )
    total = 0
    while done := fold_waiting(now, budget_seconds=2.0):
        total += done
        progress(total)
    while refold_dirty(now):
        pass
    return total
