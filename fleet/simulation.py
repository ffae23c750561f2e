"""A believable fleet's past: batches of simulated nodes, made by the agent's own simulated source.

Everything is labelled as simulated. The batches are encoded, stored and folded like any others; only HTTP is skipped.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from agent import __version__, wire
from agent.collect.base import build_interval
from agent.collect.sim import DRIVER_VERSION, SimClock, simulated_collectors
from agent.collect.sim_world import World
from fleet.domain.slots import SLOT_MS

SLOTS_PER_BATCH = wire.INTERVALS_PER_BATCH
RECEIPT_AFTER_MS = 400  # how long a simulated upload takes


@dataclass(frozen=True)
class Plan:
    """Which past to make: whole minutes [first_ms, end_ms), ms since 1970 UTC, of nodes that all play one scenario."""

    cluster: str
    nodes: int
    first_ms: int
    end_ms: int
    seed: int
    scenario: str = "month_mixed"

    @property
    def batches(self) -> int:
        """How many batches that is."""
        return self.nodes * self.minutes

    @property
    def minutes(self) -> int:
        """Its length."""
        return (self.end_ms - self.first_ms) // (SLOT_MS * SLOTS_PER_BATCH)

    @property
    def names(self) -> list[str]:
        """The nodes' names."""
        return [f"sim-{number:04d}" for number in range(1, self.nodes + 1)]


def agent_id_of(plan: Plan, node: str) -> str:
    """The identity of a simulated node's installation."""
    return hashlib.sha256(f"history/{plan}/{node}".encode()).hexdigest()[:32]


class History:
    """One simulated node, told minute by minute."""

    def __init__(self, plan: Plan, node: str):
        self.world = World(plan.seed, node, plan.scenario)
        self._plan, self._node, self._ts = plan, node, plan.first_ms
        self._clock = SimClock(self.world, lambda: self._ts)
        self._collectors = simulated_collectors(self.world)
        self._sync: tuple[str, dict[str, int]] | None = None
        self._seq = 0

    def batch(self, minute: int) -> dict[str, Any]:
        """The upload of one minute; call it for minute 0, 1, 2 … in turn. It holds the samples of one boot only."""
        intervals = []
        for position in range(SLOTS_PER_BATCH):
            slot_ms = self._plan.first_ms + (minute * SLOTS_PER_BATCH + position) * SLOT_MS
            self._ts = slot_ms + SLOT_MS // 2
            at = self._clock.now()
            readings = [collector.collect(at) for collector in self._collectors]
            intervals.append((at, {**build_interval(at, readings), "net": {"upload": "ok"}}))
        at = intervals[-1][0]
        self._seq += 1
        batch = {
            "schema_version": wire.SCHEMA_VERSION,
            "cluster_id": self._plan.cluster,
            "node_id": self._node,
            "agent_version": __version__ + wire.SIMULATED_SUFFIX,
            "agent_id": agent_id_of(self._plan, self._node),
            "seq": self._seq,
            "boot_id": at.boot_id,
            "boot_at": at.boot_at,
            "driver_version": DRIVER_VERSION,
            # a batch names one boot: samples before a reboot within the minute are left out, as an agent's would be
            "intervals": [interval for seen, interval in intervals if seen.boot_id == at.boot_id],
        }
        if self._sync is not None and self._sync[0] == at.boot_id:  # a receipt of the boot before says nothing of this
            batch["sync"] = self._sync[1]
        receipt = {"received_at": at.ts + RECEIPT_AFTER_MS, "boottime": at.boottime + RECEIPT_AFTER_MS}
        self._sync = at.boot_id, receipt
        return batch


def uploads(plan: Plan) -> Iterator[tuple[bytes, str]]:
    """(body, sha256) of every batch, minute by minute, as a server would receive them."""
    histories = [History(plan, node) for node in plan.names]
    for minute in range(plan.minutes):
        for history in histories:
            yield wire.pack(history.batch(minute))


def truth(plan: Plan) -> list[dict[str, Any]]:
    """What was injected: node, kind, index of the GPU or port, first_ms and end_ms, clipped to the plan."""
    faults: list[dict[str, Any]] = []
    for node in plan.names:
        world = World(plan.seed, node, plan.scenario)
        first, end = plan.first_ms // SLOT_MS, plan.end_ms // SLOT_MS
        for slot in range(first - first % world.episode_slots, end, world.episode_slots):
            fault = world.fault(slot)
            if fault and fault.start < end and fault.end > first:
                span = {"first_ms": max(fault.start, first) * SLOT_MS, "end_ms": min(fault.end, end) * SLOT_MS}
                faults.append({"node": node, "kind": fault.kind, "index": fault.index, **span})
    return faults
