"""What a fault is given and what it says."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from goodput_site.chaos.crews import Crews
from goodput_site.chaos.product import Product
from goodput_site.chaos.proxy import FaultProxy


@dataclass(frozen=True)
class Strike:
    """Whether a fault really struck, in a few words how, and the seconds until what it hit worked again."""

    struck: bool
    how: str = ""
    recovery_s: dict[str, float] = field(default_factory=dict)


@dataclass
class Scene:
    """The product, its agents, the network between them, and the run's dice."""

    product: Product
    crews: Crews
    proxy: FaultProxy
    rng: random.Random
    kills: dict[str, int] = field(default_factory=dict)

    def killed(self, what: str) -> None:
        """Counts a kill."""
        self.kills[what] = self.kills.get(what, 0) + 1

    def acked(self) -> int:
        """Answers 202 that have passed so far."""
        return self.proxy.statuses[202]

    def wait_for_uploads(self) -> None:
        """Until agents get receipts again after whatever struck before, at most 20 s."""
        acked, until = self.acked(), time.monotonic() + 20
        while self.acked() < acked + 5 and time.monotonic() < until:
            self.pause(0.1)

    def pause(self, seconds: float) -> None:
        """Lets time pass with the agents kept up."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            self.crews.keep_up()
            time.sleep(0.1)


@dataclass(frozen=True)
class Fault:
    """One fault: its number, its name, what it does, and how often in a quick run."""

    id: str
    name: str
    strike: Callable[[Scene], Strike]
    times: int = 1
