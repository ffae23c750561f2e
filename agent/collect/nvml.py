"""GPUs through NVML, read by a child process with a deadline: a hung driver stops nothing but itself."""

from __future__ import annotations

import json
import logging
import os
import select
import subprocess
import time
from typing import Any, Callable, Mapping, Optional, Protocol

from agent.child import child_command, child_environment
from agent.clock import Instant
from agent.collect.base import ABSENT, BLIND, ERROR, LOST, OK, TIMEOUT, Memory, Reading
from agent.collect.nvml_parse import Deltas, Hash, mig_slices, parse_gpus

log = logging.getLogger("goodput.nvml")

DRIVER_NOT_LOADED, LIBRARY_NOT_FOUND, UNKNOWN = 9, 12, 999
START_ALLOWANCE_S = 10.0  # the first answer of a new child includes its start
KILL_AFTER_S = 60.0
STUCK_LOOK_S = 0.2
SEEN_MOST = 64


def driver_present() -> bool:
    """Whether the NVIDIA kernel driver is loaded here."""
    return os.path.exists("/proc/driver/nvidia/version") or os.path.exists("/dev/nvidiactl")


class Answering(Protocol):
    """What the collector asks: the child process, or a recording of it."""

    @property
    def stuck_s(self) -> float:
        """Seconds since which a request is open."""
        ...

    def ask(self, deadline_s: float) -> Optional[dict[str, Any]]:
        """NVML's raw answers, None if they did not come in time. Raises OSError when the other side has died."""
        ...

    def end(self) -> bool:
        """Ends it; False if that cannot be done yet."""
        ...


class Child:
    """One child process. `ask` never blocks longer than its deadline, and never leaves two requests open."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            child_command("_nvml"), stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=child_environment(), bufsize=0
        )
        self._buffer = b""
        self._number = 0
        self._open_since: Optional[float] = None
        self.fresh = True

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    def ask(self, deadline_s: float) -> Optional[dict[str, Any]]:
        """NVML's raw answers, None if they did not come in time. Raises OSError when the child has died."""
        assert self._process.stdin is not None
        until = time.monotonic() + deadline_s + (START_ALLOWANCE_S if self.fresh else 0.0)
        if self._open_since is not None:
            until = time.monotonic() + STUCK_LOOK_S  # it hung at an earlier sample: only look whether it came back
        else:
            self._number += 1
            self._process.stdin.write(json.dumps({"id": self._number}).encode() + b"\n")
            self._open_since = time.monotonic()
        line = self._line(until)
        while line is not None:
            answer = json.loads(line)
            if answer["id"] == self._number:
                late = time.monotonic() - self._open_since > deadline_s + START_ALLOWANCE_S
                self._open_since, self.fresh = None, False
                if not late:
                    raw: dict[str, Any] = answer["raw"]
                    return raw
                return self.ask(deadline_s)  # the answer to an earlier sample: ask anew for this one
            line = self._line(until)
        return None

    def _line(self, until: float) -> Optional[bytes]:
        assert self._process.stdout is not None
        descriptor = self._process.stdout.fileno()
        while b"\n" not in self._buffer:
            left = until - time.monotonic()
            if left <= 0 or not select.select([descriptor], [], [], left)[0]:
                return None
            chunk = os.read(descriptor, 65536)
            if not chunk:
                raise BrokenPipeError("the child has ended")
            self._buffer += chunk
        line, self._buffer = self._buffer.split(b"\n", 1)
        return line

    @property
    def stuck_s(self) -> float:
        """Seconds since which a request is open."""
        return 0.0 if self._open_since is None else time.monotonic() - self._open_since

    def end(self) -> bool:
        """Ends the process; False if the kernel cannot end it yet (it hangs in the driver)."""
        self._process.kill()
        try:
            self._process.wait(1.0)
        except subprocess.TimeoutExpired:
            return False
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()
        return True


