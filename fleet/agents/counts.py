"""How many batches of an installation came from a node, and how they were signed.

Written with every fold, a logged table would take a twentieth of the log. So the last hours are counted in an unlogged
one, and once an hour what is certain goes into `agents_agentseen`. An hour is one of receipt: when everything that was
received in it is folded, it moves, whole and once. After a crash the hours that had not moved are counted again from
the inbox, so no batch counts twice. One that was set aside and is sent to the fold again counts in the hour under way.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from django.db import transaction

from fleet.agents.signatures import BAD, REVOKED, UNKNOWN_KEY, UNSIGNED, VALID
from fleet.sql import columns, execute

STATES = (VALID, UNSIGNED, UNKNOWN_KEY, BAD, REVOKED)
HOUR_S = 3600
LATEST_MS = 253_402_300_799_000  # the last second of 9999

_NAMES = ", ".join(STATES)
_SUMS = ", ".join(f"sum({state})::bigint as {state}" for state in STATES)
_NEWEST = "coalesce((array_agg(agent_version order by received_at desc) filter (where agent_version <> ''))[1], '')"
_JOINED = f"""first_at = least(s.first_at, excluded.first_at), last_at = greatest(s.last_at, excluded.last_at),
       agent_version = case when excluded.received_at >= s.received_at and excluded.agent_version <> ''
                            then excluded.agent_version else s.agent_version end,
       received_at = greatest(s.received_at, excluded.received_at),
       {", ".join(f"{state} = s.{state} + excluded.{state}" for state in STATES)}"""
_ADD = f"""
insert into agents_agentrecent as s (agent_id, node_id, hour, first_at, last_at, received_at, agent_version, {_NAMES})
select agent_id, node_id, greatest(hour, (select max(c.hour) from agents_countedthrough c)),
       min(first_at), max(last_at), max(received_at), {_NEWEST}, {_SUMS}
  from unnest(%b::text[], %b::bigint[], %b::integer[], %b::timestamptz[], %b::timestamptz[], %b::timestamptz[],
              %b::text[], {", ".join(["%b::bigint[]"] * len(STATES))})
       as t(agent_id, node_id, hour, first_at, last_at, received_at, agent_version, {_NAMES})
 group by 1, 2, 3 order by 1, 2, 3
on conflict (agent_id, node_id, hour) do update set {_JOINED}
"""  # noqa: S608 - made of names of ours
_MOVE = f"""
with moved as (delete from agents_agentrecent where hour < %b returning *)
insert into agents_agentseen as s (agent_id, node_id, first_at, last_at, received_at, agent_version, {_NAMES})
select agent_id, node_id, coalesce(min(first_at), max(received_at)), coalesce(max(last_at), max(received_at)),
       max(received_at), {_NEWEST}, {_SUMS}
  from moved group by 1, 2 order by 1, 2
on conflict (agent_id, node_id) do update set {_JOINED}
"""  # noqa: S608
# The reach of the samples stands in the bodies alone: the next batch that is folded tells it.
_AGAIN = """
insert into agents_agentrecent (agent_id, node_id, hour, received_at, valid, unsigned, unknown_key, bad, revoked)
select agent_id, node_id, floor(extract(epoch from received_at) / 3600)::integer as hour, max(received_at),
       count(*) filter (where is_signed and why is null and is_known), count(*) filter (where not is_signed),
       count(*) filter (where is_signed and why is null and not is_known),
       count(*) filter (where why = 'bad'), count(*) filter (where why = 'revoked')
  from (
    select i.agent_id, coalesce(n.merged_into_id, n.id) as node_id, i.received_at, i.signature is not null as is_signed,
           f.why, exists (select 1 from agents_agentkey k where k.agent_id = i.agent_id and k.state <> 'waiting'
                          and k.enrolled_at <= i.received_at) as is_known
      from fleet_inbox i join fleet_node n on n.key = i.node_key
      left join agents_batchflaw f on f.sample_day = i.sample_day and f.sha256 = i.sha256
     where i.received_at >= (select to_timestamp(max(hour) * 3600.0) from agents_countedthrough)
       and i.agent_id is not null and not i.is_seq_conflict
       and not exists (select 1 from fleet_waiting w where w.sample_day = i.sample_day and w.sha256 = i.sha256)
       and not exists (select 1 from fleet_batchmark m where m.sample_day = i.sample_day and m.sha256 = i.sha256
                       and m.reason = 'failed')
  ) batch
 group by 1, 2, 3
"""
#: What is counted of each (installation, node), both tables together; a relation to select from.
NOW = f"""(
select row_number() over () as id, agent_id, node_id, min(first_at) as first_at, max(last_at) as last_at,
       max(received_at) as received_at, {_NEWEST} as agent_version, {_SUMS}
  from (select agent_id, node_id, first_at, last_at, received_at, agent_version, {_NAMES} from agents_agentseen
        union all
        select agent_id, node_id, first_at, last_at, received_at, agent_version, {_NAMES} from agents_agentrecent
       ) both_tables
 group by agent_id, node_id
)"""  # noqa: S608


class Count:
    """What one chunk adds to an installation on a node in one hour of receipt."""

    def __init__(self) -> None:
        self.first_ms, self.last_ms = 2**62, 0
        self.received_at = datetime.min.replace(tzinfo=UTC)
        self.agent_version = ""
        self.states = dict.fromkeys(STATES, 0)

    def add(self, state: str, received_at: datetime, agent_version: str, first_ms: int, last_ms: int) -> None:
        """Count one batch, whose samples reach from `first_ms` to `last_ms`."""
        self.states[state] += 1
        self.first_ms, self.last_ms = min(self.first_ms, first_ms), max(self.last_ms, last_ms)
        if received_at >= self.received_at:
            self.received_at, self.agent_version = received_at, agent_version

    def values(self) -> tuple[Any, ...]:
        """In the order of the statement."""
        reach = _instant(self.first_ms), _instant(self.last_ms)
        return (*reach, self.received_at, self.agent_version, *self.states.values())


def hour_of_receipt(at: datetime) -> int:
    """The hour of Unix time in which something came."""
    return int(at.timestamp()) // HOUR_S


def add(counts: Mapping[tuple[str, int, int], Count]) -> None:
    """Add (agent_id, node, hour of receipt) → count. Call in the transaction that folds the batches."""
    if counts:
        execute(_ADD, columns([(*key, *count.values()) for key, count in sorted(counts.items())]))


def move(through: datetime) -> bool:
    """Write down for good the hours before this instant; whether any was. All that came in them must be folded."""
    hour = hour_of_receipt(through)
    if execute("select 1 from agents_countedthrough where hour >= %b", [hour]):
        return False
    with transaction.atomic():
        if not execute("update agents_countedthrough set hour = %b where hour < %b returning hour", [hour, hour]):
            return False  # another worker was quicker
        execute(_MOVE, [hour])
    return True


def count_again() -> None:
    """After a crash: what was counted in the unlogged table alone, from the inbox and the marks of its batches.

    What waits is left out: it counts when it is folded.
    """
    execute("delete from agents_agentrecent", [])
    execute(_AGAIN, [])


def _instant(ms: int) -> datetime:
    return datetime.fromtimestamp(max(0, min(ms, LATEST_MS)) / 1000, UTC)
