"""The fold's service: takes batches out of the inbox, runs the pure fold over them, writes what came of it.

Workers claim nodes by row lock, so one node is folded by one worker at a time; a lost worker's locks fall with its
connection and its batches are simply found again. One chunk is one transaction.
"""

from __future__ import annotations

import json
import logging
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from django.conf import settings
from django.db import connection, transaction

from agent.wire import SIMULATED_SUFFIX
from fleet import decode
from fleet.agents.marks import Folded, folded, note
from fleet.bodies import compress, decompress, load_row
from fleet.dated import NodeDated, dated_for, get_org_dated, hour_at
from fleet.domain.node_hours import ReceivedBatch, advance, rows_needed
from fleet.domain.rules import Rules
from fleet.domain.state import NodeState
from fleet.domain.strips import HourRow
from fleet.domain.summary import current
from fleet.domain.verdicts import State
from fleet.incidents import sync_incidents
from fleet.models import Cluster
from fleet.node_summary import as_json, models_of
from fleet.selectors_waiting import MAX_ATTEMPTS
from fleet.services import NodeKey, ensure_nodes, mark_simulated
from fleet.sql import columns, execute

log = logging.getLogger(__name__)
BUDGET_SECONDS = 20.0

SUMS = (
    "gpus",
    *(f"{state.value}_s" for state in State),
    "down_s",
    "degraded_s",
    "nominal_sum",
    "lower_sum",
    "upper_sum",
)
_WAITING = """
select sample_day, sha256, cluster, node, hw_id, is_seq_conflict from fleet_inbox
 where folded_at is null and attempts < %b order by received_at limit %b
"""
_BODIES = """
select i.sample_day, i.sha256, i.body, i.received_at, i.dropped_total
  from unnest(%b::date[], %b::bytea[]) as w(sample_day, sha256)
  join fleet_inbox i on i.sample_day = w.sample_day and i.sha256 = w.sha256
 where i.folded_at is null
"""
_CLAIM = """
select node_id, state, dirty_hour, dirty_through, dropped_total, batches, (summary -> 'models')::text
  from fleet_nodelive where node_id = any(%b) order by node_id for update skip locked
"""
_FOLDED = """
update fleet_inbox i set folded_at = clock_timestamp(), node_ref = w.node_ref, first_hour = w.first_hour,
       last_hour = w.last_hour, error = w.error
  from unnest(%b::date[], %b::bytea[], %b::bigint[], %b::int[], %b::int[], %b::text[])
       as w(sample_day, sha256, node_ref, first_hour, last_hour, error)
 where i.sample_day = w.sample_day and i.sha256 = w.sha256
"""
_FAILED = """
update fleet_inbox i set attempts = attempts + 1, error = %b
  from unnest(%b::date[], %b::bytea[]) as w(sample_day, sha256)
 where i.sample_day = w.sample_day and i.sha256 = w.sha256
"""
_ROWS = """
select h.node_id, h.hour, h.body from unnest(%b::bigint[], %b::int[]) as w(node_id, hour)
  join fleet_nodehour h on h.node_id = w.node_id and h.hour = w.hour
"""
_HOURS = """
insert into fleet_nodehour (node_id, hour, body, rules, is_final, closed_by, {sums})
select * from unnest(%b::bigint[], %b::int[], %b::bytea[], %b::text[], %b::boolean[], %b::int[], {arrays})
on conflict (node_id, hour) do update set body = excluded.body, rules = excluded.rules, is_final = excluded.is_final,
       closed_by = excluded.closed_by, {updates}
""".format(
    sums=", ".join(SUMS),
    arrays=", ".join(["%b::int[]"] * len(SUMS)),
    updates=", ".join(f"{name} = excluded.{name}" for name in SUMS),
)
_LIVE = """
update fleet_nodelive l set state = w.state, dirty_hour = w.dirty_hour, dirty_through = w.dirty_through,
       last_sample_at = w.last_sample_at, last_received_at = greatest(l.last_received_at, w.last_received_at),
       agent_version = w.agent_version, dropped_total = w.dropped_total, batches = w.batches,
       summary = w.summary::jsonb
  from unnest(%b::bigint[], %b::bytea[], %b::int[], %b::int[], %b::timestamptz[], %b::timestamptz[], %b::text[],
       %b::bigint[], %b::bigint[], %b::text[])
       as w(node_id, state, dirty_hour, dirty_through, last_sample_at, last_received_at, agent_version,
            dropped_total, batches, summary)
 where l.node_id = w.node_id
"""