class NvmlCollector:
    """Facts of all GPUs. `pci` gives the PCI witness of the same sample: bus id to present, absent or dead."""

    source = "nvml"

    def __init__(
        self,
        timeout_s: float,
        hash_id: Hash,
        pci: Callable[[], Mapping[str, str]] = dict,
        start: Callable[[], Answering] = Child,
    ) -> None:
        self._timeout_s = timeout_s
        self._hash = hash_id
        self._pci = pci
        self._start = start
        self._child: Optional[Answering] = None
        self._deltas = Deltas()
        self._seen: dict[str, str] = {}  # bus id -> uuid, of GPUs that NVML once listed
        self._released_until = 0.0
        self._slices: dict[tuple[str, int], int] = {}

    def slices(self, bus_id: str, instance: int) -> Optional[int]:
        """Compute slices (of 7) of a MIG instance that was listed since this process began."""
        return self._slices.get((bus_id, instance))

    def restore(self, memory: Memory) -> None:
        """The GPUs that NVML listed before this process started."""
        self._seen.update({str(k): str(v) for k, v in memory.get("seen", {}).items()})

    def collect(self, at: Instant) -> Reading:
        """All GPUs that answer, and what NVML said if some or all do not."""
        if time.monotonic() < self._released_until:
            return self._reading(BLIND, {"gpus": []})
        raw = self._ask()
        if raw is None:
            return self._reading(TIMEOUT, {"gpus": []})
        gpus, first_error = parse_gpus(raw, self._deltas, self._hash)
        self._slices.update(mig_slices(raw))
        facts: dict[str, Any] = {"gpus": gpus}
        code = raw["init"] or (first_error if not gpus else None)
        if code:
            facts["nvml_error"] = code
        for gpu in gpus:
            if "pci_bus_id" in gpu and (gpu["pci_bus_id"] in self._seen or len(self._seen) < SEEN_MOST):
                self._seen[gpu["pci_bus_id"]] = gpu["uuid"]
        reading = self._reading(judge(raw["init"], len(gpus), self._seen, self._pci()), facts)
        if raw.get("driver"):
            reading.batch["driver_version"] = str(raw["driver"])[:64]
        return reading

    def _reading(self, status: str, facts: dict[str, Any]) -> Reading:
        return Reading(self.source, status, facts, {"seen": dict(sorted(self._seen.items()))} if self._seen else {})

    def _ask(self) -> Optional[dict[str, Any]]:
        if self._child is not None and self._child.stuck_s > KILL_AFTER_S:
            if not self._child.end():
                return None  # never a second child while the kernel holds the first
            self._child = None
        for _attempt in range(2):
            try:
                if self._child is None:
                    self._child = self._start()
                return self._child.ask(self._timeout_s)
            except (OSError, ValueError) as error:
                log.warning("the NVML child ended (%s); starting another", type(error).__name__)
                if self._child is not None and not self._child.end():
                    return None
                self._child = None
        return {"init": UNKNOWN}

    def release(self, until: float) -> None:
        """Lets go of the driver until `time.monotonic()` reaches the instant, so that a GPU can be reset."""
        self._released_until = until
        self.close()

    def close(self) -> None:
        """Ends the child."""
        if self._child is not None and self._child.end():
            self._child = None


def judge(init: int, answering: int, seen: Mapping[str, str], pci: Mapping[str, str]) -> str:
    """The status of the source. All known GPUs gone at once while PCI answers: blind; dead or absent there: lost."""
    if answering:
        return OK
    if not seen:
        if init in (0, DRIVER_NOT_LOADED, LIBRARY_NOT_FOUND):
            return OK if init == 0 and not pci else ABSENT
        return ERROR
    states = [pci.get(bus) for bus in seen]
    if states and all(state in ("dead", "absent") for state in states):
        return LOST
    if init in (0, UNKNOWN):
        return BLIND
    return ERROR
