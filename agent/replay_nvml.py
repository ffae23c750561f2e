"""Replay of recorded NVML calls: one JSON object per line, answered to the real collector in place of the child.

Lines with `call` hold one call's result (`ret` a name or number, `value`, `index` of the GPU, `what` where a call
serves several facts); a line `{"t": …}` without `call` begins the next sample. What no line mentions is not supported.
"""

from __future__ import annotations

import json
from typing import Any, Iterator, Optional

from agent.clock import Instant
from agent.collect.nvml import NvmlCollector
from agent.errors import UsageError
from agent.record import CALLS

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
_NAMES = {call: what for what, call in reversed(CALLS.items())}
_INSTANT = Instant(0, 0, 0, "replay", 0)


class _Recorded:
    """In place of the child process: gives the raw answers of one sample after the other."""

    fresh = False
    pid = 0
    stuck_s = 0.0

    def __init__(self, samples: list[Optional[dict[str, Any]]]) -> None:
        self._samples = list(samples)

    def ask(self, _deadline_s: float) -> Optional[dict[str, Any]]:
        """The next sample's answers, None for one that hung."""
        return self._samples.pop(0)

    def end(self) -> bool:
        """Nothing runs."""
        return True


def replay_nvml(text: str) -> Iterator[dict[str, Any]]:
    """GPUs, return code and state of the source of each recorded sample, by the real collector.

    Raises UsageError for a line that is no JSON object.
    """
    samples = [_raw(lines) for lines in _samples(text)]
    child = _Recorded(samples)
    collector = NvmlCollector(0.0, lambda _kind, value: value, start=lambda: child)
    for number in range(len(samples)):
        try:
            reading = collector.collect(_INSTANT)
        except (TypeError, ValueError, LookupError, AttributeError):
            raise UsageError(f"sample {number} holds a value that NVML does not give") from None
        line = {"sample": number, "gpus": reading.facts["gpus"], "nvml_error": reading.facts.get("nvml_error")}
        yield {**line, "status": reading.status, **reading.batch}


def _samples(text: str) -> Iterator[list[dict[str, Any]]]:
    """The recorded calls, cut at the lines that begin a sample."""
    current: list[dict[str, Any]] = []
    for number, line in enumerate((part for part in text.splitlines() if part.strip()), 1):
        try:
            entry = json.loads(line)
        except (ValueError, RecursionError):
            raise UsageError(f"line {number} is no JSON object; console text cannot be replayed") from None
        if not isinstance(entry, dict) or not isinstance(entry.get("call", ""), str):
            raise UsageError(f"line {number} is no JSON object of a call")
        if "call" in entry:
            current.append({**entry, "line": number})
        elif current:
            yield current
            current = []
    if current:
        yield current


def _raw(lines: list[dict[str, Any]]) -> Optional[dict[str, Any]]:
    """What the child would have answered; None where a call hung."""
    raw: dict[str, Any] = {"init": 0}
    gpus: dict[int, dict[str, Any]] = {}
    for entry in lines:
        call, code, value = entry["call"], _code(entry.get("ret")), entry.get("value", entry.get("values"))
        if entry.get("ret") == "HANG":
            return None
        if call.startswith("nvmlInit"):
            raw["init"] = code
            continue
        if call == "nvmlSystemGetDriverVersion":
            raw["driver"] = value
            continue
        try:
            gpu = gpus.setdefault(int(entry.get("index", 0)), {"handle": 0, "calls": {}})
            what = entry.get("what", _NAMES.get(call))
            if what == "fields" and value and isinstance(value[0], dict):
                value = [[int(v["id"]), _code(v.get("ret")), int(v.get("value", 0))] for v in value]
        except (ValueError, TypeError, LookupError):
            raise UsageError(f"line {entry['line']} holds no value of {call[:60]}") from None
        if call == "nvmlDeviceGetHandleByIndex":
            gpu["handle"] = code
        elif what in CALLS:
            gpu["calls"][what] = [code, value]
    raw["gpus"] = [] if raw["init"] else [gpus[index] for index in sorted(gpus)]
    return raw


def _code(name: Any) -> int:
    if isinstance(name, int):
        return name
    return _RETURNS.get(str(name), 999)
