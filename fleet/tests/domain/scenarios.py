"""Reads the scenario language of `data/fold-scenarios.json` and runs a scenario as a worker would."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from fleet.domain.context import Context
from fleet.domain.slots import SLOT_MS
from fleet.tests.domain import facts
from fleet.tests.domain.harness import Node

ZERO = 480_000 * 240  # slot_zero: the first slot of an hour
BASE = ZERO * SLOT_MS


def instant(time: list[int]) -> int:
    return BASE + time[0] * SLOT_MS + time[1]


def context_of(scenario: dict[str, Any]) -> Context:
    raw = scenario.get("context", {})

    def spans(name: str) -> tuple[tuple[int, int], ...]:
        return tuple((instant(a), instant(b)) for a, b in raw.get(name, []))

    ports = raw.get("ports")
    entitled = raw.get("entitled") or {}
    return Context(
        gpus=raw.get("gpus"),
        ports=None if ports is None else tuple((k, None if v is None else int(v[1:])) for k, v in ports.items()),
        probe_failed=spans("probe_failed"),
        peers_alive=spans("peers_alive") if "peers_alive" in raw else None,
        assigned=tuple((int(str(a["place"]).lstrip("g")), instant(a["at"])) for a in raw.get("assigned", [])),
        entitled_from_ms=instant(entitled["from"]) if entitled.get("from") else None,
        entitled_to_ms=instant(entitled["to"]) if entitled.get("to") else None,
        owns_driver=bool(raw.get("owns_driver")),
        owns_fabric=bool(raw.get("owns_fabric")),
    )


def batches_of(scenario: dict[str, Any]) -> list[list[Any]]:
    """Per delivery its batches of four samples."""
    inputs = scenario["inputs"]
    seqs: dict[str, int] = {}
    deliveries = []
    for delivery in inputs["deliveries"]:
        agent = delivery.get("agent_id", "a1")
        if "seq" in delivery:
            seqs[agent] = delivery["seq"]
        samples = sorted((s for entry in delivery["samples"] for s in _samples(inputs, entry)), key=lambda s: s.real)
        batches = []
        for i in range(0, len(samples), 4):
            part = samples[i : i + 4]
            seqs[agent] = seqs.get(agent, 0) + 1
            batch = facts.Batch(
                tuple(s.interval for s in part),
                agent_id=agent,
                seq=seqs[agent],
                boot_id=delivery.get("boot_id", "b1"),
                boot_at=instant(delivery["boot_at"]) if delivery.get("boot_at") else None,
                last_shutdown=delivery.get("last_shutdown"),
                last_alive=instant(delivery["last_alive"]) if delivery.get("last_alive") else None,
            )
            if inputs.get("boottime"):
                batch.sync = _sync(part[0])
            batches.append(facts.received(batch, part[-1].real + 5_000))
        deliveries.append(batches)
    return deliveries


BOOTED = BASE - 7_200_000  # boottime 0 of scenarios with a boottime


@dataclass
class Sample:
    real: int
    interval: facts.Interval
    entry: dict[str, Any]


def _sync(sample: Sample) -> facts.Sync:
    entry = sample.entry
    real = sample.real - 10_000
    if "sync_slot" in entry:
        real = instant([entry["sync_slot"], 0])
    still = entry.get("sync_stood_still", entry.get("stood_still", 0))
    return facts.Sync(real, real - BOOTED - still)


def _samples(inputs: dict[str, Any], entry: dict[str, Any]) -> list[Sample]:
    first, last = entry["slots"]
    every = entry.get("every")
    out = []
    for slot in range(first, last + 1):
        if every and (slot - first) % every[0] not in every[1]:
            continue
        real = instant([slot, entry.get("ms", 7500)])
        out.append(Sample(real, _interval(inputs, entry, real), entry))
    return out


def _interval(inputs: dict[str, Any], entry: dict[str, Any], real: int) -> facts.Interval:
    sources = {**facts.OK, **entry.get("sources", {})}
    gone = set(entry.get("gone", []))
    count = inputs.get("gpus", 0)
    own = {int(k): v for k, v in entry.get("gpu", {}).items()}
    listed = [facts.gpu(i, **own.get(i, {})) for i in range(count) if i not in gone]
    ports = {int(k): v for k, v in entry.get("port", {}).items()}
    pci = entry.get("pci")
    buses = [facts.gpu(i).pci_bus_id for i in range(count)]
    states = None
    if pci is not None:
        states = {bus: pci["*"] for bus in buses if "*" in pci}
        states.update({buses[int(k)]: v for k, v in pci.items() if k != "*" and int(k) < count})
    still = entry.get("stood_still", 0)
    clock = entry.get("clock")
    interval = facts.Interval(
        ts=real + entry.get("ts_off", 0),
        gpus=tuple(listed) if sources["nvml"] == "ok" else (),
        ib_ports=tuple(facts.port(i, **ports.get(i, {})) for i in range(inputs.get("ports", 0))),
        events=tuple(_event(e) for e in entry.get("events", [])),
        sources=sources,
        pci=states,
        clock=facts.Clock(**clock) if clock else facts.Clock(),
    )
    if inputs.get("boottime"):
        interval.boottime = real - BOOTED - still
        interval.mono = interval.boottime
    return interval


def _event(raw: dict[str, Any]) -> facts.Event:
    values = {k: v for k, v in raw.items() if k in facts.Event.__dataclass_fields__}
    if "at" in values:
        values["at"] = instant(values["at"])
    return facts.Event(**values)


def run(scenario: dict[str, Any]) -> Node:
    """The node after every delivery, each batch a chunk of its own, dirty hours folded again at the end."""
    node = Node(context_of(scenario))
    for delivery in batches_of(scenario):
        for batch in delivery:
            node.deliver([batch])
    node.settle()
    return node


def subject(name: str) -> str:
    return f"p:{name[1:]}" if name.startswith("p") else name
