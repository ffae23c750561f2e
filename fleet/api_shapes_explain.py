"""One slot of one GPU in full, as JSON."""

from __future__ import annotations

from typing import Any

from fleet.api_dated_json import amendment
from fleet.api_shapes import event, explained, incident, precise, slot_at, slot_run, stamp
from fleet.selectors_api_explain import Explanation
from fleet.selectors_api_facts import Fact, gpu_in, odd_ports


def explanation(found: Explanation) -> dict[str, Any]:
    """A slot in full."""
    one = found.line.gpu
    return {
        "node_id": found.line.node.id,
        "node": found.line.node.name,
        "cluster": found.line.node.cluster,
        "index": one.place,
        "uuid": one.uuid or None,
        "slot": found.slot,
        "from": slot_at(found.slot),
        "to": slot_at(found.slot + 1),
        "verdict": slot_run(found.run),
        "meaning": found.meaning,
        "reasons": [explained(each) for each in found.reasons],
        "rules": {
            "version": found.rules.version,
            "digest": found.rules.digest,
            "found": found.is_rules_found,
            "amendments": [amendment(each) for each in found.amendments],
        },
        "limits": [
            {"code": r.code, "title": r.title, "read": words, "party": r.party, "explanation": r.explanation}
            for r, words in found.limits
        ],
        "incidents": [incident(each) for each in found.incidents],
        "samples": [sample(fact, one.uuid, one.bus_id) for fact in found.samples],
        "events": [event(fact, found.line.node, found.rules) for fact in found.events],
    }


def sample(fact: Fact, uuid: str, bus_id: str) -> dict[str, Any]:
    """A sample of one GPU as received: what the agent read, key by key as the wire names it."""
    interval = fact.interval
    found = gpu_in(interval, uuid, bus_id)
    values = {} if found is None else {n: getattr(found, n) for n in found.__struct_fields__}
    return {
        "at": precise(fact.ms),
        "ts": precise(interval.ts),
        "listed": found is not None,
        "gpu": {name: _value(value) for name, value in values.items() if value is not None},
        "sources": dict(interval.sources or {}),
        "pci": (interval.pci or {}).get(bus_id),
        "ports": odd_ports(interval),
        "clock_good": fact.is_clock_good,
        "agent_id": fact.batch.agent_id,
        "boot_id": fact.batch.boot_id,
        "boot_at": wire_instant(fact.batch.boot_at),
        "last_shutdown": fact.batch.last_shutdown,
        "last_alive": wire_instant(fact.batch.last_alive),
        "batch_sha256": fact.sha256.hex(),
        "received_at": stamp(fact.received_at),
    }


def wire_instant(ms: int | None) -> str | None:
    """An instant of the wire, where it says one."""
    return None if ms is None else precise(ms)


def _value(value: Any) -> Any:
    fields = getattr(value, "__struct_fields__", None)
    return {n: _value(getattr(value, n)) for n in fields} if fields else value
