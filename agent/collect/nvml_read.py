"""Reading NVML: every call on its own, its value or its return code kept as they came. No judgement here.

Runs in the child process only. A call that a device does not support is not made again until NVML is opened anew:
some of them write a line to the kernel log each time.
"""

from __future__ import annotations

import contextlib
import time

import pynvml as nvml

TYPE_CHECKING = False  # the child does not load `typing` for its annotations
if TYPE_CHECKING:
    from typing import Any, Callable

NOT_SUPPORTED, FUNCTION_NOT_FOUND, LIBRARY_NOT_FOUND = 3, 13, 12
FIELD_IDS = (230, 74, 76, 269, 270, 271)  # recovery action and throttle times
MOST_LINKS = 18
MOST_GPUS = 64
REOPEN_S = 600.0  # how often NVML is opened anew while it lists fewer GPUs than it once did
RETRY_FIRST_S, RETRY_MOST_S = 15.0, 300.0  # each nvmlInit with a broken device writes to the kernel log

_VERSION_FILE = "/proc/driver/nvidia/version"


def _memory(handle: Any) -> list[int]:
    info = nvml.nvmlDeviceGetMemoryInfo(handle)
    return [int(info.total), int(info.used)]


def _utilization(handle: Any) -> list[int]:
    rates = nvml.nvmlDeviceGetUtilizationRates(handle)
    return [int(rates.gpu), int(rates.memory)]


def _reasons(handle: Any) -> int:
    try:
        return int(nvml.nvmlDeviceGetCurrentClocksEventReasons(handle))
    except nvml.NVMLError as error:
        if error.value != FUNCTION_NOT_FOUND:
            raise
        return int(nvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle))  # drivers before 535


def _fields(handle: Any) -> list[list[int]]:
    values = nvml.nvmlDeviceGetFieldValues(handle, list(FIELD_IDS))
    return [[int(v.fieldId), int(v.nvmlReturn), _field_value(v)] for v in values]


def _field_value(field: Any) -> int:
    """The member of the union that `valueType` names; -1 for a type that is no whole number."""
    names = {1: "uiVal", 2: "ulVal", 3: "ullVal", 4: "sllVal", 5: "siVal", 6: "usVal"}
    name = names.get(int(field.valueType))
    return int(getattr(field.value, name)) if name else -1


def _links(handle: Any) -> list[int]:
    states = []
    for link in range(MOST_LINKS):
        try:
            states.append(int(nvml.nvmlDeviceGetNvLinkState(handle, link)))
        except nvml.NVMLError as error:
            if link == 0:
                raise
            if error.value not in (2, NOT_SUPPORTED):  # 2: this GPU has no such link
                raise
            break
    return states


def _fabric(handle: Any) -> list[Any]:
    info = nvml.c_nvmlGpuFabricInfo_v2_t()
    nvml.nvmlDeviceGetGpuFabricInfoV(handle, nvml.byref(info))
    return [bytes(info.clusterUuid).hex(), int(info.cliqueId), int(info.state) & 0xFF]


def _mig(handle: Any) -> list[list[int]]:
    """[GPU instance, its compute slices] of each MIG device of a GPU in MIG mode."""
    if not nvml.nvmlDeviceGetMigMode(handle)[0]:
        return []
    found = []
    for index in range(int(nvml.nvmlDeviceGetMaxMigDeviceCount(handle))):
        try:
            device = nvml.nvmlDeviceGetMigDeviceHandleByIndex(handle, index)
        except nvml.NVMLError:
            continue  # this place holds no instance
        slices = int(nvml.nvmlDeviceGetAttributes(device).gpuInstanceSliceCount)
        found.append([int(nvml.nvmlDeviceGetGpuInstanceId(device)), slices])
    return found


