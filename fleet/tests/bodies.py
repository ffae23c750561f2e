"""Batches for tests, in the words of the wire."""

from __future__ import annotations

import time
from typing import Any

from agent import wire

SLOT_MS = 15_000
HOUR_SLOTS = 240


def interval(ts: int, gpus: int = 2, **more: Any) -> dict[str, Any]:
    """One healthy sample at `ts` (ms)."""
    return {
        "ts": ts,
        "sources": {"nvml": "ok", "ib": "absent", "kmsg": "ok", "pci": "ok"},
        "gpus": [gpu(index) for index in range(gpus)],
        "ib_ports": [],
        "xids": [],
        **more,
    }


def gpu(index: int, **more: Any) -> dict[str, Any]:
    """One healthy GPU."""
    return {
        "uuid": f"GPU-{index}",
        "name": "NVIDIA H100 80GB HBM3",
        "pci_bus_id": f"0000:{16 + index:02x}:00.0",
        "sm_clock": 1980,
        "sm_clock_max": 1980,
        "throttle_reasons": 0,
        "throttle_supported": True,
        "gpu_utilization": 97,
        **more,
    }


def batch(first_ts: int | None = None, **more: Any) -> dict[str, Any]:
    """A batch of four healthy samples at slot centres of one hour, all in the past unless `first_ts` says else."""
    if first_ts is None:
        first = int(time.time() * 1000) // SLOT_MS - 5
        first -= max(0, first % HOUR_SLOTS - (HOUR_SLOTS - 4))  # not over the hour: it would be two rows
        first_ts = first * SLOT_MS + SLOT_MS // 2
    return {
        "schema_version": 1,
        "cluster_id": "c1",
        "node_id": "n1",
        "agent_version": "0.1.0",
        "intervals": [interval(first_ts + k * SLOT_MS) for k in range(4)],
        **more,
    }


def packed(**more: Any) -> tuple[bytes, str]:
    """(body, sha256) of a batch."""
    return wire.pack(batch(**more))
