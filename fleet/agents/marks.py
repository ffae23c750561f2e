"""The fold's hook: what the signatures of freshly folded batches say, and which installation was seen on which node.

The counts are in fleet/agents/counts.py.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from datetime import datetime
from typing import Any, NamedTuple

from fleet.agents.counts import Count, add, hour_of_receipt
from fleet.agents.models import AgentKey, BatchFlaw
from fleet.agents.signatures import BAD, REVOKED, KnownKey, judge
from fleet.sql import execute

_KEYS = """
select agent_id, public_key, state, enrolled_at, changed_at from agents_agentkey
 where agent_id = any(%b::text[]) and state <> %b
"""
_SINCE = """
select i.sample_day, i.sha256, i.signature, i.received_at, i.agent_id, coalesce(n.merged_into_id, n.id)
  from fleet_inbox i join fleet_node n on n.key = i.node_key
 where i.received_at >= %b and i.agent_id is not null and i.signature is not null and not i.is_seq_conflict
"""


class Folded(NamedTuple):
    """One batch that was folded just now; its samples reach from `first_ms` to `last_ms`.

    `flaw`: what it was marked with before; it counts as that.
    """

    sample_day: Any
    sha256: bytes
    node_id: int
    agent_id: str
    agent_version: str
    first_ms: int
    last_ms: int
    received_at: datetime
    signature: bytes | None
    flaw: str | None


def folded(
    sample_day: Any,
    sha256: bytes,
    node_id: int,
    batch: Any,
    received_at: datetime,
    signature: bytes | None,
    flaw: str | None,
) -> Folded:
    """A decoded batch that was folded for this node."""
    times = [interval.ts for interval in batch.intervals]
    of_batch = batch.agent_id or "", batch.agent_version, min(times), max(times)
    return Folded(sample_day, sha256, node_id, *of_batch, received_at, signature, flaw)


def note(batches: Iterable[Folded]) -> None:
    """Judge these batches' signatures and count them. Call once for each batch, in the transaction that folds it.

    Batches without an agent_id (of other senders) are nobody's and are not counted.
    """
    known = {batch.sha256: batch for batch in batches if batch.agent_id}
    if not known:
        return
    keys = known_keys({batch.agent_id for batch in known.values()})
    counted: dict[tuple[str, int, int], Count] = defaultdict(Count)
    flaws = []
    for batch in known.values():
        own = keys.get(batch.agent_id, ())
        state = batch.flaw or judge(batch.sha256, batch.signature, batch.received_at, own)
        if not batch.flaw and state in (BAD, REVOKED):
            flaws.append(
                BatchFlaw(
                    sample_day=batch.sample_day, sha256=batch.sha256, agent_id=batch.agent_id, node_id=batch.node_id,
                    why=state,
                )
            )  # fmt: skip
        count = counted[(batch.agent_id, batch.node_id, hour_of_receipt(batch.received_at))]
        count.add(state, batch.received_at, batch.agent_version, batch.first_ms, batch.last_ms)
    if flaws:
        BatchFlaw.objects.bulk_create(flaws, ignore_conflicts=True)
    add(counted)


def judge_again(since: datetime) -> int:
    """Mark what came since then and speaks against itself, once more: after a crash some of it was never judged.

    Marks stand once for each batch. The number found.
    """
    execute("select pg_advisory_xact_lock_shared(hashtext(current_schema() || '.agent_keys'))", [])  # as the fold does
    rows = execute(_SINCE, [since])
    keys = known_keys({row[4] for row in rows})
    flaws = []
    for day, sha256, signature, received_at, agent_id, node_id in rows:
        why = judge(bytes(sha256), bytes(signature), received_at, keys.get(agent_id, ()))
        if why in (BAD, REVOKED):
            flaws.append(BatchFlaw(sample_day=day, sha256=bytes(sha256), agent_id=agent_id, node_id=node_id, why=why))
    BatchFlaw.objects.bulk_create(flaws, ignore_conflicts=True)
    return len(flaws)


def known_keys(agent_ids: set[str]) -> dict[str, tuple[KnownKey, ...]]:
    """Per installation the keys that a person or first use accepted, revoked ones with their end."""
    found: dict[str, list[KnownKey]] = defaultdict(list)
    rows = execute(_KEYS, [sorted(agent_ids), AgentKey.State.WAITING.value])
    for agent_id, public_key, state, enrolled_at, changed_at in rows:
        until = changed_at if state == AgentKey.State.REVOKED else None
        found[agent_id].append(KnownKey(public_key, enrolled_at, until))
    return {agent_id: tuple(keys) for agent_id, keys in found.items()}
