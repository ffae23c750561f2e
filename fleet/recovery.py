"""After a crash of the database: the unlogged tables are empty and are made again from the facts and the final hours.

A row of `fleet_whole`, unlogged like the others, tells that nothing is missing. Without it every node gets its live row
back without a state, dirty from its newest final hour on, so that the re-fold makes its state and its open hours again;
and what came in lately and belongs to older hours or to nodes not known yet waits again. A batch that waits twice is
harmless: it is late, its hour is folded again and comes out the same.
"""

from __future__ import annotations

import logging
from datetime import datetime, timedelta
from typing import Any

from django.db import connection, transaction

from fleet.agents import counts
from fleet.agents.marks import judge_again
from fleet.domain.slots import HOUR_MS
from fleet.sql import ask_org, execute

log = logging.getLogger(__name__)
#: An upload's time of receipt lies before its commit; nothing takes longer than this in between.
MARGIN = timedelta(minutes=10)
NOTE_EVERY = timedelta(seconds=60)

_LIVES = """
insert into fleet_nodelive (node_id, dirty_hour, dirty_through, attempts, error, agent_version, dropped_total, summary)
select n.id, least(d.first_hour, found.first), case when coalesce(d.first_hour, found.first) is not null
       then greatest(d.last_hour, found.last, found.first, d.first_hour) end, 0, '', '', n.dropped_total, '{}'
  from fleet_node n left join fleet_dirtyspan d on d.node_id = n.id
  cross join lateral (select max(h.hour) as hour from fleet_nodehour_final h where h.node_id = n.id) final
  cross join lateral (  -- what was merged is folded with the node that it was merged into
    select case when count(*) > 0 and n.merged_into_id is null
                then coalesce(final.hour + 1, min(f.first_hour)) end as first,
           max(least(f.last_hour, %(now)s)) as last
      from (
        select i.first_hour, i.last_hour from fleet_node m join fleet_inbox i on i.node_key = m.key
         where (m.id = n.id or m.merged_into_id = n.id) and i.sample_day > '1970-01-01'
           and i.first_hour between coalesce(final.hour - 1, 0) and %(now)s
        union all
        select p.first_hour, p.last_hour from fleet_node m join fleet_pack p on p.node_key = m.key
         where (m.id = n.id or m.merged_into_id = n.id) and p.sample_day > '1970-01-01'
           and p.first_hour between coalesce(final.hour - 1, 0) and %(now)s
        union all
        select k.first_hour, k.last_hour from fleet_batchmark k
         where k.node_id = n.id and k.reason = 'moved' and k.last_hour > coalesce(final.hour, 0)
      ) f
  ) found
on conflict (node_id) do nothing
"""
_QUEUE = """
insert into fleet_waiting (sample_day, sha256, received_at, node_key, cluster, node, hw_id, first_hour, last_hour,
                           is_seq_conflict)
select i.sample_day, i.sha256, i.received_at, i.node_key, i.cluster, i.node, i.hw_id, i.first_hour, i.last_hour,
       i.is_seq_conflict
  from fleet_inbox i left join fleet_node n on n.key = i.node_key
  left join fleet_nodelive l on l.node_id = coalesce(n.merged_into_id, n.id)
 where i.received_at >= %(since)s
   and (l.dirty_hour is null or i.first_hour < l.dirty_hour or i.first_hour > %(now)s or i.sample_day = '1970-01-01')
   and not exists (select 1 from fleet_batchmark m where m.sample_day = i.sample_day and m.sha256 = i.sha256)
   and not exists (select 1 from fleet_waiting w where w.sample_day = i.sample_day and w.sha256 = i.sha256)
 order by i.received_at
returning id
"""


def is_whole() -> bool:
    """Whether nothing is missing in the current org."""
    return bool(ask_org("select 1 from {whole} limit 1", "whole"))


def recover(now: datetime) -> int | None:
    """Make again what a crash took from the current org; the number of nodes to fold again, None when it is whole."""
    if is_whole():
        return None
    with transaction.atomic():
        execute("select pg_advisory_xact_lock(hashtext(current_schema() || '.recover'))", [])
        if is_whole():
            return None
        lost = make_lives(now)
        ((since,),) = execute("select coalesce(min(at), '1970-01-05'::timestamptz) from fleet_folded_through", [])
        queued = _execute_named(_QUEUE, {"since": since - MARGIN, "now": _hour(now)})
        judge_again(since - MARGIN)
        counts.count_again()
        execute("insert into fleet_whole default values", [])
    log.warning("after a crash: %d nodes are folded again from their last final hour, %d batches wait", lost, queued)
    return lost


def make_lives(now: datetime) -> int:
    """Give every node without a live row one that asks for a re-fold from its newest final hour on; how many do."""
    _execute_named(_LIVES, {"now": _hour(now)})
    rows = execute("select count(*) from fleet_nodelive where state is null and dirty_hour is not null", [])
    return int(rows[0][0])


def is_noting_due(noted: datetime, now: datetime) -> bool:
    """Whether what was noted last is about a minute old."""
    return now - noted >= NOTE_EVERY


def note_progress(now: datetime) -> None:
    """Keep, about once a minute, up to when everything received is folded: how far back `recover` has to look."""
    ((at,),) = execute("select coalesce(min(at), '1970-01-05'::timestamptz) from fleet_folded_through", [])
    if not is_noting_due(at, now):
        return
    ((oldest,),) = execute("select min(received_at) from fleet_waiting", [])
    through = min(oldest or now, now)
    if through > at:
        with transaction.atomic():
            execute("delete from fleet_folded_through", [])
            execute("insert into fleet_folded_through values (%b)", [through])
        counts.move(through - MARGIN)


def _hour(now: datetime) -> int:
    """The hour of now; what says that it is later is no evidence of the hours behind it."""
    return int(now.timestamp() * 1000) // HOUR_MS


def _execute_named(statement: str, values: dict[str, Any]) -> int:
    with connection.cursor() as cursor:
        cursor.execute(statement, values)
        return int(cursor.rowcount)
