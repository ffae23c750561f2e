"""Histories of machines in trouble, made from a seed: what delivery in any order must survive."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

from fleet.domain.context import Context
from fleet.domain.receipts import ReceivedBatch
from fleet.tests.domain import facts
from fleet.tests.domain.histories import SERVER_OFFSETS, START

HOUR_MS = 3_600_000

#: What can go wrong, each as likely as its number says (per sample).
TROUBLES = {
    "reboot": 0.02,
    "same_boot_at": 0.0,  # with reboot: boots say that they began at one instant
    "pause": 0.03,  # of seconds to hours, in the middle of a batch as well
    "reinstall": 0.02,  # the agent begins anew: another agent_id, seq from 1; often in the middle of a pause
    "snapshot": 0.02,  # a virtual machine is put back into an earlier state, its boot's clock with it
    "silence": 0.02,
    "late_ntp": 0.0,  # with reboot: the wall clock is wrong by up to decades until it is set
    "late_events": 0.08,  # read up to 7 hours late, of an ended boot too
    "long_batches": 0.0,  # batches that span hours
    "wrong_server": 0.05,  # the server's clock is hours off for a while
    "two_agents": 0.0,
}


@dataclass
class _Boot:
    """A boot while it runs, and the agent in it."""

    number: int
    began_ms: int
    boot_at: int
    agent: str = "a1"
    seq: int = 0
    stood_still_ms: int = 0
    clock_off_ms: int = 0
    shutdown: str | None = None
    sync: facts.Sync | None = None

    def boottime(self, ms: int) -> int:
        return max(1, ms - self.began_ms - self.stood_still_ms)


@dataclass
class _Machine:
    rng: Random
    troubles: frozenset[str]
    boot: _Boot
    gpus: int
    ms: int = START + 7_500
    server_off_ms: int = 0
    pending: list[facts.Interval] = field(default_factory=list)
    batches: list[ReceivedBatch] = field(default_factory=list)
    ended: list[tuple[str, int]] = field(default_factory=list)
    saved: tuple[_Boot, int] | None = None
    boots: int = 1
    agents: int = 1
    is_gone: bool = False

    def comes(self, trouble: str) -> bool:
        return trouble in self.troubles and self.rng.random() < TROUBLES[trouble]

    def flush(self, agent: str = "") -> None:
        boot = self.boot
        if self.pending:
            boot.seq += 1
            name = f"b{boot.number}"
            batch = facts.Batch(
                tuple(self.pending),
                agent_id=agent or boot.agent,
                seq=boot.seq,
                boot_id=name,
                boot_at=boot.boot_at,
                last_shutdown=boot.shutdown,
                sync=boot.sync,
            )
            self.batches.append(facts.received(batch, self.ms + 5_000 + self.server_off_ms))
            if self.rng.random() < 0.85:
                real = self.ms + 2_000
                boot.sync = facts.Sync(real + self.server_off_ms, boot.boottime(real))
        self.pending = []

    def reinstall(self) -> None:
        self.flush() if self.rng.random() < 0.5 else self.pending.clear()
        self.agents += 1
        self.boot = replace(self.boot, agent=f"a{self.agents}", seq=0, sync=None)

    def reboot(self) -> None:
        self.flush()
        self.ended.append((f"b{self.boot.number}", self.ms))
        self.ms += self.rng.randrange(2, 80) * 15_000
        began, self.boots = self.ms - self.rng.choice([10_000, 60_000, 200_000]), self.boots + 1
        boot = replace(self.boot, number=self.boots, began_ms=began, stood_still_ms=0, sync=None, clock_off_ms=0)
        boot.shutdown = self.rng.choice(["clean", "unclean", "unknown"])
        if "late_ntp" in self.troubles and self.rng.random() < 0.6:
            boot.clock_off_ms = self.rng.choice([-40 * 365 * 86_400_000, -3 * HOUR_MS, 2 * HOUR_MS, -60_000])
        if "same_boot_at" not in self.troubles:
            boot.boot_at = began + boot.clock_off_ms
        self.boot = boot

    def pause(self) -> None:
        if self.rng.random() < 0.5:
            self.flush()
        length = self.rng.choice([20_000, 120_000, 2 * HOUR_MS, self.rng.randrange(2, 600) * 15_000])
        self.boot.stood_still_ms, self.ms = self.boot.stood_still_ms + length, self.ms + length
        if "reinstall" in self.troubles and self.rng.random() < 0.5:
            self.reinstall()

    def snapshot(self) -> None:
        if self.saved is None or self.rng.random() < 0.5:
            self.saved = (replace(self.boot), self.ms)
            return
        self.flush() if self.rng.random() < 0.5 else self.pending.clear()
        self.ended.append((f"b{self.boot.number}", self.ms))
        self.ms += self.rng.randrange(1, 40) * 15_000
        boot, at = self.saved
        self.boot = replace(boot, stood_still_ms=boot.stood_still_ms + self.ms - at)

    def events(self) -> tuple[facts.Event, ...]:
        if not self.comes("late_events"):
            return ()
        rng, bus = self.rng, facts.gpu(0).pci_bus_id
        code, ago = rng.choice([31, 48, 79, 94, 95, 119, 154]), rng.choice([0, 10_000, HOUR_MS, 6 * HOUR_MS])
        self.is_gone = self.is_gone or (code == 79 and rng.random() < 0.5)
        more: dict[str, Any] = {"at": self.ms - ago}
        if self.ended and rng.random() < 0.4:
            boot, at = rng.choice(self.ended)
            more = {"at": at - ago, "boot_id": boot}
        elif rng.random() < 0.4:
            more = {"at": self.ms, "mono": max(0, self.boot.boottime(self.ms) - ago), "boot_id": f"b{self.boot.number}"}
        return (facts.Event(code=code, pci_bus_id=bus, action=1 if code == 154 else None, **more),)

    def sample(self) -> None:
        boot, real = self.boot, self.ms + self.rng.randrange(-500, 500)
        if boot.clock_off_ms and self.rng.random() < 0.1:
            boot.clock_off_ms = 0
        self.pending.append(
            facts.Interval(
                ts=real + boot.clock_off_ms,
                gpus=tuple(facts.gpu(i) for i in range(self.is_gone, self.gpus)),
                pci={facts.gpu(0).pci_bus_id: "absent"} if self.is_gone else None,
                events=self.events(),
                sources=dict(facts.OK),
                boottime=boot.boottime(real),
                mono=boot.boottime(real),
                clock=facts.Clock("unsynchronised", None) if boot.clock_off_ms else facts.Clock("synchronised", 5),
            )
        )
        if "two_agents" in self.troubles and self.rng.random() < 0.1:
            keep, self.pending = self.pending, [self.pending[-1]]
            self.flush("z9")
            self.pending = keep


def make(seed: int, *troubles: str) -> tuple[list[ReceivedBatch], Context]:
    """The batches of a machine with these troubles in the order in which it sent them, and what is known of it."""
    rng = Random(seed)
    gpus, began = rng.choice([1, 2]), START - rng.randrange(10**5, 10**8)
    context = Context(gpus=gpus if rng.random() < 0.5 else None, ports=())
    machine = _Machine(rng, frozenset(troubles), _Boot(1, began, began), gpus)
    step, size = rng.choice([15_000, 15_000, 60_000, 300_000]), 30 if "long_batches" in troubles else 4
    for _ in range(rng.choice([40, 80, 160])):
        if machine.comes("wrong_server"):
            machine.server_off_ms = rng.choice(SERVER_OFFSETS[2])
        if machine.comes("silence"):
            machine.flush()
            machine.ms += rng.randrange(1, 400) * 15_000
        for trouble in ("reboot", "pause", "reinstall", "snapshot"):
            if machine.comes(trouble):
                getattr(machine, trouble)()
        machine.is_gone = machine.is_gone and rng.random() < 0.95
        if rng.random() < 0.95:
            machine.sample()
        machine.ms += step
        if len(machine.pending) >= size or rng.random() < 0.03:
            machine.flush()
    machine.flush()
    return machine.batches, context
