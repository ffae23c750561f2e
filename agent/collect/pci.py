"""NVIDIA functions on the PCI bus, from sysfs and without the driver: the independent witness of a lost GPU.

Their links and PCIe errors (AER) are read beside it. The kernel keeps AER's counts; reading them touches no device.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any, Mapping, Optional

from agent.clock import Instant
from agent.collect.base import ABSENT, ERROR, OK, TIMEOUT, Memory, Reading
from agent.collect.deadline import READ_TIMEOUT_S, DeadlineCall
from agent.wire import MAX_FUNCTIONS, canonical_bus_id

NVIDIA = "0x10de"
_DISPLAY, _BRIDGE_OTHER = "0x03", "0x0680"  # GPUs (VGA and 3D controllers), NVSwitches
_DRIVER = "nvidia"
_LINK_FILES = ("current_link_speed", "current_link_width", "aer_dev_fatal", "aer_dev_nonfatal", "aer_dev_correctable")
_AER = {"aer_fatal": "FATAL", "aer_nonfatal": "NONFATAL", "aer_correctable": "COR"}
_LANES_MOST = 32  # a link that is gone reads as 63


def read_functions(sysfs: Path, known: Optional[dict[str, str]] = None) -> Optional[dict[str, dict[str, Any]]]:
    """Bus id -> {class, config: first 4 bytes or None, driver, link} of NVIDIA GPUs and switches; None without sysfs.

    `link` holds the texts of the files that are there, unread where the function does not answer.

    `known` keeps, between calls, the class of each function that was looked at ("" for those of no interest).
    """
    known = {} if known is None else known
    root = sysfs / "bus/pci/devices"
    try:
        names = sorted(os.listdir(root))
    except OSError:
        return None
    for gone in set(known) - set(names):
        del known[gone]  # another device may come to its place
    found: dict[str, dict[str, Any]] = {}
    for name in names:
        bus_id = canonical_bus_id(name)
        if bus_id is None:
            continue
        if name not in known:
            known[name] = _kind(root / name)
        kind = known[name]
        if not kind:
            continue
        found[bus_id] = {
            "class": kind,
            "config": _head(root / name / "config"),
            "driver": os.path.basename(os.path.realpath(root / name / "driver"))
            if (root / name / "driver").exists()
            else None,
        }
        answers = function_state(found[bus_id]["config"]) == "present"
        found[bus_id]["link"] = {file: _text(root / name / file) for file in _LINK_FILES} if answers else {}
    return found


def _kind(path: Path) -> str:
    """The class of an NVIDIA GPU or switch, "" for every other function."""
    kind = _text(path / "class") if _text(path / "vendor") == NVIDIA else ""
    return kind if kind.startswith((_DISPLAY, _BRIDGE_OTHER)) else ""


def _text(path: Path) -> str:
    try:
        return path.read_text().strip().lower()
    except OSError:
        return ""


def _head(path: Path) -> Optional[bytes]:
    try:
        with path.open("rb") as file:
            return file.read(4)
    except OSError:
        return None


def function_state(config: Optional[bytes]) -> str:
    """`dead` if the config space reads all ones (the link is gone), else `present`."""
    return "dead" if config == b"\xff\xff\xff\xff" else "present"


def parse_link(texts: Mapping[str, str]) -> dict[str, Any]:
    """Speed (MT/s), width (lanes) and AER's totals of one function; what its files do not tell is left out."""
    facts: dict[str, Any] = {}
    speed = re.match(r"(\d{1,4}(?:\.\d{1,2})?) gt/s", texts.get("current_link_speed", ""))
    if speed is not None:
        facts["speed"] = round(1000 * float(speed.group(1)))
    width = texts.get("current_link_width", "")
    if re.fullmatch(r"[0-9]{1,2}", width) and 0 < int(width) <= _LANES_MOST:
        facts["width"] = int(width)
    for key, word in _AER.items():
        text = texts.get(f"aer_dev_{key[4:]}", "")
        total = re.search(rf"^total_err_{word.lower()} ([0-9]{{1,18}})$", text, re.MULTILINE)
        if total is not None:
            facts[key] = int(total.group(1))
    return facts


class PciCollector:
    """Which NVIDIA functions answer; one that was seen before and vanished is told as `absent`, across restarts."""

    source = "pci"

    def __init__(self, sysfs: Path, timeout_s: float = READ_TIMEOUT_S) -> None:
        self._known: dict[str, str] = {}
        self._read = DeadlineCall(lambda: read_functions(sysfs, self._known), timeout_s)
        self._seen: list[str] = []
        self._drivers: dict[str, Optional[str]] = {}
        self._totals: dict[tuple[str, str], int] = {}  # AER's totals at the previous sample
        self.states: dict[str, str] = {}

    def restore(self, memory: Memory) -> None:
        """The bus ids seen before this process started."""
        self._seen = [str(bus) for bus in memory.get("seen", [])][:MAX_FUNCTIONS]

    def collect(self, at: Instant) -> Reading:
        """The state of every function that is or was there."""
        try:
            functions = self._read()
        except TimeoutError:
            self.states = {}
            return Reading(self.source, TIMEOUT)
        if functions is None:
            self.states = {}
            return Reading(self.source, ERROR if self._seen else ABSENT)
        states = {bus: function_state(facts["config"]) for bus, facts in functions.items()}
        for bus in self._seen:
            states.setdefault(bus, "absent")
        self._seen = sorted(states)[:MAX_FUNCTIONS]
        self.states = {bus: states[bus] for bus in self._seen}
        facts: dict[str, Any] = {}
        if self.states:
            facts["pci"] = dict(self.states)
        links = self._links(functions)
        if links:
            facts["pci_links"] = links
        events = self._unbound(functions, at)
        if events:
            facts["events"] = events
        return Reading(self.source, OK, facts, {"seen": self._seen} if self._seen else {})

    def _links(self, functions: dict[str, dict[str, Any]]) -> list[dict[str, Any]]:
        """The links of the functions that answer; AER's totals become growth, and one that fell counts from zero."""
        links = []
        totals: dict[tuple[str, str], int] = {}
        for bus_id in sorted(functions)[:MAX_FUNCTIONS]:
            facts = parse_link(functions[bus_id]["link"])
            for key in _AER:
                total = facts.pop(key, None)
                if total is None:
                    continue
                totals[bus_id, key] = total
                before = self._totals.get((bus_id, key))
                if before is not None:
                    facts[key] = total - before if total >= before else total
            if facts:
                links.append({"pci_bus_id": bus_id, **facts})
        self._totals = totals
        return links

    def _unbound(self, functions: dict[str, dict[str, Any]], at: Instant) -> list[dict[str, Any]]:
        """An event for each GPU that left the driver while others kept it: its owner did that."""
        drivers = {bus: facts["driver"] for bus, facts in functions.items()}
        kept = any(driver == _DRIVER for driver in drivers.values())
        gone = [b for b, d in drivers.items() if d != _DRIVER and self._drivers.get(b) == _DRIVER]
        self._drivers = drivers
        if not kept:
            return []
        return [{"kind": "driver_unbind", "pci_bus_id": bus, "at": at.ts, "mono": at.mono} for bus in gone]

    def close(self) -> None:
        """Nothing is held."""
