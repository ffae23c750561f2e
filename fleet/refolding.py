"""Folding again: hours that late facts reached, nodes that lost their state, and on request everything not sealed.

Re-delivery and order of arrival don't matter because a row is the fold of its hour's items from the closing state
before it: dirty hours are folded oldest first, and the hours after them until the closing state's bytes are equal.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator
from datetime import datetime
from functools import partial

from django.db import connection, transaction
from django.db.models import F

from fleet.bodies import compress, load_row
from fleet.dated import dated_for, hour_at
from fleet.day_sums import forget_days
from fleet.decode import decode_trusted
from fleet.domain.refold import refold_from
from fleet.domain.state import NodeState, OtherFormat
from fleet.domain.strips import HourRow
from fleet.domain.summary import current
from fleet.evidence import newest_of
from fleet.folding import fold_waiting, instant, sealed_hour
from fleet.incidents import sync_incidents
from fleet.models import NodeHour, NodeLive
from fleet.node_rows import read_rows, remove_hours, write_hours
from fleet.node_summary import as_json, domain_in, models_of
from fleet.recovery import make_lives
from fleet.refold_batches import NodeBatches
from fleet.refold_whole import fold_whole
from fleet.selectors_waiting import MAX_ATTEMPTS
from fleet.sql import execute
from fleet.waiting import Mark, is_moved, mark, unmark

log = logging.getLogger(__name__)
HOURS_READ = 12

_LAST_HOUR = """
select greatest(%b,
  (select max(least(i.last_hour, %b)) from fleet_node m join fleet_inbox i on i.node_key = m.key
    where (m.id = %b or m.merged_into_id = %b) and i.sample_day > '1970-01-01' and i.first_hour between %b and %b),
  (select max(least(p.last_hour, %b)) from fleet_node m join fleet_pack p on p.node_key = m.key
    where (m.id = %b or m.merged_into_id = %b) and p.sample_day > '1970-01-01' and p.first_hour between %b and %b),
  (select max(last_hour) from fleet_batchmark where node_id = %b and reason = 'moved'),
  (select max(hour) from fleet_nodehour where node_id = %b))
"""
_COUNT = """
select (select count(*) from fleet_node m join fleet_inbox i on i.node_key = m.key)
     + (select coalesce(sum(p.count), 0) from fleet_node m join fleet_pack p on p.node_key = m.key)
"""


def refold_dirty(now: datetime, limit: int = 50) -> int:
    """Fold dirty hours of the current org again, one node a transaction; the number of nodes done.

    A node that fails is tried `MAX_ATTEMPTS` times and then set aside, its hours still dirty, until somebody asks.
    """
    done = 0
    tried: set[int] = set()
    while len(tried) < limit:
        waiting = NodeLive.objects.filter(dirty_hour__isnull=False, attempts__lt=MAX_ATTEMPTS).exclude(pk__in=tried)
        with transaction.atomic():  # looks for one that no other worker holds; refold_node locks it again
            ids = waiting.select_for_update(skip_locked=True).order_by("dirty_hour").values_list("pk", flat=True)[:1]
            node_id = next(iter(ids), None)
        if node_id is None:
            break
        tried.add(node_id)
        try:
            done += refold_node(node_id, now)
        except OtherFormat:
            raise  # of every node: `forget_old_states` mends it
        except Exception as error:  # one bad node must not stop the others; it is counted, logged and shown
            log.exception("re-folding node %s failed", node_id)
            told = f"{type(error).__name__}: {error}"[:500]
            NodeLive.objects.filter(pk=node_id).update(attempts=F("attempts") + 1, error=told)
    return done


@transaction.atomic
def refold_node(node_id: int, now: datetime) -> bool:
    """Fold a node's dirty hours again, from its earliest on. False if none is dirty or another worker has the node."""
    live = NodeLive.objects.select_for_update(skip_locked=True).filter(pk=node_id, dirty_hour__isnull=False).first()
    if live is None or live.dirty_hour is None:
        return False
    if live.state is None:
        _fold_lost(live, now)
        return True
    sealed = sealed_hour()
    first = max(live.dirty_hour, sealed)
    last = last_hour(node_id, max(first, live.dirty_through or first), hour_at(now))
    dated = dated_for([node_id])(node_id)
    rules = dated.rules(hour_at(now))
    batches = NodeBatches(node_id)
    refolded = refold_from(
        first,
        last,
        partial(closings, node_id),
        batches.load,
        StoredRows(node_id).load,
        dated,
        through_hour=live.dirty_through,
        stands=batches.stands,
        sealed_until=sealed,
    )
    written = {(node_id, hour): row for hour, row in refolded.rows.items()}
    write_hours(written, may_reopen=True)
    remove_hours(node_id, refolded.gone)
    gone = {(node_id, hour): HourRow(hour) for hour in refolded.gone}  # nothing is said of them any more
    sync_incidents(written | gone, rules)
    _mark(node_id, refolded.touched, refolded.suspect, batches)
    live.dirty_hour = live.dirty_through = None
    live.attempts, live.error = 0, ""
    if refolded.state is not None:
        live.state = compress(refolded.state.to_bytes())
        live.last_sample_at = instant(refolded.state.last_sample_ms)
        models, driver = live.summary.get("models", {}), live.summary.get("driver")
        node_now = current(refolded.state, int(now.timestamp() * 1000), rules, dated.context(hour_at(now)))
        live.summary = json.loads(as_json(node_now, models, driver, live.summary.get("domain", "")))
    live.save()
    execute("delete from fleet_dirtyspan where node_id = %b", [node_id])
    return True


