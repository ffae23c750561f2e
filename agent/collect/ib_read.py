"""Reading /sys/class/infiniband: a missing file is missing and stops nothing; a file that fails is not read again.

Some ports write a kernel line at each failed read (the ones that belong to a fabric manager); asking them again and
again would push the lines that matter out of the kernel's ring.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any, Optional

from agent.wire import MAX_COUNTERS, MAX_PORTS, canonical_bus_id

_PORT_FILES = ("state", "phys_state", "rate", "link_layer")
HW_COUNTERS = (
    "rnr_nak_retry_err",
    "local_ack_timeout_err",
    "roce_slow_restart",
    "out_of_sequence",
    "packet_seq_err",
    "implied_nak_seq_err",
)
NETDEV_COUNTERS = ("carrier_changes", "carrier_down_count")
_READ_MOST = 4096
_PCI_FUNCTION = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")


class Tree:
    """The InfiniBand part of one sysfs. `refused` remembers files that failed with anything but "not there"."""

    def __init__(self, sysfs: Path) -> None:
        self._root = sysfs / "class/infiniband"
        self._sysfs = sysfs
        self.refused: set[str] = set()
        self._pci_names: list[str] = []
        self._gpus: dict[str, str] = {}

    def ports(self) -> Optional[list[dict[str, Any]]]:
        """One map of raw texts per port; None where there is no InfiniBand at all."""
        try:
            devices = sorted(os.listdir(self._root), key=_natural)
        except FileNotFoundError:
            return None
        found: list[dict[str, Any]] = []
        gpus = self._gpu_paths()
        for device in devices:
            path = self._root / device
            real = os.path.realpath(path)
            if "/devices/virtual/" in real:
                continue  # soft RDMA (rxe, siw): no hardware
            about = self._about_device(path, gpus)
            try:
                numbers = sorted(int(n) for n in os.listdir(path / "ports") if n.isdigit())
            except OSError:
                continue
            for number in numbers:
                if len(found) < MAX_PORTS:
                    found.append(
                        {**about, **self._port(path / "ports" / str(number)), "device": device, "port": number}
                    )
        return found

    def _about_device(self, path: Path, gpus: dict[str, str]) -> dict[str, Any]:
        device = os.path.realpath(path / "device")
        bus_id = canonical_bus_id(os.path.basename(device)) if (path / "device").exists() else None
        return {
            "guid": self._text(path / "node_guid") or "",
            "is_vf": os.path.lexists(path / "device" / "physfn"),
            "pci_bus_id": bus_id,
            "near": near(device, gpus) if bus_id else [],
            "netdevs": _names(path / "device" / "net"),
        }

    def _port(self, path: Path) -> dict[str, Any]:
        raw: dict[str, Any] = {}
        for name in _PORT_FILES:
            text = self._text(path / name)
            if text is not None:
                raw[name] = text
        raw["gid0"] = self._text(path / "gids/0") or ""
        counters: dict[str, str] = {}
        for name in _names(path / "counters")[:MAX_COUNTERS]:
            text = self._text(path / "counters" / name)
            if text is not None:
                counters[name] = text
        for name in HW_COUNTERS:
            text = self._text(path / "hw_counters" / name)
            if text is not None and len(counters) < MAX_COUNTERS:
                counters[name] = text
        raw["counters"] = counters
        return raw

    def netdev_counters(self, names: list[str]) -> dict[str, str]:
        """Carrier counters of the one network device of a RoCE port."""
        found: dict[str, str] = {}
        if len(names) != 1:
            return found
        for counter in NETDEV_COUNTERS:
            text = self._text(self._sysfs / "class/net" / names[0] / counter)
            if text is not None:
                found[counter] = text
        return found

    def _text(self, path: Path) -> Optional[str]:
        key = str(path)
        if key in self.refused:
            return None
        try:
            descriptor = os.open(key, os.O_RDONLY | os.O_CLOEXEC)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError:
            self.refused.add(key)
            return None
        try:
            return os.read(descriptor, _READ_MOST).decode("ascii", "replace")
        except OSError:
            self.refused.add(key)
            return None
        finally:
            os.close(descriptor)

    def _gpu_paths(self) -> dict[str, str]:
        """Bus id of each NVIDIA display function -> its real path, which shows the bridges above it."""
        root = self._sysfs / "bus/pci/devices"
        names = _names(root)
        if names == self._pci_names:
            return self._gpus
        found = {}
        for name in names:
            bus_id = canonical_bus_id(name)
            if bus_id is None or (self._text(root / name / "vendor") or "").strip() != "0x10de":
                continue
            if (self._text(root / name / "class") or "").startswith("0x03"):
                found[bus_id] = os.path.realpath(root / name)
        self._pci_names, self._gpus = names, found
        return found


def near(device: str, gpus: dict[str, str]) -> list[str]:
    """Bus ids of the GPUs below the lowest PCIe bridge that is above both; none where no bridge is shared.

    Paths look like /sys/devices/pci0000:00/0000:00:01.0/0000:01:00.0; the part before the first function is the host.
    """
    bridges = _functions(device)[:-1]
    for depth in range(len(bridges), 0, -1):
        below = [bus for bus, path in gpus.items() if _functions(path)[:depth] == bridges[:depth]]
        if below:
            return sorted(below)
    return []


def _functions(path: str) -> list[str]:
    """The chain of PCI functions in a device path, host bridge left out."""
    return [part for part in path.split("/") if _PCI_FUNCTION.fullmatch(part)]


def _names(path: Path) -> list[str]:
    try:
        return sorted(os.listdir(path))
    except OSError:
        return []


def _natural(name: str) -> list[object]:
    return [int(part) if part.isdigit() else part for part in re.split(r"(\d+)", name)]
