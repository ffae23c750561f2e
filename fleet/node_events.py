"""Kernel events of one node as a page lists them: who, what, when, and what that means in plain words."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from django.db import connection

from fleet.bodies import closing_state, load_row
from fleet.domain.clocks import NO_FIT
from fleet.domain.placement import place
from fleet.domain.rules import Reason, load_rules
from fleet.domain.slots import SLOT_MS
from fleet.evidence import batches_of
from fleet.folding import decoded
from fleet.selectors_api import Span
from fleet.selectors_live import action_of

MOST_BATCHES = 3000  # two days of a node that uploads each minute
MOST_EVENTS = 200
# A batch in which these keys (MessagePack fixstr) have an empty array or are not there carries no kernel event; it is
# not decoded.
EVENT_KEYS = re.compile(rb"\xa6events[^\x90]|\xa4xids[^\x90]", re.DOTALL)

KINDS = {
    "xid": ("Xid", "An error that the driver reported."),
    "sxid": ("SXid", "An error that an NVSwitch reported."),
    "bus_lost": ("GPU fell off the bus", "The kernel can no longer reach the GPU over PCIe."),
    "gpu_reset": ("GPU reset", "Somebody or something reset the GPU. What a reset cures ends here."),
    "driver_load": ("Driver loaded", "The driver came up: a boot or a reload."),
    "driver_unload": ("Driver unloaded", "The driver was taken out. What follows is administration, not a fault."),
    "driver_unbind": ("GPU unbound", "The GPU was taken from the driver by hand. This is administration, not a fault."),
    "shutdown": ("Shutdown", "The machine was told to stop. What follows is not counted as a fault."),
}


@dataclass(frozen=True)
class EventLine:
    """One event (or a storm of `count`). `place` is the GPU's index, None where its bus id is none of the node's."""

    ms: int
    title: str
    meaning: str
    action: str
    party: str
    bus_id: str
    place: int | None
    uuid: str
    count: int
    sha256: str
    is_clock_good: bool
    lowers: bool


@dataclass(frozen=True)
class Events:
    """The newest events of a span, newest first. `is_cut`: there are more, or older batches were not looked at."""

    lines: tuple[EventLine, ...]
    is_cut: bool


def list_events(node_id: int, span: Span, places: Iterable[tuple[int, str, str]]) -> Events:
    """Events of a node within the span. `places`: (index, UUID, bus id) as they are now. Four queries."""
    found = batches_of([node_id], span.hours.start - 1, span.hours.stop, limit=MOST_BATCHES)
    is_cut = len(found) > MOST_BATCHES or not all(one.has_bytes for one in found)
    batches = [decoded(one) for one in found[-MOST_BATCHES:] if one.has_bytes and EVENT_KEYS.search(one.raw())]
    begin, end = span.first_slot * SLOT_MS, span.end_slot * SLOT_MS
    items = [item for item in place(batches, NO_FIT).items if item.event is not None and begin <= item.ms < end]
    by_bus = {bus: (index, uuid) for index, uuid, bus in places if bus}
    lines = [line_of(item, by_bus) for item in sorted(items, key=lambda item: item.key, reverse=True)]
    return Events(tuple(lines[:MOST_EVENTS]), is_cut or len(lines) > MOST_EVENTS)


def line_of(item: Any, by_bus: dict[str, tuple[int, str]]) -> EventLine:
    """An event (an Item or a Fact) in words. `by_bus`: bus id → (index, UUID)."""
    event = item.event
    kind = getattr(event, "kind", None) or "xid"
    code = event.code
    rule = rule_of(kind, code, getattr(event, "severity", None))
    name, meaning = KINDS.get(kind, (kind, "No rule knows this kind of event; it lowers nothing."))
    if kind in ("xid", "sxid"):
        name = f"{name} {code}"
    index, uuid = by_bus.get(event.pci_bus_id or "", (None, ""))
    return EventLine(
        ms=item.ms,
        title=f"{name}: {rule.title}" if rule and kind in ("xid", "sxid") else name,
        meaning=rule.explanation if rule and kind in ("xid", "sxid") else meaning,
        action=action_of(rule.code) if rule else "",
        party=rule.party if rule else "none",
        bus_id=event.pci_bus_id or "",
        place=index,
        uuid=uuid,
        count=getattr(event, "count", None) or 1,
        sha256=item.sha256.hex(),
        is_clock_good=getattr(item, "clock_ok", True) and getattr(item, "is_clock_good", True),
        lowers=bool(rule and rule.lowers),
    )


def rule_of(kind: str, code: int | None, severity: str | None = None) -> Reason | None:
    """The rule of an event, `severity` being the word of its line; None for one that no rule knows."""
    rules = load_rules()
    if kind == "xid" and code is not None:
        return rules.xid(code, severity) or rules.reasons.get("XID_UNKNOWN")
    if kind == "sxid" and code is not None:
        return rules.sxid(code, severity) or rules.reasons.get("SXID_UNKNOWN")
    return rules.by_xid.get((79, "")) if kind == "bus_lost" else None


def devices_at(hours: Iterable[tuple[int, int]]) -> dict[tuple[int, int], dict[str, tuple[str, str]]]:
    """(node id, hour) → subject → (UUID or port key, bus id), as that hour ended. One query.

    Hours without a row or without a sample of their own are left out.
    """
    wanted = sorted(set(hours))
    if not wanted:
        return {}
    with connection.cursor() as cursor:
        cursor.execute(
            "select h.node_id, h.hour, h.body from unnest(%s::bigint[], %s::int[]) as w(node_id, hour)"
            " join fleet_nodehour h on h.node_id = w.node_id and h.hour = w.hour",
            [[node_id for node_id, _ in wanted], [hour for _, hour in wanted]],
        )
        rows = cursor.fetchall()
    found = {}
    for node_id, hour, body in rows:
        state = closing_state(load_row(bytes(body)))
        if state is not None:
            found[node_id, hour] = {f"g{i}": (place.uuid, place.bus) for i, place in enumerate(state.places)}
    return found
