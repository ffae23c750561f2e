"""Decoded objects for the fold's tests; see fleet.domain.scenario.made."""

from fleet.domain.scenario.made import (
    OK,
    Batch,
    Clock,
    Event,
    Fabric,
    Gpu,
    Interval,
    Port,
    RowRemap,
    Sync,
    Xid,
    gpu,
    port,
    received,
)

__all__ = [
    "OK",
    "Batch",
    "Clock",
    "Event",
    "Fabric",
    "Gpu",
    "Interval",
    "Port",
    "RowRemap",
    "Sync",
    "Xid",
    "gpu",
    "port",
    "received",
]
