"""A simulated GPU node: every fact is a function of (seed, node, scenario, slot), so a restart changes nothing.

A node has 8 H100 GPUs and 8 InfiniBand ports. Time is cut into episodes; a scenario places its fault into each.
"""

from __future__ import annotations

import hashlib
import random
import struct
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
_JOB, _GPU, _PORT, _EVENT = range(4)  # what a draw is for
_ITEM = struct.Struct("<BqB")
_DRAWS = struct.Struct("<10H")
_NO_REMAP = {"correctable": 0, "uncorrectable": 0, "pending": False, "failed": False}


def _within(draw: int, count: int) -> int:
    """A draw 0..65535 as a number 0..count-1."""
    return draw * count >> 16


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
        self._boots: dict[int, Optional[int]] = {}
        self._key = hashlib.blake2b(f"goodput sim/{seed}/{node}".encode(), digest_size=32).digest()
        self._gpus = [self._gpu_at_rest(index) for index in range(len(BUS_IDS))]
        self._ports = [self._port_at_rest(index) for index in range(len(PORT_BUS_IDS))]

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
        fault = self.fault(slot)
        if fault and fault.kind == "xid79" and fault.end <= slot:
            return fault.end * SLOT_MS
        episode = self._episode(slot)
        if episode not in self._boots:
            if len(self._boots) > 64:
                self._boots.clear()
            self._boots[episode] = self._boot_before(slot)
        earlier = self._boots[episode]
        return min(FIRST_BOOT_MS, ts) if earlier is None else earlier

    def _boot_before(self, slot: int) -> Optional[int]:
        """The reboot of the latest earlier episode with an Xid 79; a fault ends within its episode.

        Looked for back to the first boot: a boot that began ever earlier as time goes on would be no boot.
        """
        if self.scenario not in ("xid79", "month_mixed"):
            return None
        for episode in range(self._episode(slot) - 1, self._episode(FIRST_BOOT_MS // SLOT_MS), -1):
            fault = self._plan(episode)
            if fault and fault.kind == "xid79":
                return fault.end * SLOT_MS
        return None

    def boot_id(self, boot_at: int) -> str:
        """The boot's public id."""
        return hashlib.sha256(f"sim/{self.seed}/{self.node}/{boot_at}".encode()).hexdigest()[:32]

    # -- facts of a slot -----------------------------------------------------------------------------------------

    def _draws(self, kind: int, slot: int, index: int) -> tuple[int, ...]:
        """Ten numbers 0..65535 that depend on seed, node and arguments: a hash, as seeding a generator is slow."""
        item = _ITEM.pack(kind, slot, index)
        return _DRAWS.unpack(hashlib.blake2b(item, key=self._key, digest_size=_DRAWS.size).digest())

    def busy(self, slot: int) -> bool:
        """Whether a job runs: about five sixths of the time, in stretches of 10 minutes."""
        return self._draws(_JOB, slot // 40, 0)[0] < 0.84 * 65536

    def missing(self, slot: int) -> Optional[int]:
        """Index of the GPU that has fallen off the bus, if any."""
        fault = self.active(slot, "xid79")
        return fault.index if fault else None

    def gpu(self, slot: int, index: int) -> dict[str, Any]:
        """One GPU as NVML would show it. A GPU that waits for its reset runs nothing; its neighbours go on."""
        fault = self.fault(slot)
        if fault is not None and fault.index != index:
            fault = None
        broken = fault is not None and fault.kind == "ecc_storm" and fault.start <= slot < fault.end
        draws = self._draws(_GPU, slot, index)
        facts = self._gpus[index].copy()
        facts["row_remap"] = dict(_NO_REMAP)
        facts["throttle_time"] = {"sw_power_cap": 0, "hw_thermal": 0}
        if self.busy(slot) and not broken:
            facts["memory_used"] = MEMORY_BYTES * (78_000 + _within(draws[0], 15_000)) // 100_000
            facts["sm_clock"] = 1755 + 15 * _within(draws[1], 14)
            facts["temperature"] = 58 + _within(draws[2], 10)
            facts["gpu_utilization"] = 91 + _within(draws[3], 10)
            facts["memory_utilization"] = 35 + _within(draws[4], 27)
            facts["power"] = 560_000 + _within(draws[5], 138_000)
            facts["pcie_gen"] = 5
            facts["throttle_reasons"] = 0
            if draws[6] < 0.3 * 65536:
                facts["throttle_reasons"] = SW_POWER_CAP
                facts["throttle_time"]["sw_power_cap"] = 500 + _within(draws[7], 8500)
            if fault is not None and fault.kind == "thermal" and fault.start <= slot < fault.end:
                facts["throttle_reasons"] = HW_SLOWDOWN | HW_THERMAL
                facts["throttle_time"]["hw_thermal"] = 3750 + _within(draws[7], 9750)
                facts["temperature"] = 86 + _within(draws[8], 5)
                facts["sm_clock"] = 840 + 15 * _within(draws[9], 24)
        else:
            facts["temperature"] = 31 + _within(draws[2], 5)
            facts["power"] = 68_000 + _within(draws[5], 10_000)
        if fault is not None and fault.kind == "ecc_storm" and slot >= fault.start:
            facts["ecc_corrected"] = min(slot, fault.end) - fault.start + 1
            facts["ecc_uncorrected"] = facts["recovery_action"] = int(broken)
            facts["row_remap"].update(uncorrectable=1, pending=broken)
        return facts

    def _gpu_at_rest(self, index: int) -> dict[str, Any]:
        """What stays the same of a GPU, and what an idle one shows."""
        return {
            "uuid": f"GPU-{self._uuid('gpu', index)}",
            "name": "NVIDIA H100 80GB HBM3",
            "pci_bus_id": BUS_IDS[index],
            "memory_total": MEMORY_BYTES,
            "memory_used": 512 << 20,
            "sm_clock": 345,
            "sm_clock_max": 1980,
            "throttle_reasons": IDLE,
            "throttle_supported": True,
            "temperature": 31,
            "ecc_corrected": 0,
            "ecc_uncorrected": 0,
            "pcie_gen": 1,
            "pcie_gen_max": 5,
            "pcie_width": 16,
            "pcie_width_max": 16,
            "gpu_utilization": 0,
            "memory_utilization": 0,
            "recovery_action": 0,
            "throttle_time": {},
            "row_remap": {},
            "pcie_replays": 0,
            "nvlink_inactive": 0,
            "power": 68_000,
            "power_limit": 700_000,
            "ecc_mode": True,
            "mig_mode": False,
            "serial_hash": self._uuid("serial", index).replace("-", ""),
        }

    def port(self, slot: int, index: int) -> dict[str, Any]:
        """One InfiniBand port with its counters' deltas of this slot."""
        fault = self.active(slot, "ib_flap")
        down = dropped = False
        if fault is not None and fault.index == index:
            phase = (slot - fault.start) % 15
            dropped, down = phase == 0, phase in (0, 1)
        draws = self._draws(_PORT, slot, index)
        traffic = draws[0] >> 4
        if self.busy(slot) and not down:
            traffic = (2 << 30) + ((draws[0] << 16 | draws[1]) * (4 << 30) >> 32)
        facts = self._ports[index].copy()
        facts["counters"] = {
            "link_downed": int(dropped),
            "link_error_recovery": 0,
            "symbol_error": 3 + _within(draws[2], 37) if dropped else 0,
            "port_rcv_errors": 0,
            "port_xmit_discards": 0,
            "port_xmit_data": traffic,
            "port_rcv_data": traffic,
        }
        if down:
            facts.update(state="DOWN", link_rate=10, phys_state="Polling", reasons=["IB_PORT_DOWN"])
        return facts

    def _port_at_rest(self, index: int) -> dict[str, Any]:
        """What stays the same of a port that is up."""
        return {
            "device": f"mlx5_{index}",
            "port": 1,
            "state": "ACTIVE",
            "link_rate": 400,
            "counters": {},
            "guid_hash": self._uuid("guid", index).replace("-", ""),
            "pci_bus_id": PORT_BUS_IDS[index],
            "phys_state": "LinkUp",
            "link_layer": "InfiniBand",
            "is_vf": False,
            "near": [BUS_IDS[index]],
        }

    def events(self, slot: int) -> list[dict[str, Any]]:
        """Kernel events whose own instant lies in the slot; `at` in ms."""
        fault = self.fault(slot)
        if fault is None:
            return []
        first, last = slot == fault.start, slot == fault.end
        if not first and not last:
            return []
        at = slot * SLOT_MS + 1000 + _within(self._draws(_EVENT, slot, 0)[0], 6000)
        bus = BUS_IDS[fault.index]
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
        if fault.kind == "driver_reload":
            return [{"kind": "driver_unload" if first else "driver_load", "at": at}]
        return []

    def _uuid(self, kind: str, index: int) -> str:
        text = hashlib.sha256(f"{kind}/{self.seed}/{self.node}/{index}".encode()).hexdigest()
        return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:32]}"