CALLS: tuple[tuple[str, Callable[[Any], Any]], ...] = (
    ("uuid", lambda h: nvml.nvmlDeviceGetUUID(h)),
    ("pci", lambda h: nvml.nvmlDeviceGetPciInfo(h).busId),
    ("name", lambda h: nvml.nvmlDeviceGetName(h)),
    ("memory", _memory),
    ("sm_clock", lambda h: nvml.nvmlDeviceGetClockInfo(h, nvml.NVML_CLOCK_SM)),
    ("sm_clock_max", lambda h: nvml.nvmlDeviceGetMaxClockInfo(h, nvml.NVML_CLOCK_SM)),
    ("reasons", _reasons),
    ("temperature", lambda h: nvml.nvmlDeviceGetTemperature(h, nvml.NVML_TEMPERATURE_GPU)),
    ("ecc_corrected", lambda h: nvml.nvmlDeviceGetTotalEccErrors(h, 0, 0)),
    ("ecc_uncorrected", lambda h: nvml.nvmlDeviceGetTotalEccErrors(h, 1, 0)),
    ("pcie_gen", lambda h: nvml.nvmlDeviceGetCurrPcieLinkGeneration(h)),
    ("pcie_gen_max", lambda h: nvml.nvmlDeviceGetMaxPcieLinkGeneration(h)),
    ("pcie_width", lambda h: nvml.nvmlDeviceGetCurrPcieLinkWidth(h)),
    ("pcie_width_max", lambda h: nvml.nvmlDeviceGetMaxPcieLinkWidth(h)),
    ("utilization", _utilization),
    ("fields", _fields),
    ("remapped_rows", lambda h: list(nvml.nvmlDeviceGetRemappedRows(h))),
    ("pcie_replays", lambda h: nvml.nvmlDeviceGetPcieReplayCounter(h)),
    ("links", _links),
    ("power", lambda h: nvml.nvmlDeviceGetPowerUsage(h)),
    ("power_limit", lambda h: nvml.nvmlDeviceGetEnforcedPowerLimit(h)),
    ("ecc_mode", lambda h: nvml.nvmlDeviceGetEccMode(h)[0]),
    ("mig_mode", lambda h: nvml.nvmlDeviceGetMigMode(h)[0]),
    ("mig", _mig),
    ("serial", lambda h: nvml.nvmlDeviceGetSerial(h)),
    ("fabric", _fabric),
)


class Library:
    """NVML, opened when first read, closed on demand."""

    def __init__(self, retry_first_s: float = RETRY_FIRST_S) -> None:
        self._retry_first_s = retry_first_s
        self._retry_s = 0.0
        self._next_try = 0.0
        self._open = False
        self._opened_at = 0.0
        self._error = 0
        self._most_seen = 0
        self._version = ""
        self._unsupported: set[tuple[str, str]] = set()

    def read(self) -> dict[str, Any]:
        """`{init, driver, gpus: [{handle, calls: {name: [code, value]}}]}`; `init` other than 0 is NVML's error."""
        if not self._ready():
            return {"init": self._error}
        raw: dict[str, Any] = {"init": 0, "gpus": []}
        with contextlib.suppress(nvml.NVMLError):
            raw["driver"] = nvml.nvmlSystemGetDriverVersion()
        try:
            count = min(int(nvml.nvmlDeviceGetCount()), MOST_GPUS)
        except nvml.NVMLError as error:
            self.close()
            return {"init": int(error.value)}
        for index in range(count):
            raw["gpus"].append(self._gpu(index))
        answering = sum(1 for gpu in raw["gpus"] if gpu["handle"] == 0)
        self._most_seen = max(self._most_seen, answering)
        if answering < self._most_seen and time.monotonic() - self._opened_at > REOPEN_S:
            self.close()  # a GPU that came back is listed only by a new nvmlInit
        return raw

    def _ready(self) -> bool:
        version = _driver_text()
        if self._open and version == self._version:
            return True
        if version != self._version:  # loaded, unloaded or replaced: look again at once
            self.close()
            self._version, self._next_try, self._retry_s = version, 0.0, 0.0
        if time.monotonic() < self._next_try:
            return False
        try:
            nvml.nvmlInit()
        except nvml.NVMLError as error:
            self._error = int(error.value)
            self._next_try = time.monotonic() + self._retry_s
            self._retry_s = min(RETRY_MOST_S, max(self._retry_first_s, 2 * self._retry_s))
            return False
        self._open, self._opened_at = True, time.monotonic()
        self._error, self._retry_s, self._next_try = 0, 0.0, 0.0
        self._unsupported.clear()
        return True

    def _gpu(self, index: int) -> dict[str, Any]:
        try:
            handle = nvml.nvmlDeviceGetHandleByIndex(index)
        except nvml.NVMLError as error:
            return {"handle": int(error.value), "calls": {}}
        calls: dict[str, list[Any]] = {}
        uuid = str(index)
        for name, call in CALLS:
            if (uuid, name) in self._unsupported:
                continue
            try:
                calls[name] = [0, call(handle)]
            except nvml.NVMLError as error:
                code = int(error.value)
                calls[name] = [code, None]
                if code in (NOT_SUPPORTED, FUNCTION_NOT_FOUND):
                    self._unsupported.add((uuid, name))
            except (UnicodeDecodeError, ValueError, TypeError):
                calls[name] = [999, None]
            if name == "uuid" and calls[name][0] == 0:
                uuid = str(calls[name][1])
        return {"handle": 0, "calls": calls}

    def close(self) -> None:
        """Lets go of the driver."""
        if self._open:
            self._open = False
            with contextlib.suppress(nvml.NVMLError):
                nvml.nvmlShutdown()


def _driver_text() -> str:
    try:
        with open(_VERSION_FILE, encoding="ascii", errors="replace") as file:
            return file.read(200)
    except OSError:
        return ""
