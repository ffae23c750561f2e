"""Moves the batches of weeks that are over out of the inbox into packs, one per node and hour.

Nothing is deleted on the way: packs are made and read back first, the week's rows stay where they are meanwhile
(readers take each batch once). Only when every row of the week is in a pack, counted under a lock that keeps uploads of
that week out, its partition is emptied. Killed anywhere, the next run goes on.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta

from django.db import DatabaseError, connection, transaction
from psycopg import sql

from fleet import packs
from fleet.holds import closed_gate
from fleet.packs import Row
from fleet.partitions import week_lock
from fleet.sql import columns, execute

log = logging.getLogger(__name__)
HOP_US = 150_000_000  # receipts at most this far apart belong to one span, as `fleet.peers` joins them
LONGEST_SPAN_US = 7_200_000_000  # so that spans are found by where they begin
LOCK_TIMEOUT = "5s"

_WEEKS = """
select c.relname from pg_inherits h join pg_class c on c.oid = h.inhrelid
 where h.inhparent = 'fleet_inbox'::regclass and c.relname ~ '^fleet_inbox_[0-9]{8}$' order by 1
"""
_GROUPS = "select node_key, first_hour, count(*) from {week} group by 1, 2 order by 2, 1"
_HASHES = "select sha256 from {week} where node_key = %b and first_hour = %b"
_PACKED = "select skeleton from fleet_pack where node_key = %b and first_hour = %b"
_ROWS = """
select i.sha256, i.body, i.received_at, i.cluster, i.node, i.hw_id, i.agent_id, i.seq, i.boot_id, i.key_id, i.signature,
       i.dropped_total, i.has_suspect_clock, i.is_seq_conflict, i.last_hour, i.sample_day
  from {week} i where i.node_key = %b and i.first_hour = %b
"""
_INSERT = """
insert into fleet_pack (node_key, sample_day, first_hour, last_hour, count, prefixes, skeleton, body, member_bytes,
                        kept_for, packed_at)
values (%b, %b, %b, %b, %b, %b::int[], %b, %b, %b, '', now())
"""
_SPANS = """
insert into fleet_receiptspan (cluster, node_key, sample_day, from_at, until_at)
select * from unnest(%b::text[], %b::bigint[], %b::date[], %b::timestamptz[], %b::timestamptz[])
"""
_FAILED = """
select i.* from {week} i join fleet_batchmark m on m.sample_day = i.sample_day and m.sha256 = i.sha256
 where m.reason = 'failed'
