"""What exporters' metrics mean on the wire: those of dcgm-exporter for GPUs, those of node_exporter for ports.

A metric that is not served is left out, never zero. DCGM's own "blank" values (from 0x7ffffff0 on) are no values
either. Sources: dcgm-exporter's lists of counters, dcgm_fields.h; node_exporter's infiniband_linux.go.
"""

from __future__ import annotations

from typing import Any, Iterable, Mapping, Optional

from agent.collect.nvml_parse import Deltas
from agent.collect.prom_text import Sample
from agent.wire import canonical_bus_id

PREFIXES = ("DCGM_", "node_infiniband_", "node_boot_time_seconds")
MIB = 1 << 20
_BLANK = 0x7FFFFFF0  # DCGM_INT32_BLANK; the 64-bit and floating ones are far beyond any real reading
_MOST = {
    "sm_clock": 100_000,
    "sm_clock_max": 100_000,
    "temperature": 1000,
    **dict.fromkeys(("gpu_utilization", "memory_utilization"), 100),
    **dict.fromkeys(("pcie_gen", "pcie_gen_max", "pcie_width", "pcie_width_max"), 32),
}
_WHOLE = {
    "DCGM_FI_DEV_SM_CLOCK": "sm_clock",
    "DCGM_FI_DEV_MAX_SM_CLOCK": "sm_clock_max",
    "DCGM_FI_DEV_GPU_TEMP": "temperature",
    "DCGM_FI_DEV_GPU_UTIL": "gpu_utilization",
    "DCGM_FI_DEV_MEM_COPY_UTIL": "memory_utilization",
    "DCGM_FI_DEV_ECC_SBE_VOL_TOTAL": "ecc_corrected",
    "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL": "ecc_uncorrected",
    "DCGM_FI_DEV_PCIE_LINK_GEN": "pcie_gen",
    "DCGM_FI_DEV_PCIE_MAX_LINK_GEN": "pcie_gen_max",
    "DCGM_FI_DEV_PCIE_LINK_WIDTH": "pcie_width",
    "DCGM_FI_DEV_PCIE_MAX_LINK_WIDTH": "pcie_width_max",
}
_WATTS = {"DCGM_FI_DEV_POWER_USAGE": "power", "DCGM_FI_DEV_POWER_MGMT_LIMIT": "power_limit"}
_THROTTLE = ("DCGM_FI_DEV_CLOCKS_EVENT_REASONS", "DCGM_FI_DEV_CLOCK_THROTTLE_REASONS")
_REMAP = {
    "DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS": ("correctable", int),
    "DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS": ("uncorrectable", int),
    "DCGM_FI_DEV_ROW_REMAP_PENDING": ("pending", bool),
    "DCGM_FI_DEV_ROW_REMAP_FAILURE": ("failed", bool),
}
_IB_STATES = {1: "DOWN", 2: "INIT", 3: "ARMED", 4: "ACTIVE"}
_IB_PHYS = {
    1: "Sleep",
    2: "Polling",
    3: "Disabled",
    4: "PortConfigurationTraining",
    5: "LinkUp",
    6: "LinkErrorRecovery",
}
_IB_COUNTERS = {  # metric -> (counter of sysfs, what one unit of the metric is of it)
    "link_downed_total": ("link_downed", 1),
    "link_error_recovery_total": ("link_error_recovery", 1),
    "symbol_error_total": ("symbol_error", 1),
    "port_errors_received_total": ("port_rcv_errors", 1),
    "port_discards_transmitted_total": ("port_xmit_discards", 1),
    "port_transmit_wait_total": ("port_xmit_wait", 1),
    "port_data_received_bytes_total": ("port_rcv_data", 4),
    "port_data_transmitted_bytes_total": ("port_xmit_data", 4),
}


def gpus_of(samples: Iterable[Sample], deltas: Deltas) -> list[dict[str, Any]]:
    """The GPUs that an exporter tells of, by its index. Lines of MIG instances tell only that the GPU is there."""
    found: dict[str, dict[str, Any]] = {}
    raw: dict[str, dict[str, float]] = {}
    places: dict[str, tuple[int, str]] = {}
    for sample in samples:
        uuid = sample.labels.get("UUID", "")
        if not sample.name.startswith("DCGM_") or not uuid.startswith("GPU-"):
            continue
        gpu = found.setdefault(uuid, {"uuid": uuid})
        index = sample.labels.get("gpu", "")
        places[uuid] = (int(index) if index.isdecimal() and len(index) < 4 else 1000, uuid)
        bus_id = canonical_bus_id(sample.labels.get("pci_bus_id", ""))
        if bus_id is not None:
            gpu["pci_bus_id"] = bus_id
        if sample.labels.get("modelName"):
            gpu["name"] = sample.labels["modelName"]
        if (not sample.labels.get("GPU_I_ID") and 0 <= sample.value < _BLANK) or sample.name in _THROTTLE:
            raw.setdefault(uuid, {})[sample.name] = sample.value
    for uuid, gpu in found.items():
        gpu.update(_facts(uuid, raw.get(uuid, {}), deltas))
    return [found[uuid] for uuid in sorted(found, key=places.__getitem__)]


