"""The fold's queue: which batches wait, the nodes that a worker holds, and how a batch leaves.

The queue is a narrow unlogged table beside the immutable inbox: leaving it writes nothing to the log of the database.
A crash empties it; `fleet.recovery` fills it again from the inbox.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from typing import NamedTuple

from fleet.bodies import decompress
from fleet.domain.state import NodeState
from fleet.evidence import SPAN_HOURS
from fleet.node_keys import NodeKey
from fleet.partitions import EPOCH
from fleet.selectors_waiting import MAX_ATTEMPTS
from fleet.sql import columns, execute

#: One statement for what was five: an org with few batches pays for its statements and for little else.
_TAKE = """
select w.id, w.sample_day, w.sha256, w.cluster, w.node, w.hw_id, w.first_hour, w.last_hour, w.is_seq_conflict,
       coalesce(n.merged_into_id, case when n.name = w.node then n.id end), c.removed_at is not null,
       coalesce(c.is_simulated, false), (select coalesce(max(day) + 1, 0) * 24 from fleet_sealedday),
       (select coalesce(max(day), -1) from fleet_summedday)
  from (select * from fleet_waiting where id > %b and not (node_key = any(%b::bigint[])) order by id limit %b) w
  left join fleet_cluster c on c.name = w.cluster
  left join fleet_node n on n.cluster_id = c.id
        and n.identity = case when w.hw_id <> '' then 'hw:' || w.hw_id else 'name:' || w.node end
 order by w.id
"""
_BODIES = """
select i.sha256, i.body, i.received_at, i.dropped_total, i.signature, f.why,
       (select value from fleet_datedstamp order by id limit 1)
  from unnest(%b::bigint[]) as u(id) join fleet_waiting w on w.id = u.id
  join fleet_inbox i on i.sample_day = w.sample_day and i.sha256 = w.sha256
  left join agents_batchflaw f on f.sample_day = i.sample_day and f.sha256 = i.sha256
"""
_CLAIM = """
select node_id, state, dirty_hour, dirty_through, dropped_total, (summary -> 'models')::text,
       coalesce(summary ->> 'domain', '')
  from fleet_nodelive where node_id = any(%b) and (state is not null or dirty_hour is null)
 order by node_id for update skip locked
"""
_LEAVE = "delete from fleet_waiting where id = any(%b::bigint[])"
_MARK = """
insert into fleet_batchmark (sample_day, sha256, reason, node_id, first_hour, last_hour, error, marked_at)
select w.*, now() from unnest(%b::date[], %b::bytea[], %b::text[], %b::bigint[], %b::int[], %b::int[], %b::text[]) as w
on conflict (sample_day, sha256) do update set reason = excluded.reason, node_id = excluded.node_id,
   first_hour = excluded.first_hour, last_hour = excluded.last_hour, error = excluded.error
"""
_UNMARK = """
delete from fleet_batchmark m using unnest(%b::date[], %b::bytea[]) as w(sample_day, sha256)
 where m.sample_day = w.sample_day and m.sha256 = w.sha256 and m.reason = 'moved'
"""
_FAILED = """
update fleet_waiting set attempts = attempts + 1 where id = any(%b::bigint[])
returning id, attempts, sample_day, sha256, first_hour, last_hour
"""
_RETRY = """
with again as (delete from fleet_batchmark where reason = 'failed' returning sample_day, sha256)
insert into fleet_waiting (sample_day, sha256, received_at, node_key, cluster, node, hw_id, first_hour, last_hour,
                           is_seq_conflict)
select i.sample_day, i.sha256, i.received_at, i.node_key, i.cluster, i.node, i.hw_id, i.first_hour, i.last_hour,
       i.is_seq_conflict
  from again a join fleet_inbox i on i.sample_day = a.sample_day and i.sha256 = a.sha256 order by i.received_at
