"""GPUs through NVML."""

from __future__ import annotations

import os


def driver_present() -> bool:
    """Whether the NVIDIA kernel driver is loaded here."""
    return os.path.exists("/proc/driver/nvidia/version") or os.path.exists("/dev/nvidiactl")