def _fold_lost(live: NodeLive, now: datetime) -> None:
    """Fold a node whose state is gone from its dirty hour on; what turns out to be late is left dirty."""
    node_id, sealed = live.pk, sealed_hour()
    first = max(live.dirty_hour or 0, sealed)
    last = last_hour(node_id, max(first, live.dirty_through or first), hour_at(now))
    dated = dated_for([node_id])(node_id)
    batches = NodeBatches(node_id)
    whole = fold_whole(opening_state(node_id, first), first, last, dated, batches, sealed)
    _mark(node_id, whole.touched, tuple(whole.suspect), batches)
    mark(whole.failed)
    span = execute("select first_hour, last_hour from fleet_dirtyspan where node_id = %b", [node_id])
    late = [*whole.dirty, *(hour for pair in span for hour in pair)]  # those of before the crash as well
    dirty = sorted({max(hour, sealed) for hour in late if hour >= sealed - 1})
    live.dirty_hour, live.dirty_through = (dirty[0], dirty[-1]) if dirty else (None, None)
    live.attempts, live.error = 0, ""
    if whole.state is not None:
        live.state = compress(whole.state.to_bytes())
        live.last_sample_at = instant(whole.state.last_sample_ms)
        models, driver, domain = _fill_in(live, first)
        hour = hour_at(now)
        node_now = current(whole.state, int(now.timestamp() * 1000), dated.rules(hour), dated.context(hour))
        live.summary = json.loads(as_json(node_now, models, driver, domain))
    else:
        live.dirty_hour = live.dirty_through = None
    live.save()
    execute("delete from fleet_dirtyspan where node_id = %b", [node_id])
    if live.dirty_hour is not None:
        execute("insert into fleet_dirtyspan values (%b, %b, %b)", [node_id, live.dirty_hour, live.dirty_through])


def _fill_in(live: NodeLive, hour: int) -> tuple[dict[str, str], str | None, str]:
    """Give a lost live row what its newest batch says; (models, driver, NVLink domain)."""
    newest = newest_of(live.pk, hour - 1)
    if newest is None:
        return {}, None, ""
    batch = decode_trusted(newest.raw())
    live.agent_version, live.last_received_at = batch.agent_version, newest.received_at
    return models_of(batch), batch.driver_version, domain_in(batch)


def _mark(
    node_id: int, touched: dict[bytes, tuple[int, int]], suspect: tuple[bytes, ...], batches: NodeBatches
) -> None:
    """Note which batches were found elsewhere than they say, and which are where they say after all."""
    marks: list[Mark] = list(batches.failed)
    right = []
    for sha256, placed in touched.items():
        one = batches.said.get(sha256)
        if one is None:
            continue
        if is_moved(one.sample_day, one.said, placed):
            if not one.reason or placed != (one.first_hour, one.last_hour):
                marks.append((one.sample_day, sha256, "moved", node_id, *placed, ""))
        elif one.reason:
            right.append((one.sample_day, sha256))
    for sha256 in suspect:
        one = batches.said.get(sha256)
        if one is not None:
            marks.append((one.sample_day, sha256, "suspect_clock", node_id, None, None, ""))
    mark(marks)
    unmark(right)


def opening_state(node_id: int, hour: int) -> NodeState | None:
    """The closing state of the newest hour before `hour` that holds items.

    Raises OtherFormat where another version of the fold wrote it, unless that hour is sealed: then it is brought up to
    date, so that what was open in it goes on.
    """
    return next((state for _, state in closings(node_id, hour)), None)


