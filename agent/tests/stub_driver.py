"""Drives the NVML stand-in: answers are written to its state file, the real collector reads them through a child."""

from __future__ import annotations

import itertools

from agent.clock import Instant
from agent.collect.nvml import NvmlCollector

INSTANT = Instant(1_796_000_407_500, 1_000_000, 1_000_000, "b" * 32, 1_795_999_407_500)


class StubDriver:
    def __init__(self, libraries, tmp_path, monkeypatch):
        self._libraries = libraries
        self._monkeypatch = monkeypatch
        self._state = tmp_path / "nvml-state"
        self._log = tmp_path / "nvml-calls"
        self._collectors = []
        self.pci = {}
        monkeypatch.setenv("GOODPUT_STUB_STATE", str(self._state))
        monkeypatch.setenv("GOODPUT_STUB_LOG", str(self._log))
        self.use("today")
        self._tick = itertools.count(1)
        self.answers()

    def use(self, which):
        self._monkeypatch.setenv("LD_LIBRARY_PATH", str(self._libraries[which]))

    def answers(self, **values):
        """Replaces the driver's answers; `gpu_0_uuid` stands for the key `gpu.0.uuid`."""
        lines = {}
        for key, value in values.items():
            parts = key.split("__")
            lines[".".join(parts)] = value
        self._state.write_text("".join(f"{key}={value}\n" for key, value in lines.items()))
        import os

        stamp = next(self._tick)
        os.utime(self._state, (stamp, stamp))  # each version has a time of its own, however quick the test

    def calls(self):
        """Names of all calls that the driver got."""
        return self._log.read_text().split() if self._log.exists() else []

    def collector(self, timeout_s=5.0, memory=None):
        collector = NvmlCollector(timeout_s, lambda kind, text: f"hash-{kind}", lambda: self.pci)
        collector.restore(memory or {})
        self._collectors.append(collector)
        return collector

    def read(self, **values):
        """One reading of a fresh collector with these answers."""
        self.answers(**values)
        return self.collector().collect(INSTANT)

    def close(self):
        for collector in self._collectors:
            collector.close()
