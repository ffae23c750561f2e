"""The fold's service: takes batches out of the inbox, runs the pure fold over them, writes what came of it.

Workers claim nodes by row lock, so one node is folded by one worker at a time; a lost worker's locks fall with its
connection and its batches are simply found again. One chunk is one transaction.
"""

from __future__ import annotations

import logging
import time
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from django.conf import settings
from django.db import transaction

from agent.wire import SIMULATED_SUFFIX
from fleet import decode
from fleet import waiting as queue
from fleet.agents.marks import Folded, folded, note
from fleet.bodies import compress
from fleet.dated import NodeDated, dated_for, get_org_dated, hour_at
from fleet.domain.node_hours import ReceivedBatch, advance, rows_needed
from fleet.domain.rules import Rules
from fleet.domain.state import NodeState
from fleet.domain.strips import HourRow
from fleet.domain.summary import current
from fleet.errors import BatchRejected
from fleet.evidence import Batch
from fleet.incidents import sync_incidents
from fleet.node_rows import read_rows, write_hours
from fleet.node_summary import as_json, domain_in, models_of
from fleet.partitions import EPOCH
from fleet.services import ensure_nodes, find_node, mark_simulated
from fleet.sql import columns, execute
from fleet.waiting import Live, Mark, Stored, Waiting, is_moved

log = logging.getLogger(__name__)
BUDGET_SECONDS = 20.0

_LIVE = """
update fleet_nodelive l set state = w.state, dirty_hour = w.dirty_hour, dirty_through = w.dirty_through,
       last_sample_at = w.last_sample_at, last_received_at = greatest(l.last_received_at, w.last_received_at),
       agent_version = w.agent_version, dropped_total = w.dropped_total, summary = w.summary::jsonb
  from unnest(%b::bigint[], %b::bytea[], %b::int[], %b::int[], %b::timestamptz[], %b::timestamptz[], %b::text[],
       %b::bigint[], %b::text[])
       as w(node_id, state, dirty_hour, dirty_through, last_sample_at, last_received_at, agent_version,
            dropped_total, summary)
 where l.node_id = w.node_id
"""
_DIRTY = """
insert into fleet_dirtyspan (node_id, first_hour, last_hour) select * from unnest(%b::bigint[], %b::int[], %b::int[])
on conflict (node_id) do update set first_hour = least(fleet_dirtyspan.first_hour, excluded.first_hour),
   last_hour = greatest(fleet_dirtyspan.last_hour, excluded.last_hour)
 where fleet_dirtyspan.first_hour > excluded.first_hour or fleet_dirtyspan.last_hour < excluded.last_hour
"""
_DROPPED = """
update fleet_node n set dropped_total = w.count from unnest(%b::bigint[], %b::bigint[]) as w(id, count)
 where n.id = w.id and n.dropped_total < w.count
"""
#: Neither a day's sealing nor the end of an agent's key runs beside a fold (fleet/agents/services.py). What the fold
#: writes can be made again: if a crash loses it, its batches simply still wait.
_BEGIN = """
select set_config('synchronous_commit', 'off', true),
       pg_advisory_xact_lock_shared(hashtext(current_schema() || '.seal')),
       pg_advisory_xact_lock_shared(hashtext(current_schema() || '.agent_keys'))
"""
TOP_UPS = 8  # how often a chunk looks further down the queue when another worker holds the nodes of what it found


@dataclass
class Writes:
    """Everything that one chunk writes, gathered so that each table is written once."""

    done: list[int] = field(default_factory=list)  # ids in the queue
    marks: list[Mark] = field(default_factory=list)
    failed: dict[str, list[Waiting]] = field(default_factory=lambda: defaultdict(list))
    hours: dict[tuple[int, int], HourRow] = field(default_factory=dict)
    live: list[tuple[Any, ...]] = field(default_factory=list)
    dirty: list[tuple[int, int, int]] = field(default_factory=list)
    dropped: list[tuple[int, int]] = field(default_factory=list)
    clusters: dict[str, bool] = field(default_factory=dict)  # whether every batch folded here was simulated
    simulated: set[str] = field(default_factory=set)  # clusters that are marked so
    summed: int = -1  # days up to this one may be summed
    seen: list[Folded] = field(default_factory=list)