def closings(node_id: int, hour: int) -> Iterator[tuple[int, NodeState]]:
    """(hour, closing state) of the hours before this one that hold items, newest first; of the sealed ones the newest
    alone. Raises OtherFormat as `opening_state` does.
    """
    earlier = NodeHour.objects.filter(node_id=node_id, hour__lt=hour).order_by("-hour").values_list("body", flat=True)
    sealed: int | None = None
    for body in earlier.iterator(chunk_size=8):  # the first nearly always holds some; silence may leave a row of hours
        row = load_row(body)
        if not row.closing_state:
            continue
        try:
            state = NodeState.from_bytes(row.closing_state)
        except OtherFormat as error:
            if not error.is_older or row.hour >= sealed_hour():
                raise
            try:
                state = NodeState.from_bytes(row.closing_state, is_sealed=True)
            except OtherFormat:  # from before the first release
                log.warning("node %s: the state of its last sealed hour can't be read: %s", node_id, error)
                return
        yield row.hour, state
        sealed = sealed_hour() if sealed is None else sealed
        if row.hour < sealed:
            return


def last_hour(node_id: int, at_least: int, now_hour: int) -> int:
    """The newest hour that has items or a row of this node."""
    mine = [now_hour, node_id, node_id, at_least - 1, now_hour]
    ((newest,),) = execute(_LAST_HOUR, [at_least, *mine, *mine, node_id, node_id])
    return int(newest)


class StoredRows:
    """A node's hours as they are stored, read some hours ahead; they are asked for about in order."""

    def __init__(self, node_id: int) -> None:
        self.node_id = node_id
        self._rows: dict[int, HourRow | None] = {}

    def load(self, hour: int) -> HourRow | None:
        """The row of this hour, None if there is none."""
        if hour not in self._rows:
            hours = range(hour, hour + HOURS_READ)
            found = read_rows((self.node_id, at) for at in hours).get(self.node_id, {})
            self._rows = {at: row for at, row in self._rows.items() if at >= hour - HOURS_READ}
            self._rows.update((at, found.get(at)) for at in hours)
        return self._rows[hour]


def forget_derived(now: datetime) -> int:
    """Throw away what is derived in the current org and not sealed; the number of nodes that wait to be folded again.

    Facts and sealed hours are not touched. Pages show the nodes as unknown until they are folded again.
    """
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("select 1 from fleet_nodelive for update")  # wait for workers that hold a node
        cursor.execute("delete from fleet_nodehour where hour >= %s", [sealed_hour()])
        forget_days(sealed_hour())
        cursor.execute("delete from fleet_nodelive")
        cursor.execute("delete from fleet_dirtyspan")
        cursor.execute(
            "with again as (delete from fleet_batchmark where reason = 'suspect_clock' returning sample_day, sha256)"
            " insert into fleet_waiting (sample_day, sha256, received_at, node_key, cluster, node, hw_id, first_hour,"
            " last_hour, is_seq_conflict) select i.sample_day, i.sha256, i.received_at, i.node_key, i.cluster, i.node,"
            " i.hw_id, i.first_hour, i.last_hour, i.is_seq_conflict from again a join fleet_inbox i"
            " on i.sample_day = a.sample_day and i.sha256 = a.sha256"
        )
        return make_lives(now)


def forget_old_states(error: OtherFormat, now: datetime) -> None:
    """After an upgrade: an older version of the fold wrote what is open, so it is made again from the facts.

    Raises `error` where a newer version wrote it: this process is the one that is out of date.
    """
    if not error.is_older:
        raise error
    log.warning("%s: everything that is not sealed is folded again, %d nodes", error, forget_derived(now))


def refold_everything(
    now: datetime,
    progress: Callable[[int, int], None] = lambda done, of: None,
    begun: Callable[[], None] = lambda: None,
) -> int:
    """Throw away what is derived in the current org and fold its facts again; the number of batches of its nodes.

    `progress`: how many nodes of how many are folded. `begun` is called when there is work: from then on other
    processes may help with `refold_dirty`.
    """
    of = forget_derived(now)
    begun()
    while refold_dirty(now, limit=1):
        progress(of - NodeLive.objects.filter(state=None, dirty_hour__isnull=False).count(), of)
    while fold_waiting(now, budget_seconds=2.0) or refold_dirty(now):
        pass
    return int(execute(_COUNT, [])[0][0])