"""


@dataclass
class Packing:
    """What a run did: batches packed, weeks that left the inbox, bytes before and after; why it stopped, if it did."""

    batches: int = 0
    weeks: int = 0
    member_bytes: int = 0
    packed_bytes: int = 0
    stopped: str = ""


def pack_due(
    now: datetime,
    after_days: int,
    budget_seconds: float = 3600.0,
    progress: Callable[[int], None] = lambda done: None,
) -> Packing:
    """Pack every week of the current org that ended more than `after_days` ago, oldest first, within the budget."""
    deadline = time.monotonic() + budget_seconds
    done = Packing()
    for (name,) in execute(_WEEKS, []):
        monday = date(int(name[-8:-4]), int(name[-4:-2]), int(name[-2:]))
        if monday + timedelta(days=7 + max(1, after_days)) > now.date():
            break
        why = closed_gate(monday, monday + timedelta(days=6))
        if why:
            done.stopped = f"the week of {monday}: {why}"
            break
        if not _pack_week(name, monday, done, deadline, progress):
            break
    return done


def _pack_week(name: str, monday: date, done: Packing, deadline: float, progress: Callable[[int], None]) -> bool:
    """Pack what is left of one week and empty its partition. False when that has to wait for the next run."""
    week = sql.Identifier(name)
    groups = execute(_text(_GROUPS, week), [])
    if not groups:
        return True
    verified = 0
    for node_key, hour, _ in groups:
        if time.monotonic() > deadline:
            done.stopped = "out of time, the next run goes on"
            return False
        verified += pack_group(name, node_key, hour, done)
        progress(done.batches)
    try:
        return _empty(name, monday, verified, done)
    except DatabaseError as error:  # mostly a reader that holds the partition; nothing is lost, the next run empties it
        log.warning("the week of %s is packed but can't be emptied yet: %s", monday, error)
        done.stopped = f"the week of {monday} is packed; its partition is in use"
        return False


@transaction.atomic
def pack_group(week: str, node_key: int, hour: int, done: Packing) -> int:
    """Pack the batches of one node and hour that are in no pack yet; how many of the group are in packs now."""
    table = sql.Identifier(week)
    execute("select pg_advisory_xact_lock(hashtext(current_schema() || '.packing'))", [])
    hashes = {sha256 for (sha256,) in execute(_text(_HASHES, table), [node_key, hour])}
    have = {
        entry.row.sha256
        for (skeleton,) in execute(_PACKED, [node_key, hour])
        for entry in packs.read_skeleton(skeleton)
    }
    if hashes - have:
        found = execute(_text(_ROWS, table), [node_key, hour])
        day = found[0][-1]  # that of their common hour
        rows = [_row(row) for row in found if row[0] not in have]
        packed = packs.make_pack(rows)
        last_hour = max(row.last_hour for row in rows)
        execute(
            _INSERT,
            [
                *(node_key, day, hour, last_hour, len(rows)),
                *(packed.prefixes, packed.skeleton, packed.body, packed.member_bytes),
            ],
        )
        execute(_SPANS, columns(list(_spans(node_key, day, rows))))
        done.batches += len(rows)
        done.member_bytes += packed.member_bytes
        done.packed_bytes += len(packed.body) + len(packed.skeleton)
    return len(hashes)


def _empty(name: str, monday: date, verified: int, done: Packing) -> bool:
    """Empty the partition of a week if all that is in it now was found in packs; what failed stays for its next try."""
    week = sql.Identifier(name)
    schema = execute("select current_schema()", [])[0][0]
    last = monday + timedelta(days=6)
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(f"set local lock_timeout = '{LOCK_TIMEOUT}'")
        cursor.execute("select pg_advisory_xact_lock(hashtext(%s), %s)", week_lock(schema, monday))
        cursor.execute(_text("lock table {week} in share mode", week))
        ((count,),) = execute(_text("select count(*) from {week}", week), [])
        if count != verified:
            done.stopped = f"the week of {monday} got {count - verified} batches meanwhile, the next run goes on"
            return False
        ((waiting,),) = execute("select count(*) from fleet_waiting where sample_day between %b and %b", [monday, last])
        if waiting:
            done.stopped = f"{waiting} batches of the week of {monday} wait for the fold"
            return False
        cursor.execute("drop table if exists pg_temp.fleet_kept")
        cursor.execute(_text("create temporary table fleet_kept on commit drop as " + _FAILED, week))
        cursor.execute("select count(*) from fleet_kept")
        if cursor.fetchone()[0] == count:
            return True  # nothing else is in it
        cursor.execute(_text("truncate {week}", week))
        cursor.execute(_text("insert into {week} select * from fleet_kept", week))
    done.weeks += 1
    return True


def _row(found: Sequence[object]) -> Row:
    """A row of `_ROWS` as a pack takes it."""
    sha256, body, received_at, *rest, _day = found
    assert isinstance(received_at, datetime)
    return Row(sha256, body, packs.micros(received_at), *rest)  # type: ignore[arg-type]


def _spans(node_key: int, day: date, rows: Iterable[Row]) -> Iterable[tuple[str, int, date, datetime, datetime]]:
    """(cluster, node, day, from, until) of the receipts of these batches, joined where they vouch for each other."""
    ordered = sorted((row.received_us, row.cluster) for row in rows)
    first, cluster = ordered[0]
    last = first
    for at, name in ordered[1:]:
        if at - last > HOP_US or at - first > LONGEST_SPAN_US or name != cluster:
            yield cluster, node_key, day, packs.instant(first), packs.instant(last)
            first, cluster = at, name
        last = at
    yield cluster, node_key, day, packs.instant(first), packs.instant(last)


def _text(statement: str, week: sql.Identifier) -> str:
    return sql.SQL(statement).format(week=week).as_string(None)
