"""A simulated GPU node: every fact is a function of (seed, node, scenario, slot), so a restart changes nothing.

A node has 8 H100 GPUs and 8 InfiniBand ports. Time is cut into episodes; a scenario places its fault into each.
"""

from __future__ import annotations

import hashlib
import random
from dataclasses import dataclass
from typing import Any, Optional

from agent.schedule import SLOT_MS

SCENARIOS = ("healthy", "thermal", "xid79", "ib_flap", "ecc_storm", "driver_reload", "month_mixed", "demo")
DEMO_ROLES = ("healthy", "thermal", "xid79", "ib_flap", "ecc_storm", "driver_reload")
EPISODE_SLOTS = 120  # 30 minutes
MONTH_EPISODE_SLOTS = 5760  # a day
FIRST_BOOT_MS = 1_767_225_600_000  # 2026-01-01: simulated nodes have been up since then unless a scenario reboots them
BUS_IDS = (
    "0000:1b:00.0",
    "0000:43:00.0",
    "0000:52:00.0",
    "0000:61:00.0",
    "0000:9d:00.0",
    "0000:c3:00.0",
    "0000:d1:00.0",
    "0000:df:00.0",
)
PORT_BUS_IDS = tuple(bus.replace(":00.0", ":10.0") for bus in BUS_IDS)
MEMORY_BYTES = 85_520_809_984
HW_SLOWDOWN, HW_THERMAL, SW_POWER_CAP, IDLE = 0x8, 0x40, 0x4, 0x1


@dataclass(frozen=True)
class Fault:
    """One fault of an episode: what, on which GPU or port, in which slots [start, end)."""

    kind: str
    index: int
    start: int
    end: int