def fold_waiting(now: datetime, budget_seconds: float = BUDGET_SECONDS) -> int:
    """Fold what waits in the current org until nothing is left or the budget is spent; the number of batches."""
    deadline = time.monotonic() + budget_seconds
    total, is_more = 0, True
    while is_more and time.monotonic() < deadline:
        done, is_more = _fold_chunk(now, settings.GOODPUT_FOLD_CHUNK)
        total += done
    return total


def fold_chunk(now: datetime, size: int) -> int:
    """Fold up to `size` waiting batches in one transaction; the number that left the queue (folded or failed once)."""
    return _fold_chunk(now, size)[0]


@transaction.atomic
def _fold_chunk(now: datetime, size: int) -> tuple[int, bool]:
    """(as `fold_chunk`, whether to look again): not when the queue was seen to end and each batch went through."""
    execute(_BEGIN, [])
    writes = Writes()
    lives: dict[int, Live] = {}
    by_node: dict[int, list[Waiting]] = defaultdict(list)
    bodies: dict[bytes, Stored] = {}
    last, busy, is_end, sealed_until = 0, set[int](), False, 0
    for _ in range(TOP_UPS):
        room = size - len(bodies) - len(writes.done)
        taken = queue.take(room, last, busy)
        found = taken.items
        is_end = len(found) < room
        if not found:
            break
        sealed_until, writes.summed = taken.sealed_until, taken.summed
        last = found[-1].id
        writes.simulated.update(item.key.cluster for item in found if item.is_simulated)
        foldable = _sort_out(found, sealed_until, writes)
        node_ids = ensure_nodes(item.key for item in foldable if item.node_id is None)
        node_ids.update({item.key: item.node_id for item in foldable if item.node_id is not None})
        lives.update(queue.claim(id_ for id_ in node_ids.values() if id_ not in lives))
        busy.update(key.number for key, node_id in node_ids.items() if node_id not in lives)
        mine = [item for item in foldable if node_ids[item.key] in lives]
        more = queue.bodies(mine)
        bodies.update(more)
        for item in mine:
            if item.sha256 in more:  # else another worker folded it meanwhile
                by_node[node_ids[item.key]].append(item)
        if len(found) == len(mine) or len(bodies) + len(writes.done) >= size:
            break
    if not by_node and not writes.done:
        return 0, False
    org = get_org_dated(max((one.stamp for one in bodies.values()), default=None))
    dated = dated_for(by_node, org)
    wanted = [live for node_id, live in lives.items() if node_id in by_node and live.state]
    rows = read_rows((live.node_id, hour) for live in wanted for hour in rows_needed(live.state))
    for node_id, items in by_node.items():
        _fold_node(lives[node_id], items, bodies, rows.get(node_id, {}), dated(node_id), now, writes, sealed_until)
    _write(writes, org.book.at(hour_at(now)))
    count = len(writes.done) + sum(len(items) for items in writes.failed.values())
    return count, count > 0 and (not is_end or bool(writes.failed))


def sealed_hour() -> int:
    """The hours before this one are sealed in the current org, 0 when none is; no more until the transaction ends."""
    execute("select pg_advisory_xact_lock_shared(hashtext(current_schema() || '.seal'))", [])
    rows = execute("select coalesce(max(day) + 1, 0) * 24 from fleet_sealedday", [])
    return int(rows[0][0])


def _sort_out(found: list[Waiting], sealed_until: int, writes: Writes) -> list[Waiting]:
    """Those that can be folded; the others leave the queue with a mark that says why."""
    ghosts = _of_removed_demos(found)
    foldable = []
    for item in found:
        if item.is_seq_conflict:
            reason = "seq_conflict"
        elif item.sha256 in ghosts:
            reason = "cluster_removed"
        elif item.last_hour < sealed_until and item.sample_day != EPOCH:
            reason = "sealed"
        else:
            foldable.append(item)
            continue
        writes.done.append(item.id)
        node_id = find_node(item.key) if reason == "sealed" else None
        writes.marks.append((item.sample_day, item.sha256, reason, node_id, item.first_hour, item.last_hour, ""))
    return foldable


def _of_removed_demos(found: list[Waiting]) -> set[bytes]:
    """Those that a simulated agent sent for a cluster that was removed: kept out, so that a demo stays removed."""
    removed = [item for item in found if item.is_removed]
    bodies = queue.bodies(removed) if removed else {}
    return {sha256 for sha256, stored in bodies.items() if _is_simulated(stored.body)}


