"""Reads of the facts for the API: a node's kernel events and samples, decoded from the bytes as they were received.

Items are placed in time by the fold's own `place`, over the batches read here. No raw log line is stored, so none can
be given back: an event is its kind and numbers.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from fleet.domain.clocks import NO_FIT
from fleet.domain.placement import Item, place
from fleet.domain.ports import FLAPS
from fleet.domain.receipts import ReceivedBatch
from fleet.domain.slots import SLOT_MS
from fleet.evidence import batches_of
from fleet.folding import decoded
from fleet.selectors_api import Span, TooMuch

MAX_BATCHES = 6000  # that one answer decodes: a day of four nodes


@dataclass(frozen=True)
class Fact:
    """A sample (`event` None) or a kernel event at its own instant, and the batch that carries it."""

    node_id: int
    ms: int
    sha256: bytes
    position: int
    sub: int
    received_at: datetime
    is_clock_good: bool
    interval: Any
    event: Any
    batch: Any

    @property
    def order(self) -> tuple[int, str, int, int]:
        """Where it stands among others; a cursor's place too."""
        return self.ms, self.sha256.hex(), self.position, self.sub


def gpu_in(interval: Any, uuid: str, bus_id: str) -> Any:
    """A GPU as a sample lists it, by its place on the bus where no UUID is known; None where it does not."""
    return next((gpu for gpu in interval.gpus if (gpu.uuid == uuid if uuid else gpu.pci_bus_id == bus_id)), None)


def odd_ports(interval: Any) -> list[dict[str, Any]]:
    """Of a sample, the ports that are not plainly up: name, state, phys_state, how often its link went down since the
    sample before."""
    out = []
    for port in interval.ib_ports:
        downs = (port.counters or {}).get(FLAPS, 0)
        if port.state != "ACTIVE" or downs:
            name = f"{port.device}/{port.port}"
            out.append({"name": name, "state": port.state, "phys_state": port.phys_state, "link_downed": downs})
    return out


def list_facts(nodes: Sequence[int], span: Span, *, events: bool | None = None) -> list[Fact]:
    """Facts of these nodes whose instants lie in the span, in order: events only, samples only, or (None) both.

    Four queries. Raises TooMuch when more than `MAX_BATCHES` would have to be decoded. Batches whose bytes were dropped
    after the raw horizon have no facts any more.
    """
    rows = batches_of(nodes, span.hours.start - 1, span.hours.stop, limit=MAX_BATCHES)
    if len(rows) > MAX_BATCHES:
        raise TooMuch(
            f"An answer reads at most {MAX_BATCHES} batches. Page through it: a shorter range at a time, or one"
            " cluster= or node_id= at a time."
        )
    received_at = {one.sha256: one.received_at for one in rows}
    by_node: dict[int, list[ReceivedBatch]] = defaultdict(list)
    for one in rows:
        if one.has_bytes and one.node_id is not None:
            by_node[one.node_id].append(decoded(one, is_whole=True))
    begin, end = span.first_slot * SLOT_MS, span.end_slot * SLOT_MS
    found = [
        _fact(node_id, item, received_at[item.sha256])
        for node_id, batches in by_node.items()
        for item in place(batches, NO_FIT).items
        if begin <= item.ms < end and (events is None or events == (item.event is not None))
    ]
    return sorted(found, key=lambda fact: fact.order)


def _fact(node_id: int, item: Item, received_at: datetime) -> Fact:
    return Fact(
        node_id,
        item.ms,
        item.sha256,
        item.position,
        item.sub,
        received_at,
        item.clock_ok,
        item.interval,
        item.event,
        item.batch,
    )
