"""Facts made by hand: the attributes of a decoded batch, absent ones None or (), with a healthy GPU as the default."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field, replace
from typing import Any

from fleet.domain.receipts import ReceivedBatch


@dataclass
class Gpu:
    """One map of `gpus`."""

    uuid: str
    pci_bus_id: str
    name: str = "H100"
    sm_clock: int | None = 1980
    sm_clock_max: int | None = 1980
    throttle_reasons: int | None = 0
    throttle_time: dict[str, int] | None = None
    gpu_utilization: int | None = 0
    power: int | None = 100_000
    power_limit: int | None = 700_000
    recovery_action: int | None = None
    row_remap: Any = None
    nvlink_inactive: int | None = None
    ecc_uncorrected: int | None = 0
    pcie_width: int | None = 16
    pcie_width_max: int | None = None
    pcie_gen: int | None = None
    pcie_gen_max: int | None = None
    pcie_replays: int | None = None
    mig_mode: bool | None = None
    ecc_mode: bool | None = None
    ecc_corrected: int | None = None
    fabric: Any = None
    memory_used: int | None = None
    memory_total: int | None = None
    memory_utilization: int | None = None
    throttle_supported: bool | None = None
    temperature: int | None = None
    serial_hash: str | None = None


@dataclass
class Port:
    """One map of `ib_ports`."""

    device: str
    port: int = 1
    state: str = "ACTIVE"
    counters: dict[str, int] | None = None
    guid_hash: str | None = None
    phys_state: str | None = None
    near: tuple[str, ...] = ()
    is_vf: bool | None = None
    link_rate: float | None = None
    link_layer: str | None = None
    pci_bus_id: str | None = None
    pegged: tuple[str, ...] = ()
    reasons: tuple[str, ...] = ()


@dataclass
class Event:
    """One map of `events`."""

    kind: str = "xid"
    code: int | None = None
    pci_bus_id: str | None = None
    at: int | None = None
    mono: int | None = None
    boot_id: str | None = None
    backlog: bool | None = None
    severity: str | None = None
    action: int | None = None
    instance: Any = None
    slices: int | None = None
    count: int | None = None
    unit: str | None = None
    link: int | None = None


@dataclass
class Xid:
    """One map of `xids`."""

    code: int
    pci_bus_id: str | None = None
    reason: str | None = None


@dataclass
class Clock:
    """What the kernel says of its clock."""

    status: str | None = "synchronised"
    error_ms: int | None = 5


@dataclass
class Sync:
    """The newest receipt."""

    received_at: int
    boottime: int


@dataclass
class RowRemap:
    """Row remapping."""

    pending: bool = False
    failed: bool = False
    correctable: int | None = None
    uncorrectable: int | None = None


@dataclass
class Fabric:
    """NVML's fabric information."""

    cluster: str | None = None
    clique: str | None = None
    state: int | None = None


OK = {"nvml": "ok", "ib": "ok", "kmsg": "ok", "pci": "ok"}


@dataclass
class Interval:
    """One sample."""

    ts: int
    gpus: tuple[Gpu, ...] = ()
    ib_ports: tuple[Port, ...] = ()
    xids: tuple[Xid, ...] = ()
    events: tuple[Event, ...] = ()
    mono: int | None = None
    boottime: int | None = None
    clock: Clock | None = field(default_factory=Clock)
    sources: dict[str, str] | None = field(default_factory=lambda: dict(OK))
    pci: dict[str, str] | None = None
    nvml_error: int | None = None
    net: dict[str, str] | None = None


@dataclass
class Batch:
    """One batch."""

    intervals: tuple[Interval, ...]
    agent_id: str | None = "a1"
    seq: int | None = None
    boot_id: str | None = "b1"
    boot_at: int | None = None
    last_shutdown: str | None = None
    last_alive: int | None = None
    sync: Sync | None = None
    hw_id: str | None = None
    driver_version: str | None = None


def received(batch: Batch, at_ms: int | None = None) -> ReceivedBatch:
    """The batch as the inbox holds it, received at `at_ms`; its hash is a function of its content."""
    at = batch.intervals[-1].ts + 5_000 if at_ms is None else at_ms
    return ReceivedBatch(hashlib.sha256(repr(batch).encode()).digest(), at, batch)


def gpu(index: int, **more: Any) -> Gpu:
    """The healthy GPU with this index: UUID `U<index>`, bus id from 0000:10:00.0 on in steps of 0x10."""
    return replace(Gpu(f"U{index}", f"0000:{0x10 * (index + 1):02x}:00.0"), **more)


def port(index: int, **more: Any) -> Port:
    """The ACTIVE port with this index: GUID `G<index>`."""
    return replace(Port(f"mlx5_{index}", guid_hash=f"G{index}"), **more)
