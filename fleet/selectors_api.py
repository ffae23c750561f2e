"""Reads of the API's live resources: nodes and GPUs as they are now, a page at a time, within what the key may see."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime

from django.db import connection

from fleet.domain.slots import SLOT_MS, SLOTS_PER_HOUR
from fleet.fleet_json import when
from fleet.selectors_live import Gpu, NodeNow, is_silent, read_summary, to_ms

CHUNK = 250  # nodes per query while a page is filled

_NODES = """
select n.id, n.name, c.name, c.is_simulated, n.first_seen_at, l.last_sample_at, l.last_received_at,
       coalesce(l.agent_version, ''), coalesce(l.dropped_total, 0), l.summary,
       (select array[count(*), count(*) filter (where i.part_of_id is null)]
          from fleet_incident i where i.node_id = n.id and i.is_open and i.withdrawn_at is null)
  from fleet_node n join fleet_cluster c on c.id = n.cluster_id and c.removed_at is null
  left join fleet_nodelive l on l.node_id = n.id
 where n.merged_into_id is null
   and (%(only)s::bigint is not null
        or coalesce(greatest(n.retired_at, c.retired_at) < coalesce(l.last_sample_at, 'epoch'), true))
   and n.id >= %(first)s and (%(only)s::bigint is null or n.id = %(only)s) and (%(scope)s = '' or c.name = %(scope)s)
   and (%(cluster)s = '' or c.name = %(cluster)s) and (%(node)s = '' or n.name = %(node)s)
 order by n.id limit %(limit)s
"""


class TooMuch(ValueError):
    """A question whose answer would read too many rows; the message says how to ask instead."""


@dataclass(frozen=True)
class Span:
    """Half-open, in whole slots: `[first_slot, end_slot)`."""

    first_slot: int
    end_slot: int

    @property
    def slots(self) -> int:
        """How many slots it holds."""
        return self.end_slot - self.first_slot

    @property
    def hours(self) -> range:
        """The hours that it touches."""
        return range(self.first_slot // SLOTS_PER_HOUR, -(-self.end_slot // SLOTS_PER_HOUR))

    def as_json(self) -> dict[str, str | None]:
        """As it was understood, RFC 3339."""
        return {"from": when(self.first_slot * SLOT_MS), "to": when(self.end_slot * SLOT_MS)}


@dataclass(frozen=True)
class Wanted:
    """What of the fleet is asked for. `scope` is the one cluster that the key may see; empty = all."""

    scope: str = ""
    cluster: str = ""
    node: str = ""
    state: str = ""


@dataclass(frozen=True)
class NodeLine:
    """A node now."""

    id: int
    name: str
    cluster: str
    is_simulated: bool
    first_seen_ms: int
    last_sample_ms: int | None
    last_received_ms: int | None
    agent_version: str
    dropped_total: int
    open_incidents: int
    own_incidents: int  # of those, the ones that are no share of another node's cluster-wide one
    now: NodeNow


@dataclass(frozen=True)
class GpuLine:
    """A GPU's place now, and the node that it belongs to."""

    node: NodeLine
    gpu: Gpu


def iter_nodes(now: datetime, wanted: Wanted, first: int = 0, chunk: int = CHUNK) -> Iterator[NodeLine]:
    """Nodes by id from `first` on, read in chunks."""
    while True:
        lines = _read(now, wanted, first, chunk)
        yield from lines
        if len(lines) < chunk:
            return
        first = lines[-1].id + 1


def list_nodes(now: datetime, wanted: Wanted, after: int | None, size: int) -> tuple[list[NodeLine], int | None]:
    """(a page of nodes by id, the id after which the next page begins or None)."""
    found: list[NodeLine] = []
    first = 0 if after is None else after + 1
    for line in iter_nodes(now, wanted, first, min(CHUNK, size + 1) if not wanted.state else CHUNK):
        if wanted.state and not line.now.count(wanted.state):
            continue
        if len(found) == size:
            return found, found[-1].id
        found.append(line)
    return found, None


def list_gpus(
    now: datetime, wanted: Wanted, after: tuple[int, int] | None, size: int
) -> tuple[list[GpuLine], tuple[int, int] | None]:
    """(a page of GPUs by node id and index, the place after which the next page begins or None)."""
    found: list[GpuLine] = []
    for line in iter_nodes(now, wanted, after[0] if after else 0, min(CHUNK, size // 4 + 2)):
        for gpu in line.now.gpus:
            if (after and (line.id, gpu.place) <= after) or (wanted.state and gpu.word != wanted.state):
                continue
            if len(found) == size:
                return found, (found[-1].node.id, found[-1].gpu.place)
            found.append(GpuLine(line, gpu))
    return found, None


def get_node(now: datetime, node_id: int, scope: str = "") -> NodeLine | None:
    """One node; None if there is none, or none that the key may see."""
    if node_id >= 2**63:
        return None
    lines = _read(now, Wanted(scope), 0, 1, node_id)
    return lines[0] if lines else None


def get_gpu(now: datetime, node_id: int, place: int, scope: str = "") -> GpuLine | None:
    """One GPU's place; None if there is none, or none that the key may see."""
    line = get_node(now, node_id, scope)
    gpu = next((gpu for gpu in line.now.gpus if gpu.place == place), None) if line else None
    return GpuLine(line, gpu) if line and gpu else None


def _read(now: datetime, wanted: Wanted, first: int, limit: int, only: int | None = None) -> list[NodeLine]:
    values = {
        "first": first,
        "only": only,
        "scope": wanted.scope,
        "cluster": wanted.cluster,
        "node": wanted.node,
        "limit": limit,
    }
    with connection.cursor() as cursor:
        cursor.execute(_NODES, values)
        rows = cursor.fetchall()
    now_ms = to_ms(now)
    lines = []
    for (
        node_id,
        name,
        cluster,
        simulated,
        first_seen,
        last_sample,
        received,
        agent,
        dropped,
        summary,
        (open_count, own_count),
    ) in rows:
        last_ms = to_ms(last_sample) if last_sample else None
        lines.append(
            NodeLine(
                id=node_id,
                name=name,
                cluster=cluster,
                is_simulated=simulated,
                first_seen_ms=to_ms(first_seen),
                last_sample_ms=last_ms,
                last_received_ms=to_ms(received) if received else None,
                agent_version=agent,
                dropped_total=dropped,
                open_incidents=open_count,
                own_incidents=own_count,
                now=read_summary(summary or "{}", is_silent(last_ms, now_ms)),
            )
        )
    return lines
