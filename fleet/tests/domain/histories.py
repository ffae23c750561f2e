"""Believable and unbelievable histories of a node, made from a seed: what properties must hold for."""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random
from typing import Any

from fleet.domain.context import Context
from fleet.domain.receipts import ReceivedBatch
from fleet.tests.domain import facts

START = 480_000 * 3_600_000 + 50 * 60_000  # ten minutes before the end of an hour

#: By how much a server's clock is wrong, ms, by how wild a history is.
SERVER_OFFSETS = {
    1: [0, 0, 1_500_000, 30_000],
    2: [0, 0, 1_500_000, 30_000, 3_600_000, -3_600_000, 7_300_000, -5_000_000],
}


@dataclass
class History:
    batches: list[ReceivedBatch] = field(default_factory=list)
    context: Context = field(default_factory=Context)
    end_ms: int = 0


def make(
    seed: int,
    slots: int = 160,
    gpus: int = 3,
    nports: int = 2,
    quiet: bool = False,
    wild: bool | int = False,
    several: bool = False,
) -> History:
    """A history of `slots` slots: jitter, drift, missed samples, blind sources, faults, reboots, pauses, two agents.

    `wild`: the server's clock is set wrong for a while, and the machine's with it or by itself; 2: by hours, both ways.
    `several`: two installations report in turn even then.
    """
    rng = Random(seed)
    history = History()
    boottimes = rng.random() < 0.7
    declared = rng.random() < 0.5
    history.context = Context(
        gpus=gpus if declared else None,
        ports=tuple((f"G{i}", i if i < gpus and rng.random() < 0.7 else None) for i in range(nports))
        if rng.random() < 0.9
        else None,
        peers_alive=((START, START + 10**8),) if rng.random() < 0.3 else None,
        probe_failed=((START + 300_000, START + 600_000),) if rng.random() < 0.3 else (),
    )
    boot, boot_ms, seq = 1, START - rng.randrange(10**5, 10**8), {"a1": 0, "a2": 0}
    still = 0  # ms for which the machine stood still in this boot
    log_blind, parked = rng.random() < 0.15, rng.random() < 0.3
    nports = nports if quiet or rng.random() < 0.9 else 0
    offset, step, server = rng.randrange(-40, 40), 0, 0
    faulty: dict[int, dict[str, Any]] = {}
    gone: dict[int, str] = {}
    down: set[int] = set()
    sync: facts.Sync | None = None
    pending: list[facts.Interval] = []
    ms = START + 7_500
    shutdown = last_alive = None

    def flush(agent: str = "a1") -> None:
        nonlocal sync, pending
        if not pending:
            return
        seq[agent] += 1
        batch = facts.Batch(
            tuple(pending),
            agent_id=agent,
            seq=seq[agent],
            boot_id=f"b{boot}",
            boot_at=boot_ms,
            last_shutdown=shutdown,
            last_alive=last_alive,
            sync=sync if boottimes else None,
        )
        history.batches.append(facts.received(batch, ms + 5_000 + server))
        if boottimes and rng.random() < 0.9:
            real = ms + 2_000
            sync = facts.Sync(real + server, real - boot_ms - still)
        pending = []

    for _ in range(slots):
        if wild and rng.random() < 0.04:
            server = rng.choice(SERVER_OFFSETS[int(wild)])
            step = rng.choice([step, server, 0])
        if not quiet:
            roll = rng.random()
            if roll < 0.01:
                flush()
                ms += rng.randrange(1, 60) * 15_000  # silence
            elif roll < 0.015:
                flush()
                shutdown = rng.choice(["clean", "unclean", "unknown"])
                last_alive = ms + rng.randrange(0, 60_000) if rng.random() < 0.5 else None
                ms += rng.randrange(4, 80) * 15_000
                boot, boot_ms, still, sync, step = boot + 1, ms - 60_000, 0, None, 0
                faulty.clear()
                gone = {} if rng.random() < 0.8 else gone
            elif roll < 0.02 and boottimes and sync is not None:
                flush()
                jump = rng.randrange(2, 60) * 15_000
                still, ms = still + jump, ms + jump
            elif roll < 0.025 and boottimes and sync is not None:
                step = rng.choice([0, 3_600_000, -3_600_000, 20_000, -20_000])
        events: list[facts.Event] = []
        if not quiet:
            g = rng.randrange(gpus)
            roll = rng.random()
            bus = facts.gpu(g).pci_bus_id
            at = ms - rng.randrange(0, 14_000)
            if roll < 0.03:
                code = rng.choice([13, 31, 43, 48, 62, 74, 79, 94, 95, 109, 119, 149, 154, 9999])
                events.append(
                    facts.Event(
                        code=code,
                        pci_bus_id=bus,
                        at=at,
                        action=rng.choice([0, 1, 2]) if code == 154 else None,
                        severity=rng.choice([None, "fatal", "nonfatal"]),
                        instance=1 if rng.random() < 0.1 else None,
                        slices=rng.choice([None, 3]),
                    )
                )
                if code == 79 and rng.random() < 0.7:
                    gone[g] = rng.choice(["dead", "absent", "none"])
            elif roll < 0.04:
                kind = rng.choice(["gpu_reset", "driver_unload", "driver_load"])
                events.append(facts.Event(kind, pci_bus_id=bus if kind == "gpu_reset" else None, at=at))
            elif roll < 0.06:
                faulty[g] = rng.choice(
                    [
                        {"recovery_action": rng.choice([0, 1, 2, 3, 4])},
                        {"throttle_time": {"hw_thermal": rng.randrange(0, 15_001)}, "sm_clock": 990},
                        {"throttle_reasons": 0x48, "sm_clock": 1200},
                        {"gpu_utilization": 90, "power": 600_000},
                        {"row_remap": facts.RowRemap(failed=True)},
                        {"pcie_width": rng.choice([4, 8]), "gpu_utilization": rng.choice([0, 90])},
                        {"nvlink_inactive": rng.choice([0, 2, 18])},
                    ]
                )
            elif roll < 0.10:
                faulty.pop(g, None)
                gone.pop(g, None)
            elif roll < 0.12:
                gone[g] = rng.choice(["dead", "absent", "present", "none"])
            elif roll < 0.13:
                down ^= {rng.randrange(nports)} if nports else set()
        missed = rng.random() < (0.01 if quiet else 0.05)
        if not missed:
            sources = dict(facts.OK)
            if log_blind and not quiet:
                sources["kmsg"] = "absent"
            if not nports:
                sources["ib"] = "absent"
            if not quiet and rng.random() < 0.03:
                sources[rng.choice(["nvml", "ib", "kmsg"])] = rng.choice(["error", "timeout", "blind"])
            jitter = rng.randrange(-900, 900)
            real = ms + jitter
            interval = facts.Interval(
                ts=real + offset + step + rng.randrange(-20, 20),
                gpus=tuple(facts.gpu(i, **faulty.get(i, {})) for i in range(gpus) if i not in gone)
                if sources["nvml"] == "ok"
                else (),
                ib_ports=tuple(
                    facts.port(
                        i,
                        state="DOWN" if i in down else "ACTIVE",
                        counters={"link_downed": 1} if not quiet and rng.random() < 0.005 else {},
                    )
                    for i in range(nports)
                )
                + ((facts.port(9, state="DOWN"),) if parked and nports else ()),
                events=tuple(events),
                sources=sources,
                pci={facts.gpu(i).pci_bus_id: s for i, s in gone.items() if s != "none"} if gone else None,
                boottime=real - boot_ms - still if boottimes else None,
                mono=real - boot_ms - still if boottimes else None,
            )
            pending.append(interval)
            if not quiet and (not wild or several) and rng.random() < 0.01:
                keep, pending = pending, [interval]
                flush("a2")
                pending = keep
        ms += 15_000
        if len(pending) == 4 or (pending and rng.random() < 0.02):
            flush()
    flush()
    history.end_ms = ms
    return history
