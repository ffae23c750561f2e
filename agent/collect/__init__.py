"""Collectors: each reads one kind of hardware facts and says itself whether it could."""

from agent.collect.base import (
    ABSENT,
    BLIND,
    ERROR,
    LOST,
    OK,
    TIMEOUT,
    Collector,
    Memory,
    Reading,
    build_interval,
)

__all__ = [
    "ABSENT",
    "BLIND",
    "ERROR",
    "LOST",
    "OK",
    "TIMEOUT",
    "Collector",
    "Memory",
    "Reading",
    "build_interval",
]