def _is_simulated(body: bytes) -> bool:
    try:
        batch = decode.decode_trusted(decode.gunzip(body))
    except BatchRejected:
        return False  # the fold sets it aside
    return bool(batch.agent_version.endswith(SIMULATED_SUFFIX))


def _fold_node(
    live: Live,
    items: list[Waiting],
    bodies: dict[bytes, Stored],
    rows: dict[int, HourRow],
    dated: NodeDated,
    now: datetime,
    writes: Writes,
    sealed_until: int,
) -> None:
    """Run the pure fold over one node's batches and note down what is to be written."""
    ok, outcome = _advance(live, items, bodies, rows, dated, writes)
    if not ok:
        return
    newest = max(outcome.received, key=lambda batch: (batch.received_at_ms, batch.sha256)).batch
    if outcome.state is not None:
        hour = hour_at(now)
        node_now = current(outcome.state, int(now.timestamp() * 1000), dated.rules(hour), dated.context(hour))
        models = {**live.models, **models_of(newest)}
        summary = as_json(node_now, models, newest.driver_version, domain_in(newest) or live.domain)
    else:
        summary = "{}"  # nothing of this node could be placed in time yet
    for item in ok:
        writes.done.append(item.id)
        placed = outcome.touched.get(item.sha256)
        if item.sha256 in outcome.suspect:
            writes.marks.append((item.sample_day, item.sha256, "suspect_clock", live.node_id, None, None, ""))
        elif placed is not None and is_moved(item.sample_day, (item.first_hour, item.last_hour), placed):
            reason = "sealed" if placed[1] < sealed_until else "moved"
            writes.marks.append((item.sample_day, item.sha256, reason, live.node_id, *placed, ""))
    batches = {received.sha256: received.batch for received in outcome.received}
    for item in ok:
        stored = bodies[item.sha256]
        said = stored.received_at, stored.signature, stored.flaw
        writes.seen.append(folded(item.sample_day, item.sha256, live.node_id, batches[item.sha256], *said))
    for hour, row in outcome.rows.items():
        if hour >= sealed_until:
            writes.hours[(live.node_id, hour)] = row
    outcome.dirty = sorted({max(hour, sealed_until) for hour in outcome.dirty if hour >= sealed_until - 1})
    if outcome.dirty:
        writes.dirty.append((live.node_id, outcome.dirty[0], outcome.dirty[-1]))
    dropped = [count for item in ok if (count := bodies[item.sha256].dropped_total) is not None]
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
            summary,
        )
    )
    if dropped and max(dropped) > live.dropped_total:
        writes.dropped.append((live.node_id, max(dropped)))
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
    bodies: dict[bytes, Stored],
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
    bodies: dict[bytes, Stored],
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
    batch: Any = decode.decode_for_fold(decode.gunzip(body))
    return ReceivedBatch(sha256, int(received_at.timestamp() * 1000), batch)


def decoded(one: Batch, is_whole: bool = False) -> ReceivedBatch:
    """A batch of the inbox or of a pack, decoded for the fold; `is_whole`: with all that it says."""
    batch: Any = decode.decode_trusted(one.raw()) if is_whole else decode.decode_for_fold(one.raw())
    return ReceivedBatch(one.sha256, one.row.received_us // 1000, batch)


def instant(ms: int | None) -> datetime | None:
    """ms since 1970 UTC as an aware datetime."""
    return None if ms is None else datetime.fromtimestamp(ms / 1000, UTC)


def _write(writes: Writes, rules: Rules) -> None:
    """Everything of one chunk, each table once, inside the caller's transaction."""
    write_hours(writes.hours, summed=writes.summed)
    sync_incidents(writes.hours, rules)
    if writes.live:
        execute(_LIVE, columns(writes.live))
    if writes.dirty:
        execute(_DIRTY, columns(sorted(writes.dirty)))
    if writes.dropped:
        execute(_DROPPED, columns(sorted(writes.dropped)))
    queue.leave(writes.done)
    queue.mark(writes.marks)
    for error, items in writes.failed.items():
        queue.count_failure(items, error)
    note(writes.seen)
    mark_simulated({name: is_now for name, is_now in writes.clusters.items() if is_now != (name in writes.simulated)})
