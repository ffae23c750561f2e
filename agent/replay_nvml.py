"""Replay of recorded NVML calls: one JSON object per line, answered to the real reader in place of the library.

Lines with `call` hold one call's result (`ret` a name or number, `value`); a line `{"t": …}` without `call` begins
the next sample. What no line mentions is answered with "not supported".
"""

from __future__ import annotations

import json
from typing import Any, Iterator

from agent.collect.nvml_parse import Deltas, parse_gpus
from agent.errors import UsageError

_RETURNS = {
    "NVML_SUCCESS": 0,
    "NVML_ERROR_NOT_SUPPORTED": 3,
    "NVML_ERROR_NO_PERMISSION": 4,
    "NVML_ERROR_DRIVER_NOT_LOADED": 9,
    "NVML_ERROR_LIBRARY_NOT_FOUND": 12,
    "NVML_ERROR_FUNCTION_NOT_FOUND": 13,
    "NVML_ERROR_GPU_IS_LOST": 15,
    "NVML_ERROR_RESET_REQUIRED": 16,
    "NVML_ERROR_LIB_RM_VERSION_MISMATCH": 18,
    "NVML_ERROR_UNKNOWN": 999,
}
_NAMES = {
    "nvmlDeviceGetUUID": "uuid",
    "nvmlDeviceGetPciInfo": "pci",
    "nvmlDeviceGetName": "name",
    "nvmlDeviceGetMemoryInfo": "memory",
    "nvmlDeviceGetTemperature": "temperature",
    "nvmlDeviceGetUtilizationRates": "utilization",
    "nvmlDeviceGetRemappedRows": "remapped_rows",
    "nvmlDeviceGetPowerUsage": "power",
    "nvmlDeviceGetFieldValues": "fields",
    "nvmlDeviceGetCurrentClocksEventReasons": "reasons",
}


def replay_nvml(text: str) -> Iterator[dict[str, Any]]:
    """The GPUs of each recorded sample. Raises UsageError for a line that is no JSON object."""
    deltas = Deltas()
    samples: list[dict[str, list[Any]]] = [{}]
    init = 0
    for number, line in enumerate((part for part in text.splitlines() if part.strip()), 1):
        try:
            entry = json.loads(line)
        except ValueError:
            raise UsageError(f"line {number} is no JSON object; console text cannot be replayed") from None
        if not isinstance(entry, dict):
            raise UsageError(f"line {number} is no JSON object")
        call = entry.get("call")
        if call is None:
            samples.append({})
        elif call.startswith("nvmlInit"):
            init = _code(entry.get("ret"))
        elif call in _NAMES:
            value = entry.get("value", entry.get("values"))
            if _NAMES[call] == "fields":
                value = [[v["id"], _code(v.get("ret")), int(v.get("value", 0))] for v in value or []]
            samples[-1][_NAMES[call]] = [_code(entry.get("ret")), value]
    for number, calls in enumerate(sample for sample in samples if sample or init):
        raw = {"init": init, "gpus": [{"handle": 0, "calls": calls}] if not init else []}
        gpus, error = parse_gpus(raw, deltas, lambda _kind, value: value)
        yield {"sample": number, "gpus": gpus, "nvml_error": init or error}


def _code(name: Any) -> int:
    if isinstance(name, int):
        return name
    return _RETURNS.get(str(name), 999)
