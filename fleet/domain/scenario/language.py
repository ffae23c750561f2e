"""The scenario language: what a file may hold, and the batches and the context that it stands for.

A time is `[slot, ms]`, counted from the scenario's first slot. Every key that the language does not know is refused
with the way to it, so that a misspelt fault is not a healthy node.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fleet.domain.context import Context, merged
from fleet.domain.receipts import ReceivedBatch
from fleet.domain.scenario import made
from fleet.domain.scenario.checking import Json, ScenarioError, as_map, check
from fleet.domain.slots import SLOT_MS

ZERO = 480_000 * 240  # the first slot where the scenario names none: that of an hour
SENT_MS = 5_000  # a batch is received this long after its last sample
RECEIPT_MS = 10_000  # the newest receipt came this long before the batch's first sample
UP_MS = 7_200_000  # boottime at the first slot, of a boot whose beginning is not said


def read(text: str) -> list[Json]:
    """The scenarios of a file: a JSON array of them, or one. Raises ScenarioError."""
    try:
        found = json.loads(text, object_pairs_hook=_once)
    except (ValueError, RecursionError) as error:
        raise ScenarioError(f"not JSON: {error}") from error
    many = found if isinstance(found, list) else [found]
    for number, one in enumerate(many):
        as_map(one, f"scenario {number + 1}")
        check(one)
    return many


def _once(pairs: list[tuple[str, Any]]) -> Json:
    found = dict(pairs)
    if len(found) < len(pairs):
        twice = next(key for i, (key, _) in enumerate(pairs) if key in dict(pairs[:i]))
        raise ValueError(f"the key {twice!r} is there twice in one map")
    return found


# -- what it stands for -------------------------------------------------------------------------------------------


class Told:
    """A scenario as the fold takes it: times in ms, batches per delivery, the context."""

    def __init__(self, scenario: Json) -> None:
        check(scenario)
        self.scenario = scenario
        self.inputs = _said(scenario["inputs"])
        self.zero = int(ZERO if scenario.get("slot_zero") is None else scenario["slot_zero"])
        self.base = self.zero * SLOT_MS

    def instant(self, time: list[int]) -> int:
        """ms since 1970 UTC of `[slot, ms]`."""
        return self.base + time[0] * SLOT_MS + time[1]

    def context(self) -> Context:
        """The dated facts that no batch says."""
        raw = self.scenario.get("context") or {}

        def spans(name: str) -> tuple[tuple[int, int], ...]:
            return merged((self.instant(a), self.instant(b)) for a, b in raw.get(name) or [])

        ports, entitled = raw.get("ports"), raw.get("entitled") or {}
        return Context(
            gpus=raw.get("gpus"),
            ports=None if ports is None else tuple((k, None if v is None else _index(v)) for k, v in ports.items()),
            probe_failed=spans("probe_failed"),
            peers_alive=spans("peers_alive") if raw.get("peers_alive") is not None else None,
            assigned=tuple((_index(a["place"]), self.instant(a["at"])) for a in raw.get("assigned") or []),
            entitled_from_ms=self.instant(entitled["from"]) if entitled.get("from") else None,
            entitled_to_ms=self.instant(entitled["to"]) if entitled.get("to") else None,
            owns_driver=bool(raw.get("owns_driver")),
            owns_fabric=bool(raw.get("owns_fabric")),
        )

    def deliveries(self) -> list[list[ReceivedBatch]]:
        """Per delivery its batches of four samples."""
        seqs: dict[str, int] = {}
        out = []
        for delivery in map(_said, self.inputs["deliveries"]):
            agent = delivery.get("agent_id", "a1")
            if "seq" in delivery:
                seqs[agent] = delivery["seq"]
            boot_at = self.instant(delivery["boot_at"]) if delivery.get("boot_at") else None
            began = boot_at if boot_at is not None else self.base - UP_MS
            samples = [s for entry in delivery["samples"] for s in self._samples(_said(entry), began)]
            samples.sort(key=lambda sample: sample.real)
            batches = []
            for i in range(0, len(samples), 4):
                part = samples[i : i + 4]
                seqs[agent] = seqs.get(agent, 0) + 1
                batch = made.Batch(
                    tuple(sample.interval for sample in part),
                    agent_id=agent,
                    seq=seqs[agent],
                    boot_id=delivery.get("boot_id", "b1"),
                    boot_at=boot_at,
                    last_shutdown=delivery.get("last_shutdown"),
                    last_alive=self.instant(delivery["last_alive"]) if delivery.get("last_alive") else None,
                    hw_id=delivery.get("hw_id"),
                    driver_version=delivery.get("driver_version"),
                )
                if self.inputs.get("boottime"):
                    batch.sync = self._sync(part[0], began)
                at = self.instant(delivery["received_at"]) if delivery.get("received_at") else part[-1].real + SENT_MS
                batches.append(made.received(batch, at))
            out.append(batches)
        return out

    def _sync(self, sample: _Sample, began: int) -> made.Sync:
        entry = sample.entry
        real = sample.real - RECEIPT_MS
        if "sync_slot" in entry:
            at = entry["sync_slot"]
            real = self.instant(at if isinstance(at, list) else [at, 0])
        still: int = entry["sync_stood_still"] if "sync_stood_still" in entry else entry.get("stood_still", 0)
        return made.Sync(real, real - began - still)

    def _samples(self, entry: Json, began: int) -> list[_Sample]:
        first, last = entry["slots"]
        every = entry.get("every")
        out = []
        for slot in range(first, last + 1):
            if every and (slot - first) % every[0] not in every[1]:
                continue
            real = self.instant([slot, entry.get("ms", SLOT_MS // 2)])
            out.append(_Sample(real, self._interval(entry, real, began), entry))
        return out

    def _interval(self, entry: Json, real: int, began: int) -> made.Interval:
        sources = {**made.OK, **(entry.get("sources") or {})}
        gone = {int(i) for i in entry.get("gone") or []}
        count = self.inputs.get("gpus", 0)
        own = {int(k): v for k, v in (entry.get("gpu") or {}).items()}
        ports = {int(k): v for k, v in (entry.get("port") or {}).items()}
        names = {"name": self.inputs["names"]} if self.inputs.get("names") else {}
        listed = [self._gpu(i, {**names, **own.get(i, {})}) for i in range(max([count, *(i + 1 for i in own)]))]
        near = self.inputs.get("near")
        seen = [self._port(i, {**_near(near, i), **ports.get(i, {})}) for i in range(self.inputs.get("ports", 0))]
        clock = entry.get("clock")
        interval = made.Interval(
            ts=real + entry.get("ts_off", 0),
            gpus=tuple(g for i, g in enumerate(listed) if i not in gone) if sources.get("nvml") == "ok" else (),
            ib_ports=tuple(seen),
            events=tuple(self._event(event) for event in entry.get("events") or []),
            xids=tuple(made.Xid(**xid) for xid in entry.get("xids") or []),
            sources=sources,
            pci=_pci(entry.get("pci"), [made.gpu(i).pci_bus_id for i in range(count)]),
            clock=made.Clock(clock.get("status", "synchronised"), clock.get("error_ms")) if clock else made.Clock(),
            nvml_error=entry.get("nvml_error"),
            net=entry.get("net"),
        )
        if self.inputs.get("boottime"):
            interval.mono = interval.boottime = real - began - int(entry.get("stood_still", 0))
        return interval

    def _gpu(self, index: int, keys: Json) -> made.Gpu:
        values = dict(keys)
        for key, kind in (("row_remap", made.RowRemap), ("fabric", made.Fabric)):
            if isinstance(values.get(key), dict):
                values[key] = kind(**values[key])
        return made.gpu(index, **values)

    def _port(self, index: int, keys: Json) -> made.Port:
        return made.port(index, **{k: tuple(v) if isinstance(v, list) else v for k, v in keys.items()})

    def _event(self, raw: Json) -> made.Event:
        values = {k: v for k, v in raw.items() if k in made.Event.__dataclass_fields__}
        if values.get("at") is not None:
            values["at"] = self.instant(values["at"])
        return made.Event(**values)


@dataclass
class _Sample:
    real: int
    interval: made.Interval
    entry: Json


def _said(values: Json) -> Json:
    """The keys that are not null: null is as if the key were not there."""
    return {key: value for key, value in values.items() if value is not None}


def _index(place: str | int) -> int:
    """A place: 3 or `g3`."""
    return int(str(place).lstrip("g"))


def _near(near: Any, port: int) -> Json:
    """The GPUs near a port: `inputs.near` maps a port's index to those of GPUs."""
    if not isinstance(near, Mapping) or str(port) not in near:
        return {}
    return {"near": tuple(made.gpu(i).pci_bus_id for i in near[str(port)])}


def _pci(raw: Json | None, buses: list[str]) -> dict[str, str] | None:
    if raw is None:
        return None
    states = {bus: raw["*"] for bus in buses if "*" in raw}
    states.update({made.gpu(int(k)).pci_bus_id: v for k, v in raw.items() if k != "*"})
    return states
