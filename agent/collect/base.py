"""The collector interface: tiny. Reading and parsing are separate functions in each collector's module.

A collector never raises for the state of the hardware: it returns a reading with a status. What it must find again
after a restart (a position in the kernel log, the devices seen) goes into `memory`, which is committed in the same
transaction as the sample that it belongs to.
"""

from __future__ import annotations

from typing import Any, Optional, Protocol, Sequence

from agent.clock import Instant

OK = "ok"
ABSENT = "absent"  # this kind of hardware or file does not exist here
ERROR = "error"
TIMEOUT = "timeout"
BLIND = "blind"  # cannot see what is known to be there; says nothing of its health
LOST = "lost"  # devices or records are known to be gone

Memory = dict[str, Any]  # JSON values only


class Reading:
    """What one collector found: `status` for the interval's `sources`, `facts` as keys of the interval.

    `batch` holds keys of the batch, such as driver_version. A plain class: `dataclasses` would load 1 MB.
    """

    def __init__(
        self,
        source: str,
        status: str,
        facts: Optional[dict[str, Any]] = None,
        memory: Optional[Memory] = None,
        batch: Optional[dict[str, Any]] = None,
    ) -> None:
        self.source = source
        self.status = status
        self.facts: dict[str, Any] = {} if facts is None else facts
        self.memory: Memory = {} if memory is None else memory
        self.batch: dict[str, Any] = {} if batch is None else batch
        self.duration_ms = 0


class Collector(Protocol):
    """One source of facts."""

    source: str

    def restore(self, memory: Memory) -> None:
        """Takes back what an earlier process committed."""
        ...

    def collect(self, at: Instant) -> Reading:
        """Facts for the sample at `at`. Never raises for what the hardware does."""
        ...

    def close(self) -> None:
        """Lets go of files, processes and devices."""
        ...


def build_interval(at: Instant, readings: Sequence[Reading]) -> dict[str, Any]:
    """The wire's interval of one sample; lists of the public contract are there even when empty."""
    interval: dict[str, Any] = dict(at.facts())
    interval.update({"gpus": [], "ib_ports": [], "xids": []})
    sources: dict[str, str] = {}
    events: list[dict[str, Any]] = []
    for reading in readings:
        sources[reading.source] = reading.status
        for key, value in reading.facts.items():
            if key == "events":
                events.extend(value)
            else:
                interval[key] = value
    interval["sources"] = sources
    if events:
        interval["events"] = events
        interval["xids"] = public_xids(events)
    return interval


def public_xids(events: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The public minimum derived from the events: code, bus id (left out when the line named none), `XID_<n>`."""
    out = []
    for event in events:
        if event["kind"] != "xid":
            continue
        xid = {"code": event["code"], "reason": f"XID_{event['code']}"}
        if event.get("pci_bus_id"):
            xid["pci_bus_id"] = event["pci_bus_id"]
        out.append(xid)
    return out
