"""The grammar of the kernel log lines that are evidence. Strict: anchored, kernel facility only, nothing unescaped.

A process name is printed by the driver as it is, so every pattern is tied to the start of the line or to its end,
and no part of a line is kept but numbers, enumerated words and bus ids.
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple, Optional

from agent.wire import canonical_bus_id

_HEADER = re.compile(r"(\d{1,10}),(\d{1,20}),(\d{1,20}),[-c+](?:,[^;\n]*)?;")
_BUS = r"(?:([0-9A-Fa-f]{4,8}):)?([0-9A-Fa-f]{2,4}):([01][0-9A-Fa-f])(?:\.([0-7]))?"
_FULL_BUS = r"([0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[01][0-9A-Fa-f](?:\.[0-7])?)"
_XID = re.compile(
    rf"NVRM: Xid \((?:PCI:)?{_BUS}(?: GPU-I:(\d{{1,2}})(?: GPU-CI:(\d{{1,2}}))?)?\): (\d{{1,5}})(?=,|$)(?:, ?)?(.*)",
    re.ASCII,
)
_SXID = re.compile(
    r"nvidia-nvswitch\d{1,3}: SXid \(PCI:([0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[01][0-9A-Fa-f]\.[0-7])\): (\d{5,6}), (.*)",
    re.ASCII,
)
_OFF_BUS = re.compile(rf"NVRM: GPU {_FULL_BUS}: GPU has fallen off the bus\.?")
_OFF_AT_PROBE = re.compile(
    rf"NVRM: The NVIDIA GPU {_FULL_BUS}\\x0aNVRM: \(PCI ID: [0-9a-f]{{4}}:[0-9a-f]{{4}}\) installed in this system has"
    r"\\x0aNVRM: fallen off the bus and is not responding to commands\."
)
# The PCI core's word behind a function reset (kernel 6.9 and newer). It names the driver that holds the device: the
# GPU's own, a pass-through driver, or `pci` where none does. What scripts write with `logger` is not the kernel's.
_RESET = re.compile(rf"(?:nvidia|vfio-pci|nvgrace-gpu-vfio-pci|pci) {_FULL_BUS}: (?:GPU )?reset done\.?")
_LOAD = re.compile(r"NVRM: loading NVIDIA UNIX [A-Za-z0-9_ ]*Kernel Module\b.*")
_UNLOAD = re.compile(r"nvidia-nvlink: Unregistered (?:the )?Nvlink Core.*")
_ACTION = re.compile(
    r"GPU recovery action changed from 0x[0-9a-f]{1,2} \([A-Za-z0-9 ]*\) to 0x([0-9a-f]{1,2}) \([A-Za-z0-9 ]*\)\.?"
)
_NVLINK = re.compile(r"NVLink: (fatal|non-fatal|nonfatal)?\s*error detected on link (\d{1,3})\b.*", re.IGNORECASE)
_NETIR = re.compile(
    r"(?:.*, )?([A-Z][A-Z0-9_]{1,30}) +(Nonfatal|Fatal) +XC\d+ i\d+ Link (\d{1,3})"
    r"(?: \((?:0x[0-9a-f]+ ?)+\))?\.?"
)
_SXID_WORD = re.compile(r"(Non-fatal|Nonfatal|Fatal)\b", re.IGNORECASE)
_SXID_LINK = re.compile(r"(?:[^,]*, )?Link (\d{1,3})\b")
_PROCESS = re.compile(r"pid=(?:'[^']*'|\d+),? ?(?:name=)?")
_NVLINK_CODES = frozenset(range(144, 151))
_HIGHEST_CODE = 99_999


class Record(NamedTuple):
    """One kernel log record: its sequence number, its time in microseconds since boot, its text."""

    facility: int
    seq: int
    usec: int
    text: str


def parse_record(data: str) -> Optional[Record]:
    """The record in what one read of /dev/kmsg gave, split at the first `;`; None if it is no record.

    Dictionary lines (those that begin with a blank) belong to the record and are dropped.
    """
    match = _HEADER.match(data)
    if match is None:
        return None
    prefix, seq, usec = (int(part) for part in match.groups())
    return Record(prefix >> 3, seq, usec, data[match.end() :].split("\n", 1)[0])


def parse_event(text: str) -> Optional[dict[str, Any]]:
    """The wire's event (without its time) that a kernel line stands for; None for every other line."""
    if text.startswith("NVRM: Xid"):
        return _xid(text)
    if text.startswith("nvidia-nvswitch"):
        return _sxid(text)
    for pattern, kind in ((_OFF_BUS, "bus_lost"), (_OFF_AT_PROBE, "bus_lost"), (_RESET, "gpu_reset")):
        match = pattern.fullmatch(text)
        if match is not None:
            return {"kind": kind, "pci_bus_id": canonical_bus_id(match.group(1))}
    if _LOAD.fullmatch(text):
        return {"kind": "driver_load"}
    if _UNLOAD.fullmatch(text):
        return {"kind": "driver_unload"}
    return None


def _xid(text: str) -> Optional[dict[str, Any]]:
    match = _XID.fullmatch(text)
    if match is None:
        return None
    domain, bus, device, function, instance, compute, code_text, rest = match.groups()
    code = int(code_text)
    if not 0 < code <= _HIGHEST_CODE:
        return None
    event: dict[str, Any] = {"kind": "xid", "code": code}
    if domain is not None and len(bus) == 2:
        event["pci_bus_id"] = canonical_bus_id(f"{domain}:{bus}:{device}.{function or '0'}")
    # else `(0002:00)` of very old drivers: bus and device without a domain, no identity to build on
    if instance is not None:
        event["instance"] = str(int(instance)) if compute is None else f"{int(instance)}/{int(compute)}"
    event.update(_details(code, rest))
    return event


def _details(code: int, rest: str) -> dict[str, Any]:
    """What the tail of a line says for the codes where it decides; tied to the end, behind any process name."""
    if code == 154:
        action = _last(_ACTION, rest)
        return {} if action is None else {"action": int(action.group(1), 16)}
    if code == 74:
        link = _last(_NVLINK, rest)
        if link is None:
            return {}
        found: dict[str, Any] = {"link": int(link.group(2))}
        if link.group(1):
            found["severity"] = _severity(link.group(1))
        return found
    if code in _NVLINK_CODES:
        match = _NETIR.fullmatch(rest)
        if match is None:
            return {}
        return {"unit": match.group(1), "severity": _severity(match.group(2)), "link": int(match.group(3))}
    return {}


def _last(pattern: re.Pattern[str], rest: str) -> Optional[re.Match[str]]:
    """A match that ends with the line: at its start, or behind `pid=…, name=…, `."""
    match = pattern.fullmatch(rest)
    if match is not None or not _PROCESS.match(rest):
        return match
    start = rest.rfind("GPU recovery action") if pattern is _ACTION else rest.rfind("NVLink: ")
    return pattern.fullmatch(rest, start) if start >= 0 else None


def _severity(word: str) -> str:
    return "nonfatal" if word.lower().startswith("non") else "fatal"


def _sxid(text: str) -> Optional[dict[str, Any]]:
    match = _SXID.fullmatch(text)
    if match is None:
        return None
    event: dict[str, Any] = {
        "kind": "sxid",
        "code": int(match.group(2), 10),
        "pci_bus_id": canonical_bus_id(match.group(1)),
    }
    word = _SXID_WORD.match(match.group(3))
    if word is not None:
        event["severity"] = _severity(word.group(1))
    link = _SXID_LINK.match(match.group(3))
    if link is not None:
        event["link"] = int(link.group(1))
    return event
