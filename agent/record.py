"""`record`: this machine's readings in the format that `replay` takes, without what names people and hardware.

Process ids and names, serial numbers, GUIDs and network names are replaced; the same thing gets the same stand-in.
"""

from __future__ import annotations

import errno
import json
import os
import re
import time
from pathlib import Path
from typing import Any, Callable, Iterator, Optional

from agent.collect.ib_read import HW_COUNTERS, NETDEV_COUNTERS
from agent.collect.kmsg_parse import parse_event, parse_record
from agent.collect.kmsg_read import Lost, open_source

FILES_MOST = 20_000
RECORDS_MOST = 200_000
_DRIVER_LINES = ("NVRM: ", "nvidia-nv", "nvidia 0")


# -- InfiniBand ------------------------------------------------------------------------------------------------------


def record_ib(sysfs: Path, samples: int = 1, every_s: float = 15.0, most: int = FILES_MOST) -> Iterator[str]:
    """The InfiniBand files as `path:content` lines, and where ports and GPUs stand in the PCIe tree."""
    for number in range(samples):
        if number:
            time.sleep(every_s)
            yield f"# +{max(1, round(every_s))}s"
        for count, line in enumerate(_ib_lines(sysfs)):
            if count >= most:
                return
            yield line


def _ib_lines(sysfs: Path) -> Iterator[str]:
    base = sysfs / "class/infiniband"
    devices = [path for path in _entries(base) if "/devices/virtual/" not in os.path.realpath(path)]
    if devices:
        yield from _gpu_lines(sysfs)
    for number, device in enumerate(devices, 1):
        name = f"/sys/class/infiniband/{device.name}"
        if (device / "device").exists():
            function = os.path.realpath(device / "device")
            place = os.path.relpath(function, os.path.realpath(sysfs))
            if not place.startswith(".."):
                yield f"readlink {name}/device -> ../../../{place}"
                if os.path.lexists(f"{function}/physfn"):
                    yield f"readlink /sys/{place}/physfn -> ../physfn"
        if (device / "node_guid").exists():
            yield f"{name}/node_guid:0200:0000:0000:{number:04x}"
        for place_, net in enumerate(_entries(device / "device/net")):
            stand_in = f"net{number}{'abcdefgh'[place_ % 8]}"
            yield f"{name}/device/net/{stand_in}/ifindex:{number}"
            for counter in NETDEV_COUNTERS:
                yield from _file(sysfs / "class/net" / net.name / counter, f"/sys/class/net/{stand_in}/{counter}")
        for port in _entries(device / "ports"):
            for file in ("state", "phys_state", "rate", "link_layer"):
                yield from _file(port / file, f"{name}/ports/{port.name}/{file}")
            for file_path in _entries(port / "counters"):
                yield from _file(file_path, f"{name}/ports/{port.name}/counters/{file_path.name}")
            for file in HW_COUNTERS:
                yield from _file(port / "hw_counters" / file, f"{name}/ports/{port.name}/hw_counters/{file}")


def _gpu_lines(sysfs: Path) -> Iterator[str]:
    """The NVIDIA display functions: `near` of a port is read off the bridges that they share."""
    for device in _entries(sysfs / "bus/pci/devices"):
        place = os.path.relpath(os.path.realpath(device), os.path.realpath(sysfs))
        found = [*_file(device / "vendor", "vendor"), *_file(device / "class", "class")]
        if found[:1] != ["vendor:0x10de"] or not found[-1].startswith("class:0x03") or place.startswith(".."):
            continue
        yield f"readlink /sys/bus/pci/devices/{device.name} -> ../../../{place}"
        yield from (f"/sys/bus/pci/devices/{device.name}/{line}" for line in found)


def _entries(folder: Path) -> list[Path]:
    try:
        return sorted(folder.iterdir())
    except OSError:
        return []


def _file(path: Path, name: str) -> Iterator[str]:
    """`name:first line` of a file, `name!ERRNO` of one that fails, nothing of one that is not there."""
    try:
        content = path.read_text(errors="replace").strip()
    except (FileNotFoundError, NotADirectoryError):
        return
    except OSError as error:
        yield f"{name}!{errno.errorcode.get(error.errno or 0, 'EIO')}"
        return
    yield f"{name}:{content.splitlines()[0] if content else ''}"


# -- kernel log ------------------------------------------------------------------------------------------------------


def record_kmsg(path: Path, most: int = RECORDS_MOST) -> Iterator[str]:
    """The lines of the kernel log that are evidence, with process ids and names blanked.

    Where the ring was overwritten, the records on both sides of the gap are told without their text, so that `replay`
    sees as many missing.
    """
    source = open_source(path)
    before, told, gap = "", True, False
    out: list[str] = []
    overwritten = False
    try:
        for _ in range(most):
            item = source.read()
            if item is None:
                break
            if isinstance(item, Lost):
                if not told:
                    out.append(before)
                out.append("errno=EPIPE")
                overwritten = gap = True
                continue
            line = str(item).split("\n", 1)[0]
            record = parse_record(line)
            if record is None:
                continue
            wanted = _is_evidence(record.facility, record.text)
            before, told = line.split(";", 1)[0] + ";-", wanted
            if wanted:
                out.append(blank_process(line))
            elif gap:
                out.append(before)
                told = True
            gap = False
    finally:
        source.close()
    yield from (f"READ -> {line}" if overwritten else line for line in out)