@dataclass(frozen=True)
class Waiting:
    """A batch in the inbox, without its body."""

    sample_day: Any
    sha256: bytes
    key: NodeKey
    is_seq_conflict: bool


@dataclass
class Live:
    """A claimed node: what its NodeLive row holds."""

    node_id: int
    state: NodeState | None
    dirty: list[int]
    dropped_total: int
    batches: int
    models: dict[str, str]


@dataclass
class Writes:
    """Everything that one chunk writes, gathered so that each table is written once."""

    folded: list[tuple[Any, ...]] = field(default_factory=list)
    failed: dict[str, list[Waiting]] = field(default_factory=lambda: defaultdict(list))
    hours: dict[tuple[int, int], HourRow] = field(default_factory=dict)
    live: list[tuple[Any, ...]] = field(default_factory=list)
    clusters: dict[str, bool] = field(default_factory=dict)
    seen: list[Folded] = field(default_factory=list)


def fold_waiting(now: datetime, budget_seconds: float = BUDGET_SECONDS) -> int:
    """Fold what waits in the current org until nothing is left or the budget is spent; the number of batches."""
    deadline = time.monotonic() + budget_seconds
    total = 0
    while time.monotonic() < deadline:
        done = fold_chunk(now, settings.GOODPUT_FOLD_CHUNK)
        total += done
        if done == 0:
            break
    return total


@transaction.atomic
def fold_chunk(now: datetime, size: int) -> int:
    """Fold up to `size` waiting batches in one transaction; the number that left the queue (folded or failed once)."""
    with connection.cursor() as cursor:
        # What this transaction writes can be made again: if a crash loses it, its batches simply still wait.
        cursor.execute("set local synchronous_commit = off")
    waiting = _waiting(size)
    if not waiting:
        return 0
    writes = Writes()
    ghosts = _of_removed_demos(waiting)
    foldable: list[Waiting] = []
    for item in waiting:
        if item.is_seq_conflict or item.sha256 in ghosts:
            reason = "seq_conflict" if item.is_seq_conflict else "cluster_removed"
            writes.folded.append((item.sample_day, item.sha256, None, None, None, reason))
        else:
            foldable.append(item)
    node_ids = ensure_nodes(item.key for item in foldable)
    lives = _claim(node_ids.values())
    bodies = _bodies([item for item in foldable if node_ids[item.key] in lives])
    by_node: dict[int, list[Waiting]] = defaultdict(list)
    for item in foldable:
        if item.sha256 in bodies:  # else another worker has its node, or folded it meanwhile
            by_node[node_ids[item.key]].append(item)
    org = get_org_dated()
    dated = dated_for(by_node, org)
    rows = _rows_of(lives.values())
    for node_id, items in by_node.items():
        _fold_node(lives[node_id], items, bodies, rows[node_id], dated(node_id), now, writes)
    _write(writes, org.book.at(hour_at(now)))
    return len(writes.folded) + sum(len(items) for items in writes.failed.values())


def _of_removed_demos(waiting: list[Waiting]) -> set[bytes]:
    """Those that a simulated agent sent for a cluster that was removed: kept out, so that a demo stays removed."""
    removed = set(Cluster.objects.filter(removed_at__isnull=False).values_list("name", flat=True))
    bodies = _bodies([item for item in waiting if item.key.cluster in removed])
    return {sha256 for sha256, (body, _, _) in bodies.items() if _is_simulated(body)}


def _is_simulated(body: bytes) -> bool:
    return bool(decode.decode_trusted(decode.gunzip(body)).agent_version.endswith(SIMULATED_SUFFIX))