class World:
    """One simulated node."""

    def __init__(self, seed: int, node: str, scenario: str, role: int = 0) -> None:
        self.seed = seed
        self.node = node
        self.scenario = DEMO_ROLES[role % len(DEMO_ROLES)] if scenario == "demo" else scenario
        self.episode_slots = MONTH_EPISODE_SLOTS if scenario == "month_mixed" else EPISODE_SLOTS
        self._demo = scenario == "demo"
        # a demo's nodes are out of step, so that there is always something to see
        self._offset = self.rng("offset").randrange(self.episode_slots) if self._demo else 0
        self._cache: dict[int, Optional[Fault]] = {}

    def rng(self, *parts: object) -> random.Random:
        """A generator that depends on nothing but the seed, the node and `parts`."""
        return random.Random("/".join(str(part) for part in (self.seed, self.node, *parts)))

    def fault(self, slot: int) -> Optional[Fault]:
        """The fault of the episode that holds `slot`, begun or not."""
        episode = self._episode(slot)
        if episode not in self._cache:
            if len(self._cache) > 64:
                self._cache.clear()
            self._cache[episode] = self._plan(episode)
        return self._cache[episode]

    def _episode(self, slot: int) -> int:
        return (slot + self._offset) // self.episode_slots

    def _plan(self, episode: int) -> Optional[Fault]:
        rng = self.rng("episode", episode)
        kind = self.scenario
        if kind == "month_mixed":
            kinds = ["healthy", "thermal", "ib_flap", "xid79", "ecc_storm", "driver_reload"]
            kind = rng.choices(kinds, (70, 10, 9, 4, 4, 3))[0]
        if kind == "healthy":
            return None
        start = episode * self.episode_slots - self._offset + rng.randrange(4, self.episode_slots // 4)
        length = rng.randrange(self.episode_slots // 3, self.episode_slots // 2)
        if self._demo:
            length = rng.randrange(self.episode_slots // 2, 2 * self.episode_slots // 3)
        if kind == "driver_reload":
            length = 8
        return Fault(kind, rng.randrange(8), start, start + length)

    def active(self, slot: int, kind: str) -> Optional[Fault]:
        """The fault of this kind if `slot` lies in it."""
        fault = self.fault(slot)
        return fault if fault and fault.kind == kind and fault.start <= slot < fault.end else None

    # -- boots ---------------------------------------------------------------------------------------------------

    def boot_at(self, ts: int) -> int:
        """Instant of the boot that `ts` belongs to: the reboot that ended the latest Xid 79, else the first boot."""
        slot = ts // SLOT_MS
        for back in range(40):
            fault = self.fault(slot - back * self.episode_slots)
            if fault and fault.kind == "xid79" and fault.end <= slot:
                return fault.end * SLOT_MS
        return min(FIRST_BOOT_MS, ts)

    def boot_id(self, boot_at: int) -> str:
        """The boot's public id."""
        return hashlib.sha256(f"sim/{self.seed}/{self.node}/{boot_at}".encode()).hexdigest()[:32]

    # -- facts of a slot -----------------------------------------------------------------------------------------

    def busy(self, slot: int) -> bool:
        """Whether a job runs: about five sixths of the time, in stretches of 10 minutes."""
        return self.rng("job", slot // 40).random() < 0.84

    def missing(self, slot: int) -> Optional[int]:
        """Index of the GPU that has fallen off the bus, if any."""
        fault = self.active(slot, "xid79")
        return fault.index if fault else None

    def gpu(self, slot: int, index: int) -> dict[str, Any]:
        """One GPU as NVML would show it."""
        rng = self.rng("gpu", slot, index)
        busy = self.busy(slot)
        power_cap = busy and rng.random() < 0.3
        facts: dict[str, Any] = {
            "uuid": f"GPU-{self._uuid('gpu', index)}",
            "name": "NVIDIA H100 80GB HBM3",
            "pci_bus_id": BUS_IDS[index],
            "memory_total": MEMORY_BYTES,
            "memory_used": int(MEMORY_BYTES * rng.uniform(0.78, 0.93)) if busy else 512 << 20,
            "sm_clock": rng.randrange(1755, 1965, 15) if busy else 345,
            "sm_clock_max": 1980,
            "throttle_reasons": (SW_POWER_CAP if power_cap else 0) if busy else IDLE,
            "throttle_supported": True,
            "temperature": rng.randrange(58, 68) if busy else rng.randrange(31, 36),
            "ecc_corrected": 0,
            "ecc_uncorrected": 0,
            "pcie_gen": 5 if busy else 1,
            "pcie_gen_max": 5,
            "pcie_width": 16,
            "pcie_width_max": 16,
            "gpu_utilization": rng.randrange(91, 101) if busy else 0,
            "memory_utilization": rng.randrange(35, 62) if busy else 0,
            "recovery_action": 0,
            "throttle_time": {"sw_power_cap": rng.randrange(500, 9000) if power_cap else 0, "hw_thermal": 0},
            "row_remap": {"correctable": 0, "uncorrectable": 0, "pending": False, "failed": False},
            "pcie_replays": 0,
            "nvlink_inactive": 0,
            "power": rng.randrange(560_000, 698_000) if busy else rng.randrange(68_000, 78_000),
            "power_limit": 700_000,
            "ecc_mode": True,
            "mig_mode": False,
            "serial_hash": self._uuid("serial", index).replace("-", ""),
        }
        self._hurt(facts, slot, index, rng)
        return facts

    def _hurt(self, facts: dict[str, Any], slot: int, index: int, rng: random.Random) -> None:
        fault = self.fault(slot)
        if fault is None or fault.index != index:
            return
        if fault.kind == "thermal" and fault.start <= slot < fault.end and self.busy(slot):
            share = rng.uniform(0.25, 0.9)
            facts["throttle_reasons"] = HW_SLOWDOWN | HW_THERMAL
            facts["throttle_time"]["hw_thermal"] = int(15_000 * share)
            facts["temperature"] = rng.randrange(86, 91)
            facts["sm_clock"] = rng.randrange(840, 1200, 15)
        if fault.kind == "ecc_storm" and slot >= fault.start:
            facts["ecc_corrected"] = min(slot, fault.end) - fault.start + 1
            facts["ecc_uncorrected"] = 1 if slot < fault.end else 0
            facts["recovery_action"] = 1 if slot < fault.end else 0
            pending = slot < fault.end
            facts["row_remap"] = {"correctable": 0, "uncorrectable": 1, "pending": pending, "failed": False}

    def port(self, slot: int, index: int) -> dict[str, Any]:
        """One InfiniBand port with its counters' deltas of this slot."""
        rng = self.rng("port", slot, index)
        busy = self.busy(slot)
        fault = self.active(slot, "ib_flap")
        down = dropped = False
        if fault is not None and fault.index == index:
            phase = (slot - fault.start) % 15
            dropped, down = phase == 0, phase in (0, 1)
        traffic = rng.randrange(2 << 30, 6 << 30) if busy and not down else rng.randrange(1 << 12)
        facts: dict[str, Any] = {
            "device": f"mlx5_{index}",
            "port": 1,
            "state": "DOWN" if down else "ACTIVE",
            "link_rate": 10 if down else 400,
            "counters": {
                "link_downed": 1 if dropped else 0,
                "link_error_recovery": 0,
                "symbol_error": rng.randrange(3, 40) if dropped else 0,
                "port_rcv_errors": 0,
                "port_xmit_discards": 0,
                "port_xmit_data": traffic,
                "port_rcv_data": traffic,
            },
            "guid_hash": self._uuid("guid", index).replace("-", ""),
            "pci_bus_id": PORT_BUS_IDS[index],
            "phys_state": "Polling" if down else "LinkUp",
            "link_layer": "InfiniBand",
            "is_vf": False,
            "near": [BUS_IDS[index]],
        }
        if down:
            facts["reasons"] = ["IB_PORT_DOWN"]
        return facts

    def events(self, slot: int) -> list[dict[str, Any]]:
        """Kernel events whose own instant lies in the slot; `at` in ms."""
        fault = self.fault(slot)
        if fault is None:
            return []
        at = slot * SLOT_MS + self.rng("event", slot).randrange(1000, 7000)
        bus = BUS_IDS[fault.index]
        first, last = slot == fault.start, slot == fault.end
        if fault.kind == "xid79" and first:
            return [{"kind": "xid", "code": 79, "pci_bus_id": bus, "at": at}]
        if fault.kind == "ecc_storm" and first:
            return [
                {"kind": "xid", "code": 48, "pci_bus_id": bus, "at": at},
                {"kind": "xid", "code": 63, "pci_bus_id": bus, "at": at + 2},
                {"kind": "xid", "code": 154, "pci_bus_id": bus, "action": 1, "at": at + 5},
            ]
        if fault.kind == "ecc_storm" and last:
            return [
                {"kind": "gpu_reset", "pci_bus_id": bus, "at": at},
                {"kind": "xid", "code": 154, "pci_bus_id": bus, "action": 0, "at": at + 900},
            ]
        if fault.kind == "driver_reload" and (first or last):
            return [{"kind": "driver_unload" if first else "driver_load", "at": at}]
        return []

    def _uuid(self, kind: str, index: int) -> str:
        text = hashlib.sha256(f"{kind}/{self.seed}/{self.node}/{index}".encode()).hexdigest()
        return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:32]}"
