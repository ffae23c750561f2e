"""The simulated source: the same collectors' interface, fed by a World. Batches of it are always labelled +sim."""

from __future__ import annotations

import time
from typing import Any, Callable

from agent.clock import SYNCHRONISED, Instant
from agent.collect.base import ABSENT, OK, Collector, Memory, Reading
from agent.collect.sim_world import BUS_IDS, PORT_BUS_IDS, World
from agent.schedule import slot_of

DRIVER_VERSION = "570.158.01"
_CATCH_UP_SLOTS = 240  # events of one hour are told after a restart, as the kernel's ring would


class SimClock:
    """The wall clock of this machine with the simulated node's boots."""

    def __init__(self, world: World, wall_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000) -> None:
        self._world = world
        self._wall_ms = wall_ms

    def now(self) -> Instant:
        """All clocks of the simulated node."""
        ts = self._wall_ms()
        boot_at = self._world.boot_at(ts)
        up = ts - boot_at
        return Instant(ts, up, up, self._world.boot_id(boot_at), boot_at, SYNCHRONISED, 2)


class _Simulated:
    """What the simulated collectors share."""

    source = ""

    def __init__(self, world: World) -> None:
        self._world = world

    def restore(self, memory: Memory) -> None:
        """Nothing to take back."""

    def close(self) -> None:
        """Nothing to let go of."""


class SimNvml(_Simulated):
    """Simulated GPUs."""

    source = "nvml"

    def collect(self, at: Instant) -> Reading:
        """The GPUs that NVML would list."""
        slot = slot_of(at.ts)
        if self._world.active(slot, "driver_reload"):
            return Reading(self.source, ABSENT, {"gpus": [], "nvml_error": 9})
        gone = self._world.missing(slot)
        gpus = [self._world.gpu(slot, index) for index in range(len(BUS_IDS)) if index != gone]
        return Reading(self.source, OK, {"gpus": gpus}, batch={"driver_version": DRIVER_VERSION})


class SimIb(_Simulated):
    """Simulated InfiniBand ports."""

    source = "ib"

    def collect(self, at: Instant) -> Reading:
        """All ports."""
        slot = slot_of(at.ts)
        ports = [self._world.port(slot, index) for index in range(len(PORT_BUS_IDS))]
        return Reading(self.source, OK, {"ib_ports": ports})


class SimKmsg(_Simulated):
    """Simulated kernel events."""

    source = "kmsg"

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._last = -1
        self._restored = False

    def restore(self, memory: Memory) -> None:
        """Goes on behind the slot that was told last."""
        if isinstance(memory.get("slot"), int):
            self._last, self._restored = memory["slot"], True

    def collect(self, at: Instant) -> Reading:
        """Events since the previous sample."""
        slot = slot_of(at.ts)
        first = max(self._last + 1, slot - _CATCH_UP_SLOTS) if self._last >= 0 else slot
        events: list[dict[str, Any]] = []
        for number in range(first, slot + 1):
            for event in self._world.events(number):
                if event["at"] <= at.ts:
                    boot_at = self._world.boot_at(event["at"])
                    event = {**event, "mono": event["at"] - boot_at}
                    if boot_at != at.boot_at:
                        event["boot_id"] = self._world.boot_id(boot_at)
                    if self._restored:
                        event["backlog"] = True
                    events.append(event)
        self._last, self._restored = slot, False
        return Reading(self.source, OK, {"events": events}, {"slot": slot})


class SimPci(_Simulated):
    """Simulated PCI functions."""

    source = "pci"

    def collect(self, at: Instant) -> Reading:
        """Which functions answer."""
        gone = self._world.missing(slot_of(at.ts))
        functions = {bus: "dead" if index == gone else "present" for index, bus in enumerate(BUS_IDS)}
        return Reading(self.source, OK, {"pci": functions})


def simulated_collectors(world: World) -> list[Collector]:
    """One collector per source, all of the same world."""
    return [SimNvml(world), SimIb(world), SimKmsg(world), SimPci(world)]