def _waiting(size: int) -> list[Waiting]:
    return [
        Waiting(day, sha256, NodeKey(cluster, node, hw_id), conflict)
        for day, sha256, cluster, node, hw_id, conflict in execute(_WAITING, [MAX_ATTEMPTS, size])
    ]


def _claim(node_ids: Iterable[int]) -> dict[int, Live]:
    """The nodes among these that no other worker holds, locked until the transaction ends."""
    return {
        node_id: Live(
            node_id,
            NodeState.from_bytes(decompress(state)) if state else None,
            [hour for hour in (dirty_hour, dirty_through) if hour is not None],
            dropped,
            batches,
            json.loads(models) if models else {},
        )
        for node_id, state, dirty_hour, dirty_through, dropped, batches, models in execute(
            _CLAIM, [sorted(set(node_ids))]
        )
    }


def _bodies(items: list[Waiting]) -> dict[bytes, tuple[bytes, datetime, int | None]]:
    """sha256 -> (body, received_at, dropped_total) of those that still wait."""
    found = execute(_BODIES, [[item.sample_day for item in items], [item.sha256 for item in items]])
    return {sha256: (body, received_at, dropped) for _, sha256, body, received_at, dropped in found}


def _rows_of(lives: Iterable[Live]) -> dict[int, dict[int, HourRow]]:
    """Per node the stored hours that the fold goes on writing."""
    wanted = [(live.node_id, hour) for live in lives for hour in (rows_needed(live.state) if live.state else ())]
    rows: dict[int, dict[int, HourRow]] = defaultdict(dict)
    if wanted:
        for node_id, hour, body in execute(_ROWS, columns(wanted)):
            rows[node_id][hour] = load_row(body)
    return rows


def _fold_node(
    live: Live,
    items: list[Waiting],
    bodies: dict[bytes, tuple[bytes, datetime, int | None]],
    rows: dict[int, HourRow],
    dated: NodeDated,
    now: datetime,
    writes: Writes,
) -> None:
    """Run the pure fold over one node's batches and note down what is to be written."""
    ok, outcome = _advance(live, items, bodies, rows, dated, writes)
    if not ok:
        return
    newest = max(outcome.received, key=lambda batch: (batch.received_at_ms, batch.sha256)).batch
    if outcome.state is not None:
        hour = hour_at(now)
        node_now = current(outcome.state, int(now.timestamp() * 1000), dated.rules(hour), dated.context(hour))
        summary = as_json(node_now, {**live.models, **models_of(newest)}, newest.driver_version)
    else:
        summary = "{}"  # nothing of this node could be placed in time yet
    for item in ok:
        first_hour, last_hour = outcome.touched.get(item.sha256, (None, None))
        reason = "suspect_clock" if item.sha256 in outcome.suspect else None
        writes.folded.append((item.sample_day, item.sha256, live.node_id, first_hour, last_hour, reason))
    batches = {received.sha256: received.batch for received in outcome.received}
    writes.seen += [folded(item.sample_day, item.sha256, live.node_id, batches[item.sha256]) for item in ok]
    for hour, row in outcome.rows.items():
        writes.hours[(live.node_id, hour)] = row
    dropped = [count for item in ok if (count := bodies[item.sha256][2]) is not None]
    writes.live.append(
        (
            live.node_id,
            compress(outcome.state.to_bytes()) if outcome.state is not None else None,
            min(outcome.dirty, default=None),
            max(outcome.dirty, default=None),
            instant(outcome.state.last_sample_ms) if outcome.state is not None else None,
            instant(max(batch.received_at_ms for batch in outcome.received)),
            newest.agent_version,
            max([live.dropped_total, *dropped]),
            live.batches + len(ok),
            summary,
        )
    )
    for received in outcome.received:
        name, is_simulated = received.batch.cluster_id, received.batch.agent_version.endswith(SIMULATED_SUFFIX)
        writes.clusters[name] = writes.clusters.get(name, True) and is_simulated


@dataclass
class Outcome:
    """What the fold made of a node's batches, added up over one or more calls."""

    state: NodeState | None
    rows: dict[int, HourRow]
    dirty: list[int]
    touched: dict[bytes, tuple[int, int]] = field(default_factory=dict)
    suspect: set[bytes] = field(default_factory=set)
    received: list[Any] = field(default_factory=list)


