"""Odd but decodable batches: whatever the contract lets through is folded, and folded the same each time."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Any

import pytest

from fleet.domain.slots import HOUR_MS
from fleet.domain.strips import read_rollups
from fleet.tests.domain import facts
from fleet.tests.domain.harness import Node
from fleet.tests.domain.test_properties import pieces

BASE = 480_000 * HOUR_MS + 55 * 60_000


def odd_interval(rng: Random, ts: int) -> facts.Interval:
    def some(*values: Any) -> Any:
        return rng.choice(values)

    buses = [f"0000:{n:02x}:00.0" for n in range(3)] + [None]
    gpus = tuple(
        facts.Gpu(
            uuid=some("U0", "U1", "U2", "GPU-0f8fad5b-d9cb-469f-a165-70867728950e"),
            pci_bus_id=some(*buses),
            sm_clock=some(None, 0, 990, 10**9),
            sm_clock_max=some(None, 0, 1980),
            throttle_reasons=some(None, 0, 2**64 - 1, 0x48),
            throttle_time=some(None, {}, {"hw_thermal": 2**62}, {"x": 1, "sw_thermal": 100}),
            gpu_utilization=some(None, 0, 100),
            power=some(None, 10**6),
            power_limit=some(None, 0, 10**6),
            recovery_action=some(None, 0, 1, 3, 99),
            row_remap=some(None, facts.RowRemap(failed=True)),
            nvlink_inactive=some(None, 3),
            ecc_uncorrected=some(None, 0, 5),
        )
        for _ in range(rng.randrange(4))
    )
    ports = tuple(
        facts.Port(
            device=some("mlx5_0", "mlx5_1"),
            port=some(1, 2),
            state=some(None, "ACTIVE", "DOWN", "INIT", "Quantum"),
            counters=some(None, {}, {"link_downed": 2**40}),
            guid_hash=some(None, "G0", "ab" * 8),
            phys_state=some(None, "Disabled", "LinkUp"),
            near=some((), ("0000:01:00.0",)),
            is_vf=some(None, True, False),
        )
        for _ in range(rng.randrange(4))
    )
    events = tuple(
        facts.Event(
            kind=some("xid", "sxid", "bus_lost", "gpu_reset", "driver_load", "shutdown", "what"),
            code=some(None, 0, 13, 48, 74, 79, 94, 95, 149, 154, 2**60),
            pci_bus_id=some(*buses),
            at=some(None, 0, ts - 3000, ts + 3000, 2**62),
            mono=some(None, 0, 10**6),
            boot_id=some(None, "b1", "b0"),
            severity=some(None, "fatal", "odd"),
            action=some(None, 0, 1, 7),
            instance=some(None, "1", "x"),
            slices=some(None, 0, 3, 99),
        )
        for _ in range(rng.randrange(3))
    )
    words = ("ok", "absent", "error", "timeout", "blind", "lost", "odd")
    sources = some(None, {}, {k: some(*words) for k in ("nvml", "ib", "kmsg")}, dict(facts.OK))
    boottime = some(None, ts - BASE + 10**6)
    return facts.Interval(
        ts=ts + some(0, 0, 0, 10**7, -(10**7)),
        gpus=gpus,
        ib_ports=ports,
        xids=some((), (facts.Xid(13, None),)),
        events=events,
        mono=some(None, boottime),
        boottime=boottime,
        clock=some(None, facts.Clock(), facts.Clock("unsynchronised", None), facts.Clock("odd", 10**9)),
        sources=sources,
        pci=some(None, {}, {"0000:00:00.0": some("present", "absent", "dead", "odd")}),
    )


def odd_batches(seed: int) -> list[Any]:
    rng = Random(seed)
    out = []
    for number in range(30):
        ts = BASE + number * 60_000
        intervals = sorted((odd_interval(rng, ts + i * 15_000) for i in range(rng.randrange(1, 5))), key=lambda i: i.ts)
        batch = facts.Batch(
            tuple(intervals),
            agent_id=rng.choice([None, "a1", "a1", "a2"]),
            seq=rng.choice([None, number, 0]),
            boot_id=rng.choice([None, "b1", "b1", "b1", "b2"]),
            boot_at=rng.choice([None, BASE - 10**6]),
            last_shutdown=rng.choice([None, "clean", "unclean", "odd"]),
            last_alive=rng.choice([None, 0, ts]),
            sync=rng.choice([None, facts.Sync(ts, ts - BASE + 10**6), facts.Sync(0, 2**60)]),
        )
        out.append(facts.received(batch))
    return out


@pytest.mark.parametrize("seed", range(30))
def test_whatever_is_decodable_is_folded(seed: int) -> None:
    batches = odd_batches(seed)
    node = Node()
    for chunk in pieces(batches, Random(seed)):
        node.deliver(chunk)
    node.settle()
    for raw in node.rows.values():
        for rollup in read_rollups(raw).values():
            assert sum(rollup.seconds.values()) == 3600


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize(("boottime", "agent"), [(True, "a1"), (False, None)])
def test_odd_facts_by_an_honest_clock_give_the_same_bytes_however_they_come(
    seed: int, boottime: bool, agent: str | None
) -> None:
    batches = []
    for number, received in enumerate(odd_batches(seed)):
        intervals = []
        for i, interval in enumerate(received.batch.intervals):
            ts = BASE + number * 60_000 + i * 15_000
            since = ts - BASE + 10**6 if boottime else None
            intervals.append(replace(interval, ts=ts, boottime=since, mono=None, clock=facts.Clock()))
        batch = replace(received.batch, intervals=tuple(intervals), boot_id="b1", sync=None, agent_id=agent)
        batches.append(facts.received(batch))
    found = []
    for chunks in (pieces(batches, Random(seed)), [batches]):
        node = Node()
        for chunk in chunks:
            node.deliver(chunk)
        node.settle()
        found.append((node.rows, node.state))
    assert found[0] == found[1]