returning id
"""


@dataclass(frozen=True)
class Waiting:
    """A batch in the queue, without its body; the hours are those of its first and last `ts`.

    `node_id`: None for a node that is not known, or not by this name. The rest is of its cluster, False for a new one.
    """

    id: int
    sample_day: date
    sha256: bytes
    key: NodeKey
    first_hour: int
    last_hour: int
    is_seq_conflict: bool
    node_id: int | None
    is_removed: bool
    is_simulated: bool


class Taken(NamedTuple):
    """What was found in the queue. The hours before `sealed_until` are sealed; days up to `summed` may be summed."""

    items: list[Waiting]
    sealed_until: int
    summed: int


class Stored(NamedTuple):
    """A batch as it was received. `flaw`: what an earlier fold marked; `stamp`: of the org's dated rows as of now."""

    body: bytes
    received_at: datetime
    dropped_total: int | None
    signature: bytes | None
    flaw: str | None
    stamp: int


@dataclass
class Live:
    """A claimed node: what its NodeLive row holds."""

    node_id: int
    state: NodeState | None
    dirty: list[int]
    dropped_total: int
    models: dict[str, str]
    domain: str


Mark = tuple[date, bytes, str, int | None, int | None, int | None, str]


def take(size: int, after: int, without: Collection[int]) -> Taken:
    """The oldest that wait behind the id `after`, those of the nodes with the keys `without` left out.

    Call with the lock on sealing (fleet/folding.py): the days stay what they are then.
    """
    rows = execute(_TAKE, [after, [*without], size])
    items = [
        Waiting(id_, day, sha256, NodeKey(cluster, node, hw_id), *said)
        for id_, day, sha256, cluster, node, hw_id, *said, _, _ in rows
    ]
    return Taken(items, *(rows[0][-2:] if rows else (0, -1)))


def claim(node_ids: Iterable[int]) -> dict[int, Live]:
    """The nodes among these that no other worker holds, locked until the transaction ends.

    A node whose state a crash took is left to the re-fold.
    """
    return {
        node_id: Live(
            node_id,
            NodeState.from_bytes(decompress(state)) if state else None,
            [hour for hour in (dirty_hour, dirty_through) if hour is not None],
            dropped,
            json.loads(models) if models else {},
            domain,
        )
        for node_id, state, dirty_hour, dirty_through, dropped, models, domain in execute(
            _CLAIM, [sorted(set(node_ids))]
        )
    }


def bodies(items: Iterable[Waiting]) -> dict[bytes, Stored]:
    """sha256 -> the bytes of those that still wait."""
    found = execute(_BODIES, [[item.id for item in items]])
    return {
        sha256: Stored(body, received_at, dropped, signature, flaw, stamp or 0)
        for sha256, body, received_at, dropped, signature, flaw, stamp in found
    }


def leave(ids: Sequence[int]) -> None:
    """Take these out of the queue."""
    if ids:
        execute(_LEAVE, [list(ids)])


def mark(marks: Sequence[Mark]) -> None:
    """Note what is out of the ordinary: (sample_day, sha256, reason, node, first and last hour, error) of each."""
    if marks:
        execute(_MARK, columns(sorted(marks, key=lambda one: (one[0], one[1]))))


def unmark(batches: Sequence[tuple[date, bytes]]) -> None:
    """These are where their `ts` says after all."""
    if batches:
        execute(_UNMARK, columns(batches))


def is_moved(sample_day: date, said: tuple[int, int], placed: tuple[int, int]) -> bool:
    """Whether a batch must be looked for by the hours that it was placed in, not by those that it says."""
    outside = placed[0] < said[0] or placed[1] > said[1]
    return outside or said[1] - said[0] > SPAN_HOURS or sample_day == EPOCH


def count_failure(items: Sequence[Waiting], error: str) -> None:
    """Count a failed try; a batch that failed too often is set aside with the error."""
    failed = execute(_FAILED, [[item.id for item in items]])
    given_up = [row for row in failed if row[1] >= MAX_ATTEMPTS]
    leave([row[0] for row in given_up])
    mark([(day, sha256, "failed", None, first, last, error) for _, _, day, sha256, first, last in given_up])


def retry_failed() -> int:
    """Queue again what was set aside in the current org, re-folds of nodes as well; the number of both."""
    batches = len(execute(_RETRY, []))
    nodes = execute(
        "update fleet_nodelive set attempts = 0 where dirty_hour is not null and attempts >= %b returning node_id",
        [MAX_ATTEMPTS],
    )
    return batches + len(nodes)
