"""What the files of /sys/class/infiniband mean: states, rates, counters and their widths.

The counters of the InfiniBand management attributes are narrow and stick at their maximum; data and packet counters
are 64 bits wide and wrap. A counter that fell was reset. Source: drivers/infiniband/core/sysfs.c.
"""

from __future__ import annotations

import re
from typing import Any, Mapping, Optional

_RATE = re.compile(r"(\d{1,5}(?:\.\d{1,3})?) G[bB]/sec(?: \((\d{1,2})X ([A-Z]{3})\))?")
_STATE = re.compile(r"(\d{1,2}): ?([A-Za-z_]{1,20})")
_COUNTER = re.compile(r"\d{1,20}")
_GUID = re.compile(r"[0-9a-f]{4}(?::[0-9a-f]{4}){3}")

STICKS_AT: Mapping[str, int] = {
    "symbol_error": 0xFFFF,
    "link_error_recovery": 0xFF,
    "link_downed": 0xFF,
    "port_rcv_errors": 0xFFFF,
    "port_rcv_remote_physical_errors": 0xFFFF,
    "port_rcv_switch_relay_errors": 0xFFFF,
    "port_xmit_discards": 0xFFFF,
    "port_xmit_constraint_errors": 0xFF,
    "port_rcv_constraint_errors": 0xFF,
    "local_link_integrity_errors": 0xF,
    "excessive_buffer_overrun_errors": 0xF,
    "VL15_dropped": 0xFFFF,
    "port_xmit_wait": 0xFFFF_FFFF,
}
_NARROW_DATA = frozenset({"port_xmit_data", "port_rcv_data", "port_xmit_packets", "port_rcv_packets"})
_32_BITS = 0xFFFF_FFFF
_64_BITS = 1 << 64
_WRAPS_FROM = 1 << 62  # a counter this near its end that became small has wrapped, not been reset

DOWN_STATES = frozenset({"DOWN", "INIT", "ARMED"})


def parse_state(text: str) -> Optional[str]:
    """`ACTIVE` of `4: ACTIVE`; None if the text is no state."""
    match = _STATE.fullmatch(text.strip())
    return match.group(2).upper() if match else None


def parse_phys_state(text: str) -> Optional[str]:
    """`LinkUp` of `5: LinkUp`; None if the text is no state."""
    match = _STATE.fullmatch(text.strip())
    return match.group(2) if match else None


def parse_rate(text: str) -> Optional[float]:
    """Gb/s of `400 Gb/sec (4X NDR)` or `0 GB/sec`: a whole number where it is one; None for anything else."""
    match = _RATE.fullmatch(text.strip())
    if match is None:
        return None
    rate = float(match.group(1))
    return int(rate) if rate.is_integer() else rate


def parse_counter(text: str) -> Optional[int]:
    """The value of a counter file; None for `N/A (no PMA)` and anything else that is no number."""
    text = text.strip()
    if not _COUNTER.fullmatch(text):
        return None
    value = int(text)
    return value if value < _64_BITS else None


def parse_guid(text: str) -> Optional[str]:
    """A GUID in the kernel's form, None for the all-zero one of devices without."""
    text = text.strip().lower()
    return text if _GUID.fullmatch(text) and text.strip("0:") else None


def deltas(now: Mapping[str, int], before: Optional[Mapping[str, int]]) -> tuple[dict[str, int], list[str]]:
    """(counter -> growth since the previous sample, names of counters stuck at their maximum).

    A stuck counter has no growth: it cannot tell. A counter without a value before has none yet.
    """
    grown: dict[str, int] = {}
    pegged: list[str] = []
    for name, value in sorted(now.items()):
        most = STICKS_AT.get(name)
        if most is None and name in _NARROW_DATA and value == _32_BITS:
            most = _32_BITS  # an HCA without extended counters: they stick within seconds
        if most is not None and value >= most:
            pegged.append(name)
            continue
        last = before.get(name) if before else None
        if last is None:
            continue
        if value >= last:
            grown[name] = value - last
        elif most is None and last >= _WRAPS_FROM and value < _WRAPS_FROM:
            grown[name] = min(value - last + _64_BITS, (1 << 63) - 1)
        else:
            grown[name] = value  # reset: it has counted from zero since
    return grown, pegged


def reasons_of(state: Optional[str], ever_active: bool) -> list[str]:
    """Reason codes to show; only of ports that were ever ACTIVE."""
    return ["IB_PORT_DOWN"] if ever_active and state in DOWN_STATES else []


def port_facts(raw: Mapping[str, Any]) -> dict[str, Any]:
    """The wire's keys that follow from one port's files alone."""
    facts: dict[str, Any] = {"device": raw["device"], "port": raw["port"]}
    state = parse_state(raw.get("state", ""))
    if state is not None:
        facts["state"] = state
    phys = parse_phys_state(raw.get("phys_state", ""))
    if phys is not None:
        facts["phys_state"] = phys
    rate = parse_rate(raw.get("rate", ""))
    if rate is not None:
        facts["link_rate"] = rate
    layer = raw.get("link_layer", "").strip()
    if layer:
        facts["link_layer"] = layer[:32]
    facts["is_vf"] = bool(raw.get("is_vf"))
    if raw.get("pci_bus_id"):
        facts["pci_bus_id"] = raw["pci_bus_id"]
    if raw.get("near"):
        facts["near"] = list(raw["near"])
    return facts
