"""One node: its collectors, its outbox and its sender, put together."""

from __future__ import annotations

import json
import logging
import threading
from typing import Any, Callable, Optional, Sequence

from agent import __version__, wire
from agent.bounds import bounded
from agent.clock import Clock, Instant
from agent.collect.base import ERROR, Collector, Reading, build_interval, public_xids
from agent.errors import PermissionProblem
from agent.schedule import slot_of, upload_phase
from agent.sender import Sender
from agent.store import Store

log = logging.getLogger("goodput.node")


class Node:
    """What one node of a fleet does: `sample` at every slot centre; the sender's thread does the rest."""

    def __init__(
        self,
        cluster: str,
        node_id: str,
        clock: Clock,
        collectors: Sequence[Collector],
        store: Store,
        sender: Optional[Sender] = None,
        simulated: bool = False,
        hw_id: Optional[str] = None,
        shutdown: str = "unknown",
        net: Callable[[], dict[str, str]] = dict,
        journal_instant: Callable[[], Optional[int]] = lambda: None,
        boot: Optional[Callable[[Instant], dict[str, Any]]] = None,
        label: str = "",
    ) -> None:
        """`boot` marks another machine than this one: what it tells stands for the clocks that nobody can read here.

        `label` is added to the agent's version.
        """
        self.cluster = cluster
        self.node_id = node_id
        self.clock = clock
        self.collectors = list(collectors)
        self.store = store
        self.sender = sender
        self.version = __version__ + label + (wire.SIMULATED_SUFFIX if simulated else "")
        self._boot = boot
        self.hw_id = hw_id
        self._farewell = _notice(store.memory("farewell"))  # the shutdown notice that the boot before this one left
        self._shutdown = shutdown
        self._net = net
        self._driver: Optional[str] = None
        self._committed: dict[str, str] = {}
        self._sampled = 0
        self._slot, self._delay_ms = upload_phase(f"{cluster}/{node_id}")
        self._thread: Optional[threading.Thread] = None
        self.durations_ms: dict[str, int] = {}
        self._injected: list[dict[str, Any]] = []
        self._told_odd = False
        now = clock.now()
        boot_id = now.boot_id
        if store.is_new_boot(boot_id):
            written = journal_instant()
            # a boot can't outlive the next one's beginning: such an instant comes from a clock that was wrong
            if written is not None and 0 < written <= now.boot_at:
                store.note_last_alive(written, boot_id)
        if self._farewell and self._farewell.get("boot_id") != boot_id:
            self._shutdown = "clean"
            store.keep_memory("shutdown", {"boot_id": boot_id})
        elif store.memory("shutdown").get("boot_id") == boot_id:
            self._shutdown = "clean"
        for collector in self.collectors:
            try:
                collector.restore(store.memory(collector.source))
            except Exception:
                log.exception("what %s remembered cannot be read; it begins anew", collector.source)

    def read(self, at: Instant) -> list[Reading]:
        """A reading of every collector; a bug in one is an `error` of that source and hides no other."""
        readings = []
        for collector in self.collectors:
            before = self.clock.now().mono
            try:
                reading = collector.collect(at)
            except Exception:
                log.exception("collector %s failed", collector.source)
                reading = Reading(collector.source, ERROR)
            reading.duration_ms = max(0, self.clock.now().mono - before)
            self.durations_ms[reading.source] = reading.duration_ms
            readings.append(reading)
        return readings

    def head(self, at: Instant, readings: Sequence[Reading]) -> dict[str, Any]:
        """The batch keys that hold for a sample."""
        for reading in readings:
            self._driver = reading.batch.get("driver_version", self._driver)
        head: dict[str, Any] = {
            "cluster_id": self.cluster,
            "node_id": self.node_id,
            "agent_version": self.version,
        }
        if self._boot is None:
            head.update(boot_id=at.boot_id, boot_at=at.boot_at, last_shutdown=self._shutdown)
        else:
            head.update(self._boot(at))
        if self.hw_id:
            head["hw_id"] = self.hw_id
        if self._driver:
            head["driver_version"] = self._driver
        return head

    def interval(self, at: Instant, readings: Sequence[Reading]) -> dict[str, Any]:
        """The wire's interval of a sample."""
        interval = build_interval(at, readings)
        if self._boot is not None:
            del interval["mono"], interval["boottime"]  # they would be this machine's
        return interval

    def sample(self) -> None:
        """Takes one sample, commits it, and makes batches when the node's minute is full."""
        at = self.clock.now()
        readings = self.read(at)
        interval = self.interval(at, readings)
        net = dict(self._net())
        if self.sender is not None:
            net["upload"] = self.sender.result
        interval["net"] = net
        memory = {r.source: r.memory for r in readings if self._changed(r)}
        if self._farewell:
            self._tell_farewell(interval, at)
            memory["farewell"] = {}
        if self._injected:
            self._tell_injected(interval, at)
        odd: list[str] = []
        interval = bounded(interval, "INTERVAL", odd)
        head = bounded(self.head(at, readings), "BATCH", odd)
        if odd and not self._told_odd:
            self._told_odd = True
            log.warning("values that no contract allows are left out: %s", ", ".join(sorted(set(odd))[:8]))
        self.store.add_sample(interval, head, memory)
        self._farewell = {}
        self._committed.update({source: json.dumps(value, sort_keys=True) for source, value in memory.items()})
        first = self._sampled == 0
        self._sampled += 1
        due = slot_of(at.ts) % 4 == self._slot
        if first or due or (self._sampled % 4 == 0 and self.store.outbox.sample_count() >= 4):
            self.store.assemble(at.ts)
            if self.sender is not None:
                self.sender.wake(0.0 if first else self._delay_ms / 1000)

    def _tell_farewell(self, interval: dict[str, Any], at: Instant) -> None:
        event = {"kind": "shutdown", "at": self._farewell["at"], "mono": self._farewell["mono"], "backlog": True}
        if self._farewell["boot_id"] != at.boot_id:
            event["boot_id"] = self._farewell["boot_id"]
        interval["events"] = [event, *interval.get("events", [])]

    def inject(self, event: dict[str, Any]) -> None:
        """Takes a test fault into the next sample. Only for nodes whose batches are labelled simulated."""
        if not self.version.endswith(wire.SIMULATED_SUFFIX):
            raise PermissionProblem("test faults are refused: this agent runs without --allow-inject yes")
        self._injected.append(event)

    def _tell_injected(self, interval: dict[str, Any], at: Instant) -> None:
        faults = [{**event, "at": at.ts, "mono": at.mono} for event in self._injected]
        self._injected.clear()
        interval["events"] = [*interval.get("events", []), *faults]
        interval["xids"] = public_xids(interval["events"])

    def leave_farewell(self) -> None:
        """Notes that this machine is being shut down in order; the next boot's first batch tells it."""
        at = self.clock.now()
        self.store.keep_memory("farewell", {"at": at.ts, "mono": at.mono, "boot_id": at.boot_id})

    def _changed(self, reading: Reading) -> bool:
        return bool(reading.memory) and self._committed.get(reading.source) != json.dumps(
            reading.memory, sort_keys=True
        )

    def start(self) -> None:
        """Starts the sender's thread."""
        if self.sender is not None:
            self._thread = threading.Thread(target=self.sender.run, name=f"sender-{self.node_id}", daemon=True)
            self._thread.start()
            self.sender.wake()

    def stop(self, timeout_s: float = 5.0) -> None:
        """Stops sending, makes batches of what waits, closes files and devices."""
        if self.sender is not None:
            self.sender.stop()
        if self._thread is not None:
            self._thread.join(timeout_s)
        for collector in self.collectors:
            collector.close()
        self.store.close()


def _notice(memory: dict[str, Any]) -> dict[str, Any]:
    """A shutdown notice as `leave_farewell` left it; empty if it is none."""
    whole = all(isinstance(memory.get(key), int) for key in ("at", "mono")) and isinstance(memory.get("boot_id"), str)
    return memory if whole else {}