def _is_evidence(facility: int, text: str) -> bool:
    """A driver's line of the kernel's own facility; what a process wrote there is nobody's business."""
    return facility == 0 and (text.startswith(_DRIVER_LINES) or parse_event(text) is not None)


def blank_process(line: str) -> str:
    """A driver's line without the process that it names (all up to the driver's own words is dropped)."""
    line = re.sub(r"pid='?[^',]*'?", "pid='<unknown>'", line)
    line = re.sub(r"name=.*?, (?=[A-Z])", "name=<unknown>, ", line)
    return re.sub(r"(Serial Number: )\S+", r"\1<hidden>", re.sub(r"GPU-[0-9a-f-]{36}", "GPU-<hidden>", line))


# -- NVML ------------------------------------------------------------------------------------------------------------

CALLS = {
    "uuid": "nvmlDeviceGetUUID",
    "pci": "nvmlDeviceGetPciInfo",
    "name": "nvmlDeviceGetName",
    "memory": "nvmlDeviceGetMemoryInfo",
    "sm_clock": "nvmlDeviceGetClockInfo",
    "sm_clock_max": "nvmlDeviceGetMaxClockInfo",
    "reasons": "nvmlDeviceGetCurrentClocksEventReasons",
    "temperature": "nvmlDeviceGetTemperature",
    "ecc_corrected": "nvmlDeviceGetTotalEccErrors",
    "ecc_uncorrected": "nvmlDeviceGetTotalEccErrors",
    "pcie_gen": "nvmlDeviceGetCurrPcieLinkGeneration",
    "pcie_gen_max": "nvmlDeviceGetMaxPcieLinkGeneration",
    "pcie_width": "nvmlDeviceGetCurrPcieLinkWidth",
    "pcie_width_max": "nvmlDeviceGetMaxPcieLinkWidth",
    "utilization": "nvmlDeviceGetUtilizationRates",
    "fields": "nvmlDeviceGetFieldValues",
    "remapped_rows": "nvmlDeviceGetRemappedRows",
    "pcie_replays": "nvmlDeviceGetPcieReplayCounter",
    "links": "nvmlDeviceGetNvLinkState",
    "power": "nvmlDeviceGetPowerUsage",
    "power_limit": "nvmlDeviceGetEnforcedPowerLimit",
    "ecc_mode": "nvmlDeviceGetEccMode",
    "mig_mode": "nvmlDeviceGetMigMode",
    "mig": "nvmlDeviceGetMigDeviceHandleByIndex",
    "serial": "nvmlDeviceGetSerial",
    "fabric": "nvmlDeviceGetGpuFabricInfoV",
}


def record_nvml(ask: Callable[[], Optional[dict[str, Any]]], samples: int = 1, every_s: float = 15.0) -> Iterator[str]:
    """Every NVML call of each sample as a JSON line. `ask` gives the child's raw answers, None if it hangs."""
    stand_ins = _StandIns()
    for number in range(samples):
        if number:
            time.sleep(every_s)
        yield json.dumps({"t": round(number * every_s)})
        raw = ask()
        if raw is None:
            yield json.dumps({"call": "nvmlInit", "ret": "HANG"})
            continue
        yield json.dumps({"call": "nvmlInit", "ret": raw["init"]})
        if raw.get("driver"):
            yield json.dumps({"call": "nvmlSystemGetDriverVersion", "ret": 0, "value": raw["driver"]})
        for index, gpu in enumerate(raw.get("gpus", ())):
            yield json.dumps({"call": "nvmlDeviceGetHandleByIndex", "index": index, "ret": gpu["handle"]})
            for what, (code, value) in gpu["calls"].items():
                line = {"call": CALLS.get(what, what), "what": what, "index": index, "ret": code}
                yield json.dumps(line if code else {**line, "value": stand_ins.of(what, value)})


class _StandIns:
    """Replaces what identifies a board; the same board gets the same stand-in throughout a recording."""

    def __init__(self) -> None:
        self._given: dict[str, int] = {}

    def of(self, what: str, value: Any) -> Any:
        """The value as it may be shown."""
        if what == "uuid":
            return f"GPU-00000000-0000-0000-0000-{self._number(value):012d}"
        if what == "serial":
            return f"hidden-{self._number(value)}"
        if what == "fabric" and str(value[0]).strip("0"):
            return [f"{self._number(value[0]):032x}", *value[1:]]
        return value

    def _number(self, value: Any) -> int:
        return self._given.setdefault(str(value), len(self._given) + 1)
