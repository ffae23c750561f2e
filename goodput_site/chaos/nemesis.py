"""The order in which faults strike: a function of the seed, so that a run can be repeated."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from goodput_site.chaos.faults import ALL, Fault, Scene
from goodput_site.chaos.product import ChaosError

PAUSE_S = (0.3, 1.5)  # between two faults
MORE_TRIES = 3


@dataclass
class Record:
    """What one kind of fault did."""

    id: str
    name: str
    tried: int = 0
    struck: int = 0
    how: str = ""


@dataclass
class Log:
    """What all faults did."""

    records: dict[str, Record] = field(default_factory=dict)
    recovery_s: dict[str, list[float]] = field(default_factory=dict)

    def missing(self) -> list[Record]:
        """Kinds that never really struck: a run with one of these proves less than it says."""
        return [record for record in self.records.values() if not record.struck]

    def as_json(self) -> list[dict[str, Any]]:
        """A line per kind."""
        return [vars(record) for record in sorted(self.records.values(), key=lambda r: (r.id, r.name))]


def schedule(rng: random.Random, faults: tuple[Fault, ...] = ALL) -> list[Fault]:
    """One round: each fault as often as it says, in an order that the dice give."""
    round_ = [fault for fault in faults for _ in range(fault.times)]
    rng.shuffle(round_)
    return round_


def torment(
    scene: Scene, minutes: float, say: Callable[[str], None], faults: tuple[Fault, ...] = ALL, only_once: bool = False
) -> Log:
    """Strikes round after round until the time is up; at least one whole round, and `only_once` no more than it.

    Raises ChaosError when the product does not come back from a fault.
    """
    log = Log({fault.name: Record(fault.id, fault.name) for fault in faults})
    until = time.monotonic() + minutes * 60
    while True:
        for fault in schedule(scene.rng, faults):
            _strike(scene, fault, log, say)
        if only_once or time.monotonic() > until:
            break
    for _ in range(MORE_TRIES):  # for what found nothing to strike
        missing = {record.name for record in log.missing()}
        for fault in faults:
            if fault.name in missing:
                _strike(scene, fault, log, say)
    return log


def _strike(scene: Scene, fault: Fault, log: Log, say: Callable[[str], None]) -> None:
    record = log.records[fault.name]
    record.tried += 1
    began = time.monotonic()
    try:
        strike = fault.strike(scene)
    except ChaosError as error:
        raise ChaosError(f"{fault.id} ({fault.name}): {error}") from None
    record.struck += strike.struck
    record.how = strike.how
    for part, seconds in strike.recovery_s.items():
        log.recovery_s.setdefault(part, []).append(seconds)
    hit = "" if strike.struck else " (did not strike)"
    say(f"{fault.id} {fault.name}: {strike.how}{hit}, {time.monotonic() - began:.1f} s")
    scene.pause(scene.rng.uniform(*PAUSE_S))