def _facts(uuid: str, raw: Mapping[str, float], deltas: Deltas) -> dict[str, Any]:
    facts: dict[str, Any] = {}
    for metric, key in _WHOLE.items():
        if metric in raw and raw[metric] <= _MOST.get(key, _BLANK):
            facts[key] = int(raw[metric])
    for metric, key in _WATTS.items():
        if metric in raw:
            facts[key] = round(raw[metric] * 1000)
    used, free = raw.get("DCGM_FI_DEV_FB_USED"), raw.get("DCGM_FI_DEV_FB_FREE")
    if used is not None:
        facts["memory_used"] = int(used) * MIB
    total = raw.get("DCGM_FI_DEV_FB_TOTAL")
    if total is None and used is not None and free is not None:
        total = used + free + raw.get("DCGM_FI_DEV_FB_RESERVED", 0.0)
    if total:
        facts["memory_total"] = int(total) * MIB
    for metric in _THROTTLE:
        if 0 <= raw.get(metric, -1.0) < 2**47:
            facts.update(throttle_reasons=int(raw[metric]), throttle_supported=True)
    remap = {key: kind(raw[metric]) for metric, (key, kind) in _REMAP.items() if metric in raw}
    if remap:
        facts["row_remap"] = remap
    if "DCGM_FI_DEV_PCIE_REPLAY_COUNTER" in raw:
        grown = deltas.since(uuid, "pcie_replays", int(raw["DCGM_FI_DEV_PCIE_REPLAY_COUNTER"]))
        if grown is not None:
            facts["pcie_replays"] = grown
    return facts


class XidMemory:
    """What an exporter said of Xids before: it serves the last code for ever, or counts of a sliding window."""

    def __init__(self) -> None:
        self._last: dict[str, int] = {}
        self._counts: dict[tuple[str, int], int] = {}
        self._begun = False

    def events(self, samples: Iterable[Sample], at_ms: int) -> list[dict[str, Any]]:
        """Xids that are new since the sample before. What stood there at the first look may be of any time."""
        found: list[dict[str, Any]] = []
        counted: set[str] = set()
        last: dict[str, tuple[int, Optional[str]]] = {}
        counts: dict[tuple[str, int], int] = {}
        for sample in samples:
            uuid = sample.labels.get("UUID", "")
            bus_id = canonical_bus_id(sample.labels.get("pci_bus_id", ""))
            if sample.name == "DCGM_FI_DEV_XID_ERRORS" and 0 <= sample.value < 100_000:
                last[uuid] = (int(sample.value), bus_id)
            if sample.name == "DCGM_EXP_XID_ERRORS_COUNT" and sample.labels.get("xid", "").isdigit():
                code = int(sample.labels["xid"][:6])
                counts[(uuid, code)] = int(sample.value)
                grown = int(sample.value) - self._counts.get((uuid, code), 0)
                if code and grown > 0 and self._begun:
                    counted.add(uuid)
                    found.append(_event(code, bus_id, at_ms, grown))
        for uuid, (code, bus_id) in last.items():
            if code and self._begun and code != self._last.get(uuid, 0) and uuid not in counted:
                found.append(_event(code, bus_id, at_ms, 1))
        self._begun = self._begun or bool(last or counts)
        self._counts = counts
        self._last.update({uuid: code for uuid, (code, _) in last.items()})
        return found


def _event(code: int, bus_id: Optional[str], at_ms: int, count: int) -> dict[str, Any]:
    event: dict[str, Any] = {"kind": "xid", "code": code, "at": at_ms}
    if bus_id is not None:
        event["pci_bus_id"] = bus_id
    return {**event, "count": count} if count > 1 else event


def driver_of(samples: Iterable[Sample]) -> Optional[str]:
    """The driver's version, which dcgm-exporter serves as a label."""
    for sample in samples:
        version = sample.labels.get("DCGM_FI_DRIVER_VERSION")
        if version:
            return version[:64]
    return None


def ports_of(samples: Iterable[Sample]) -> list[tuple[dict[str, Any], dict[str, int]]]:
    """(facts, counters as they stand) of each InfiniBand port that node_exporter tells of."""
    found: dict[tuple[str, int], tuple[dict[str, Any], dict[str, int]]] = {}
    for sample in samples:
        device, port = sample.labels.get("device", ""), sample.labels.get("port", "")
        if not sample.name.startswith("node_infiniband_") or not device or not port.isdigit() or len(port) > 3:
            continue
        facts, counters = found.setdefault((device, int(port)), ({"device": device, "port": int(port)}, {}))
        name = sample.name[len("node_infiniband_") :]
        if name == "state_id" and int(sample.value) in _IB_STATES:
            facts["state"] = _IB_STATES[int(sample.value)]
        elif name == "physical_state_id" and int(sample.value) in _IB_PHYS:
            facts["phys_state"] = _IB_PHYS[int(sample.value)]
        elif name == "rate_bytes_per_second" and 0 < sample.value < 1e13:
            rate = sample.value * 8 / 1e9
            facts["link_rate"] = int(rate) if rate.is_integer() else round(rate, 3)
        elif name in _IB_COUNTERS and 0 <= sample.value < 2**64:
            counter, unit = _IB_COUNTERS[name]
            counters[counter] = int(sample.value) // unit
    return [found[key] for key in sorted(found)]


def boot_of(samples: Iterable[Sample]) -> Optional[int]:
    """Seconds since 1970 at which the node began, by node_exporter."""
    for sample in samples:
        if sample.name == "node_boot_time_seconds" and 0 < sample.value < 2**40:
            return int(sample.value)
    return None
