"""A node as its agent runs it, delivered to the real ingest: for tests that begin with what a machine shows.

The NVML library, sysfs, the kernel log's read() and the clocks are stand-ins; the readers, the outbox, the ingest and
the fold are the real ones. Instants of receipt are set in the inbox, as a test does not wait for hours.
"""

from __future__ import annotations

import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from agent.clock import SYNCHRONISED, Instant, hash_boot_id
from agent.collect.kmsg import KmsgCollector
from agent.collect.kmsg_read import Device
from agent.collect.nvml import NvmlCollector
from agent.collect.pci import PciCollector
from agent.node import Node
from agent.replay import build_tree
from agent.schedule import next_centre
from agent.store import Store
from fleet import ingest
from fleet.bodies import load_row
from fleet.domain.slots import SLOT_MS, first_slot, hour_of_slot
from fleet.domain.verdicts import Verdict
from fleet.folding import fold_waiting
from fleet.models import Inbox, NodeHour
from fleet.models import Node as NodeRow
from fleet.refolding import refold_dirty
from orgs.keys import KeyInfo

LAG_MS = 2_000


class Machine:
    """One node. `now_ms` is the true time; the node's own clock is `skew_ms` ahead of it (behind if negative)."""

    def __init__(
        self, org: Any, directory: Path, driver: Any, now_ms: int, name: str = "n1", hw_id: str | None = None,
        skew_ms: int = 0, buses: tuple[str, ...] = ("0000:44:00.0", "0000:45:00.0"),
    ) -> None:  # fmt: skip
        self.org, self.directory, self.driver, self.name, self.hw_id = org, directory, driver, name, hw_id
        self.now_ms, self.skew_ms, self.buses = now_ms, skew_ms, buses
        self.clock_status: str = SYNCHRONISED
        self.clock_error_ms: int | None = 3
        self.boot_ms, self.boot = now_ms - 100_000_000, "boot-1"
        self.answers: dict[str, Any] = {}
        self._records: list[bytes] = []
        self._seq = 0
        directory.mkdir(exist_ok=True)
        lines = (f"/sys/bus/pci/devices/{bus}/{file}" for bus in buses for file in ("vendor:0x10de", "class:0x030200"))
        build_tree(directory, list(lines))
        for bus in buses:
            self.config(bus, b"\xde\x10\x30\x23")
        self._start()

    def now(self) -> Instant:
        """The clock of the agent."""
        up = self.now_ms - self.boot_ms
        wall = self.now_ms + self.skew_ms
        return Instant(wall, up, up, hash_boot_id(self.boot), wall - up, self.clock_status, self.clock_error_ms)

    def _start(self) -> None:
        self.driver.answers(count=len(self.buses), **self._nvml())
        pci = PciCollector(self.directory / "sys")
        self.store = Store(self.directory, hw_id=self.hw_id)
        nvml = NvmlCollector(5.0, lambda kind, text: f"{kind}-{text}", lambda: pci.states)
        kmsg = KmsgCollector(Path("/dev/kmsg"), self, start=False, opener=self._open)
        self.node = Node("c1", self.name, self, [pci, nvml, kmsg], self.store, hw_id=self.hw_id)

    def _open(self, _path: Path) -> Device:
        def read(_descriptor: int, _size: int) -> bytes:
            if not self._records:
                raise BlockingIOError
            return self._records.pop(0)

        return Device(os.open("/dev/null", os.O_RDONLY), read)

    def _nvml(self) -> dict[str, Any]:
        own = {f"gpu__{i}__pci": f"0000{bus.upper()}" for i, bus in enumerate(self.buses)}
        own |= {f"gpu__{i}__uuid": f"GPU-{self.name}-{i}" for i in range(len(self.buses))}
        return {**own, **self.answers}

    def config(self, bus: str, first_bytes: bytes) -> None:
        """Sets the head of a function's configuration space; all ones: it is dead."""
        (self.directory / "sys/bus/pci/devices" / bus / "config").write_bytes(first_bytes)

    def log(self, text: str) -> None:
        """The kernel writes a line now."""
        self._seq += 1
        self._records.append(f"4,{self._seq},{(self.now_ms - self.boot_ms) * 1000},c;{text}".encode())

    def nvml(self, **answers: Any) -> None:
        """Changes answers of the driver's library."""
        self.answers.update(answers)

    def restart_agent(self) -> None:
        """The agent ends and begins again on the same boot."""
        self.node.stop()
        self._start()

    def reboot(self, seconds: float) -> None:
        """The machine is off for a while and comes up as another boot."""
        self.node.stop()
        self.now_ms += int(seconds * 1000)
        self.boot_ms, self.boot, self._seq = self.now_ms - 30_000, f"{self.boot}+", 0
        self._start()

    def sample(self, count: int = 1) -> None:
        """Takes samples, each at the next centre of a slot by the node's own clock."""
        self.driver.answers(count=len(self.buses), **self._nvml())
        for _ in range(count):
            self.now_ms = next_centre(self.now_ms + self.skew_ms) - self.skew_ms
            self.node.sample()
            self.now_ms += 100

    def deliver(self) -> list[int]:
        """Sends all that waits; the server's statuses: 202, or 409 for a conflict of `seq`."""
        self.store.assemble(self.now_ms)
        key = KeyInfo(0, "test", frozenset({"ingest"}), "", None, self.org.pk, self.org.slug, self.org.schema_name)
        statuses = []
        while (leased := self.store.lease(0)) is not None:
            outbox, batch = leased
            at = datetime.fromtimestamp((self.now_ms + LAG_MS) / 1000, UTC)
            sync = {"received_at": self.now_ms + LAG_MS, "boottime": self.now().boottime, "boot_id": self.now().boot_id}
            try:
                ingest.receive(batch.body, key, {})
            except ingest.SeqConflict:
                outbox.quarantine(batch, self.now_ms, "seq_conflict")
                statuses.append(409)
                continue
            finally:
                Inbox.objects.filter(sha256=bytes.fromhex(batch.sha256)).update(received_at=at)
            outbox.delivered(batch, self.now_ms, sync)
            statuses.append(202)
        return statuses

    def run(self, minutes: int) -> None:
        """Samples and delivers every minute."""
        for _ in range(minutes):
            self.sample(4)
            self.deliver()

    def fold(self) -> None:
        """The server's worker does what waits."""
        now = datetime.fromtimestamp(self.now_ms / 1000, UTC)
        fold_waiting(now)
        while refold_dirty(now):
            pass

    def verdict(self, subject: str, at_ms: int) -> Verdict | None:
        """The stored verdict of the slot that holds a true instant; None where no row says anything."""
        slot = at_ms // SLOT_MS
        hour = hour_of_slot(slot)
        found = NodeHour.objects.filter(node__name=self.name, hour=hour).first()
        if found is None:
            return None
        return load_row(found.body).verdicts(subject)[slot - first_slot(hour)]

    def row(self) -> NodeRow:
        """The server's node."""
        return NodeRow.objects.get(name=self.name)


__all__ = ["Machine"]
