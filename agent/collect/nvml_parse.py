"""From NVML's raw answers to the wire: unsupported is left out, never zero; a lost GPU is left out of the list."""

from __future__ import annotations

import hashlib
from typing import Any, Callable, Mapping, Optional

from agent import wire

GPU_IS_LOST, RESET_REQUIRED = 15, 16
RECOVERY_RESET = 1
FIELD_RECOVERY = 230
THROTTLE_FIELDS = {74: "sw_power_cap", 76: "sync_boost", 269: "sw_thermal", 270: "hw_thermal", 271: "hw_power_brake"}
_PLAIN = (
    "name",
    "sm_clock",
    "sm_clock_max",
    "temperature",
    "ecc_corrected",
    "ecc_uncorrected",
    "pcie_gen",
    "pcie_gen_max",
    "pcie_width",
    "pcie_width_max",
    "power",
    "power_limit",
)
_NO_SERIAL = {"", "0", "n/a", "[n/a]"}

Hash = Callable[[str, str], str]


class Deltas:
    """Running counters of each GPU, kept between samples; a counter that fell was reset and counts from zero."""

    def __init__(self) -> None:
        self._last: dict[tuple[str, str], int] = {}

    def since(self, uuid: str, counter: str, value: int) -> Optional[int]:
        """How much a counter grew since the previous sample; None at the first."""
        last = self._last.get((uuid, counter))
        self._last[(uuid, counter)] = value
        if last is None:
            return None
        return value - last if value >= last else value


def parse_gpus(raw: Mapping[str, Any], deltas: Deltas, hash_id: Hash) -> tuple[list[dict[str, Any]], Optional[int]]:
    """(GPUs that answer, the return code of the first that does not)."""
    gpus = []
    first_error: Optional[int] = None
    for answer in raw.get("gpus", ()):
        error = answer["handle"] or _loss(answer["calls"])
        if error:
            first_error = first_error or error
            continue
        gpus.append(parse_gpu(answer["calls"], deltas, hash_id))
    return gpus, first_error


def mig_slices(raw: Mapping[str, Any]) -> dict[tuple[str, int], int]:
    """(bus id, GPU instance) -> compute slices of 7, of every MIG instance that NVML lists."""
    found: dict[tuple[str, int], int] = {}
    for answer in raw.get("gpus", ()):
        code, bus = answer["calls"].get("pci", (3, None))
        mig_code, instances = answer["calls"].get("mig", (3, None))
        bus_id = wire.canonical_bus_id(str(bus)) if not code else None
        if bus_id and not mig_code:
            found.update({(bus_id, instance): slices for instance, slices in instances or () if 0 < slices <= 7})
    return found


def _loss(calls: Mapping[str, Any]) -> int:
    """NVML's code if any call says that the GPU is lost, or its UUID cannot be read."""
    for code, _value in calls.values():
        if code == GPU_IS_LOST:
            return GPU_IS_LOST
    code, value = calls.get("uuid", (999, None))
    return int(code) if code else (0 if value else 999)


def parse_gpu(calls: Mapping[str, Any], deltas: Deltas, hash_id: Hash) -> dict[str, Any]:
    """One GPU as the wire's map."""

    def value(name: str) -> Any:
        code, found = calls.get(name, (3, None))
        return None if code else found

    uuid = str(value("uuid"))
    gpu: dict[str, Any] = {"uuid": uuid}
    bus_id = value("pci")
    if bus_id and wire.canonical_bus_id(str(bus_id)):
        gpu["pci_bus_id"] = wire.canonical_bus_id(str(bus_id))
    for name in _PLAIN:
        if value(name) is not None:
            gpu[name] = value(name)
    memory = value("memory")
    if memory and memory[0] > 0:
        gpu["memory_total"], gpu["memory_used"] = memory
    rates = value("utilization")
    if rates:
        gpu["gpu_utilization"], gpu["memory_utilization"] = rates
    reasons = value("reasons")
    gpu["throttle_supported"] = reasons is not None
    if reasons is not None:
        gpu["throttle_reasons"] = reasons
    for name in ("ecc_mode", "mig_mode"):
        if value(name) is not None:
            gpu[name] = bool(value(name))
    rows = value("remapped_rows")
    if rows:
        gpu["row_remap"] = {
            "correctable": rows[0],
            "uncorrectable": rows[1],
            "pending": bool(rows[2]),
            "failed": bool(rows[3]),
        }
    links = value("links")
    if links is not None:
        gpu["nvlink_inactive"] = sum(1 for state in links if not state)
    _parse_fields(gpu, value("fields") or [], deltas)
    if any(code == RESET_REQUIRED for code, _ in calls.values()):
        gpu["recovery_action"] = gpu.get("recovery_action") or RECOVERY_RESET
    replays = value("pcie_replays")
    if replays is not None:
        grown = deltas.since(uuid, "pcie_replays", replays)
        if grown is not None:
            gpu["pcie_replays"] = grown
    serial = value("serial")
    if serial is not None and str(serial).strip().lower() not in _NO_SERIAL:
        gpu["serial_hash"] = hash_id("gpu-serial", str(serial).strip())
    fabric = value("fabric")
    if fabric and fabric[2]:
        gpu["fabric"] = _fabric(fabric)
    return {key: _bounded(item) for key, item in gpu.items()}


def _parse_fields(gpu: dict[str, Any], fields: list[list[int]], deltas: Deltas) -> None:
    """Recovery action and throttle times; every field has a return code of its own, a failed one's value is 0."""
    times = {}
    for field, code, value in fields:
        if code or value < 0:
            continue
        if field == FIELD_RECOVERY:
            gpu["recovery_action"] = value
        elif field in THROTTLE_FIELDS:
            grown = deltas.since(gpu["uuid"], f"throttle.{field}", value // 1_000_000)  # ns to ms
            if grown is not None:
                times[THROTTLE_FIELDS[field]] = grown
    if times:
        gpu["throttle_time"] = times


def _fabric(raw: list[Any]) -> dict[str, Any]:
    """The NVLink domain: hashed without a local salt, so that all nodes of a domain give the same id."""
    cluster, clique, state = raw
    fabric: dict[str, Any] = {"state": state, "clique": str(clique)}
    if cluster.strip("0"):
        fabric["cluster"] = hashlib.sha256(b"goodput fabric v1\n" + cluster.encode()).hexdigest()[:32]
    return fabric


def _bounded(value: Any) -> Any:
    """Strings as the wire allows them: no control characters, at most 128 characters."""
    if isinstance(value, str):
        return "".join(c for c in value if c.isprintable())[:128]
    return value
