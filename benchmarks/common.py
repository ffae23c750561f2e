"""What the benchmarks share: the workload, the calibrator, CPU accounting of other processes, the table."""

from __future__ import annotations

import os
import random
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import psutil

from agent import wire
from fleet import decode

COUNTERS = tuple(f"port_counter_{index:02d}" for index in range(21))
SLOT_MS = 15_000
GPUS = PORTS = 8
UNTIL = float(os.environ.get("GOODPUT_BENCH_UNTIL", "inf"))  # Unix time; set by `bench --minutes`
NOISE = 0.30  # a round whose calibrator is further off the median is dropped


def batch(node: str, minute: int, rng: random.Random, first_ms: int) -> dict[str, Any]:
    """One minute of a node of 8 GPUs and 8 ports with 21 counters: four samples at slot centres."""
    intervals = []
    for position in range(4):
        ts = first_ms + (minute * 4 + position) * SLOT_MS + SLOT_MS // 2
        intervals.append(
            {
                "ts": ts,
                "mono": ts - first_ms + 10**8,
                "boottime": ts - first_ms + 10**8,
                "clock": {"status": "synchronised", "error_ms": 2},
                "sources": {"nvml": "ok", "ib": "ok", "kmsg": "ok", "pci": "ok"},
                "gpus": [_gpu(node, index, rng) for index in range(GPUS)],
                "ib_ports": [_port(node, index, rng) for index in range(PORTS)],
                "xids": [],
            }
        )
    return {
        "schema_version": 1,
        "cluster_id": "bench",
        "node_id": node,
        "agent_version": "0.1.0",
        "agent_id": f"agent-{node}",
        "seq": minute + 1,
        "boot_id": f"boot-{node}",
        "boot_at": first_ms - 10**8,
        "sync": {"received_at": first_ms + minute * 60_000, "boottime": 10**8 + minute * 60_000},
        "intervals": intervals,
    }


def _gpu(node: str, index: int, rng: random.Random) -> dict[str, Any]:
    return {
        "uuid": f"GPU-{node}-{index}",
        "name": "NVIDIA H100 80GB HBM3",
        "pci_bus_id": f"0000:{16 + index:02x}:00.0",
        "memory_used": rng.randrange(80 * 10**9),
        "memory_total": 80 * 10**9,
        "sm_clock": rng.randrange(1755, 1965, 15),
        "sm_clock_max": 1980,
        "throttle_reasons": 4 if rng.random() < 0.3 else 0,
        "throttle_supported": True,
        "temperature": rng.randrange(55, 70),
        "ecc_corrected": 0,
        "ecc_uncorrected": 0,
        "pcie_gen": 5,
        "pcie_gen_max": 5,
        "pcie_width": 16,
        "pcie_width_max": 16,
        "gpu_utilization": rng.randrange(90, 101),
        "memory_utilization": rng.randrange(30, 60),
        "recovery_action": 0,
    }


def _port(node: str, index: int, rng: random.Random) -> dict[str, Any]:
    counters = {name: rng.randrange(1 << 30) if at < 4 else 0 for at, name in enumerate(COUNTERS)}
    return {
        "device": f"mlx5_{index}",
        "port": 1,
        "state": "ACTIVE",
        "link_rate": 400,
        "counters": counters,
        "guid_hash": f"guid-{node}-{index}",
        "phys_state": "LinkUp",
        "link_layer": "InfiniBand",
        "near": [f"0000:{16 + index:02x}:00.0"],
    }


def bodies(nodes: int, minutes: int, seed: int = 0, first_ms: int | None = None) -> list[tuple[bytes, str]]:
    """(body, sha256) in minute-major order, as they reach a server."""
    if first_ms is None:
        first_ms = (int(time.time()) // 3600 - 2) * 3_600_000
    rng = random.Random(seed)
    return [
        wire.pack(batch(f"node-{seed}-{node:04d}", minute, rng, first_ms))
        for minute in range(minutes)
        for node in range(nodes)
    ]


def decode_us(sample: Sequence[bytes]) -> float:
    """Calibrator c1: CPU µs of a typed decode of one batch with the contract's limits, over `sample` (unzipped)."""
    decoder = msgspec.msgpack.Decoder(decode.Batch)
    begin = time.process_time()
    for raw in sample:
        decoder.decode(raw)
    return (time.process_time() - begin) / len(sample) * 1e6


def cpu_of(pid: int) -> float:
    """CPU seconds of a process and of all its children, those that ended included."""
    total = 0.0
    for process in [psutil.Process(pid), *psutil.Process(pid).children(recursive=True)]:
        try:
            times = process.cpu_times()
        except psutil.NoSuchProcess:
            continue
        total += times.user + times.system
        if process.pid == pid:
            total += times.children_user + times.children_system
    return total


def repeat(rounds: int, one: Callable[[int], dict[str, float]], calibrator: str) -> dict[str, Any]:
    """Medians and quartiles of `one(round)` over the kept rounds: the first and the noisy ones are dropped.

    No round is begun once the time that this benchmark was given is over, but for the second, without which there is
    nothing to tell.
    """
    results = []
    for number in range(rounds):
        if number < 2 or time.time() < UNTIL:
            results.append(one(number))
    results = results[1:]
    middle = statistics.median(result[calibrator] for result in results)
    kept = [result for result in results if abs(result[calibrator] - middle) <= NOISE * middle]
    figures: dict[str, Any] = {"rounds": len(results), "kept": len(kept)}
    for name in kept[0]:
        values = sorted(result[name] for result in kept)
        figures[name] = statistics.median(values)
        figures[f"{name}_range"] = [values[0], values[-1]]
    return figures


@dataclass(frozen=True)
class Table:
    """What `show` printed: a title with the rounds kept, and (label, median, lowest, highest) per row."""

    title: str
    rows: list[tuple[str, float, float, float]]

    def markdown(self) -> str:
        """The same for a document."""
        lines = [f"### {self.title}", "", "| figure | median | range |", "|---|---:|---|"]
        lines += [
            f"| {label.strip().replace('|', '/')} | {middle:,.2f} | {low:,.2f} … {high:,.2f} |"
            for label, middle, low, high in self.rows
        ]
        return "\n".join(lines) + "\n"


shown: list[Table] = []


def show(title: str, figures: dict[str, Any], rows: Sequence[tuple[str, str]]) -> None:
    """Print the chosen figures as a table: median and range of the kept rounds. It is kept in `shown`."""
    quiet = "" if figures["kept"] >= 5 else "; inconclusive, fewer than five quiet rounds"
    numbers = [(label, figures[name], *figures[f"{name}_range"]) for name, label in rows]
    shown.append(Table(f"{title} ({figures['kept']} of {figures['rounds']} rounds kept{quiet})", numbers))
    print(f"{title} ({figures['kept']} of {figures['rounds']} rounds kept)")
    if figures["kept"] < 5:
        print("  inconclusive: fewer than five quiet rounds")
    for name, label in rows:
        low, high = figures[f"{name}_range"]
        print(f"  {label:58} {figures[name]:10.2f}   {low:.2f} … {high:.2f}")
