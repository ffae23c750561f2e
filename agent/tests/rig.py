"""A simulated node in accelerated time with a real outbox, sender and HTTP, for tests."""

from __future__ import annotations

import random

from agent.collect.sim import SimClock, simulated_collectors
from agent.collect.sim_world import World
from agent.node import Node
from agent.schedule import next_centre
from agent.sender import Sender
from agent.store import Store
from agent.transport import Transport, parse_endpoint

START_MS = 1_796_000_400_000  # a full hour


class Rig:
    """One node; `advance` moves its wall clock from slot centre to slot centre."""

    def __init__(self, directory, url, scenario="healthy", start_ms=START_MS, limit_bytes=500_000_000, **sender):
        self.now_ms = start_ms
        directory.mkdir(parents=True, exist_ok=True)
        world = World(1, "node-1", scenario)
        self.clock = SimClock(world, lambda: self.now_ms)
        self.store = Store(directory, limit_bytes)
        self.sender = Sender(self.store, self.clock, Transport(parse_endpoint(url)), rng=random.Random(1), **sender)
        self.node = Node("demo", "node-1", self.clock, simulated_collectors(world), self.store, self.sender, True)

    def sample(self):
        """One sample at the next slot centre."""
        self.now_ms = next_centre(self.now_ms)
        self.node.sample()

    def minute(self):
        """Four samples."""
        for _ in range(4):
            self.sample()

    def drain(self, most=10_000):
        """Sends until nothing waits or the server refuses; the number of steps that made progress."""
        for done in range(most):
            if self.sender.step() != 0:
                return done
        return most

    def close(self):
        self.node.stop()