def _advance(
    live: Live,
    items: list[Waiting],
    bodies: dict[bytes, tuple[bytes, datetime, int | None]],
    rows: dict[int, HourRow],
    dated: NodeDated,
    writes: Writes,
) -> tuple[list[Waiting], Outcome]:
    """(those that were folded, what came of it). All at once; if that fails, one by one, so that a poisonous batch is
    counted alone and its neighbours go through."""
    outcome = Outcome(live.state, {}, list(live.dirty))
    try:
        _advance_by(items, bodies, rows, dated, outcome)
        return items, outcome
    except Exception:  # told below, batch by batch
        log.info("node %s: a batch can't be folded, trying one by one", live.node_id)
    outcome = Outcome(live.state, {}, list(live.dirty))
    folded = []
    for item in items:
        try:
            _advance_by([item], bodies, {**rows, **outcome.rows}, dated, outcome)
            folded.append(item)
        except Exception as error:  # one bad batch must not stop the others; it is counted, logged and shown
            log.exception("batch %s of node %s can't be folded", item.sha256.hex(), live.node_id)
            writes.failed[f"{type(error).__name__}: {error}"[:500]].append(item)
    return folded, outcome


def _advance_by(
    items: list[Waiting],
    bodies: dict[bytes, tuple[bytes, datetime, int | None]],
    rows: Mapping[int, HourRow],
    dated: NodeDated,
    outcome: Outcome,
) -> None:
    """Move `outcome` on by these batches. Raises before it changes anything."""
    received = [received_batch(item.sha256, *bodies[item.sha256][:2]) for item in items]
    advanced = advance(outcome.state, rows, received, dated)
    outcome.state = advanced.state
    outcome.rows.update(advanced.rows)
    outcome.dirty += [hour for late in advanced.late for hour in (late.first_hour, late.last_hour)]
    outcome.dirty += advanced.dirty
    outcome.touched.update(advanced.touched)
    outcome.suspect.update(advanced.suspect)
    outcome.received += received


def received_batch(sha256: bytes, body: bytes, received_at: datetime) -> ReceivedBatch:
    """A stored batch, decoded for the fold."""
    batch: Any = decode.decode_trusted(decode.gunzip(body))
    return ReceivedBatch(sha256, int(received_at.timestamp() * 1000), batch)


def instant(ms: int | None) -> datetime | None:
    """ms since 1970 UTC as an aware datetime."""
    return None if ms is None else datetime.fromtimestamp(ms / 1000, UTC)


def write_hours(rows: dict[tuple[int, int], HourRow]) -> None:
    """Insert or replace these node hours in one statement."""
    if not rows:
        return
    values = [
        (node_id, hour, compress(row.to_bytes()), row.rules_version, row.final, row.closed_by, *_sums(row))
        for (node_id, hour), row in sorted(rows.items())
    ]
    execute(_HOURS, columns(values))


def _sums(row: HourRow) -> list[int]:
    """The rollups of a row's GPUs added up, in the order of SUMS."""
    rollups = [rollup for subject, rollup in row.rollups().items() if subject.startswith("g")]
    sums = [len(rollups)]
    sums += [sum(rollup.seconds.get(state, 0) for rollup in rollups) for state in State]
    for name in ("down_s", "degraded_s", "nominal_ws", "lower_ws", "upper_ws"):
        sums.append(sum(getattr(rollup, name) for rollup in rollups))
    return sums


def _write(writes: Writes, rules: Rules) -> None:
    """Everything of one chunk, each table once, inside the caller's transaction."""
    write_hours(writes.hours)
    sync_incidents(writes.hours, rules)
    if writes.live:
        execute(_LIVE, columns(writes.live))
    if writes.folded:
        execute(_FOLDED, columns(writes.folded))
    for error, items in writes.failed.items():
        execute(_FAILED, [error, [item.sample_day for item in items], [item.sha256 for item in items]])
    note(writes.seen)
    mark_simulated(writes.clusters)
