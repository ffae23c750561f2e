"""A process with some of the agents: the agent's own Node, Store, Outbox and Sender on a clock that runs fast.

Only three things differ from `goodput-agent run`: time is stepped from slot to slot and each step takes `tick_s`
instead of 15 s, waits between attempts are shorter in proportion, and a receipt's instant is told to the agent on its
own clock. Every sample and receipt is told to the oracle.
"""

from __future__ import annotations

import json
import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agent import contract, schedule
from agent.clock import Instant
from goodput_site.chaos.oracle import Book, sample_hash

CONTROL_S = 0.05  # how often the control file is looked at


@dataclass(frozen=True)
class Crew:
    """What one process is to do; written as JSON by the command, read by the process."""

    name: str
    org: str
    scenarios: dict[str, str]  # node -> scenario of the simulated source
    cluster: str
    endpoint: str
    token_file: str | None
    folder: str
    control: str  # file with what all processes do now: {"phase": run | drain, "skew_ms": {node: ms}}
    seed: int
    first_slot: int
    began: float  # Unix time at which `first_slot` was
    tick_s: float


class FastClock:
    """The clock of one node: set by the process's loop, frozen for a thread while it handles one answer."""

    def __init__(self, world: Any) -> None:
        self._world = world
        self._local = threading.local()
        self.true_ms = 0
        self.skew_ms = 0  # of the wall clock alone: an operator who sets it wrong

    def freeze(self) -> None:
        """This thread sees one instant until `thaw`."""
        self._local.ms = self.true_ms

    def thaw(self) -> None:
        """This thread sees time go on."""
        self._local.ms = None

    def seen_ms(self) -> int:
        """The true instant, as this thread sees it."""
        return getattr(self._local, "ms", None) or self.true_ms

    def now(self) -> Instant:
        """All clocks of the node."""
        true_ms = self.seen_ms()
        boot_at = self._world.boot_at(true_ms)
        up = true_ms - boot_at
        return Instant(true_ms + self.skew_ms, up, up, self._world.boot_id(boot_at), boot_at, "synchronised", 2)


def shorten_waits(tick_s: float) -> None:
    """Scales the agent's waits as the clock is scaled. Must run before the agent's other modules are imported."""
    scale = tick_s / 15
    for name in ("RETRY_BASE_S", "RETRY_CAP_S", "SLOW_RETRY_S", "RETRY_AFTER_LEAST_S", "RETRY_AFTER_MOST_S"):
        setattr(schedule, name, getattr(schedule, name) * scale)
    vars(contract)["SLOW_RETRY_S"] = schedule.SLOW_RETRY_S  # it took the name when it was imported


def run(crew: Crew) -> int:
    """Samples and sends until the control file says `drain` and everything is delivered, or a signal ends it."""
    shorten_waits(crew.tick_s)
    from agent.build_nodes import Lock
    from agent.identity import private_dir
    from agent.runner import SignalEvent

    folder = private_dir(Path(crew.folder))
    lock = Lock(folder)
    book = Book(sys.stdout.fileno())
    book.write(
        "start", nodes=list(crew.scenarios), scenarios=crew.scenarios, org=crew.org, name=crew.name, pid=os.getpid()
    )
    stop = SignalEvent()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    crewed = [_node(crew, folder, book, name) for name in crew.scenarios]
    slot = _due(crew)
    for clock, _ in crewed:
        clock.true_ms = slot * schedule.SLOT_MS + schedule.CENTRE_MS
    for _, node in crewed:
        node.start()
    told = False
    while not stop.is_set():
        order = _control(crew)
        if order.get("phase") == "drain":
            if not told:
                for clock, node in crewed:
                    node.store.assemble(clock.now().ts)
                    node.sender.not_before = 0.0
                    node.sender.wake()
                told = True
            stop.wait(CONTROL_S)
            continue
        if slot < _due(crew):
            slot = max(
                slot + 1, _due(crew) - 2
            )  # behind by more than a missed slot: leave some out, as a real one does
            for clock, node in crewed:
                clock.true_ms = slot * schedule.SLOT_MS + schedule.CENTRE_MS
                clock.skew_ms = order.get("skew_ms", {}).get(node.node_id, 0)
            for _, node in crewed:
                node.sample()
        else:
            stop.wait(min(CONTROL_S, crew.tick_s / 4))
    for _, node in crewed:
        node.stop()
    lock.close()
    return 0


def _due(crew: Crew) -> int:
    return crew.first_slot + int((time.time() - crew.began) / crew.tick_s)


def _control(crew: Crew) -> dict[str, Any]:
    try:
        found: dict[str, Any] = json.loads(Path(crew.control).read_text())
        return found
    except (OSError, ValueError):
        return {}  # being written


def _node(crew: Crew, folder: Path, book: Book, name: str) -> tuple[FastClock, Any]:
    from agent.build_nodes import token_reader
    from agent.collect.sim import simulated_collectors
    from agent.collect.sim_world import World
    from agent.identity import Signer, private_dir
    from agent.node import Node
    from agent.sender import Sender
    from agent.transport import parse_endpoint

    home = private_dir(folder / name)
    world = World(crew.seed, name, crew.scenarios[name])
    clock = FastClock(world)
    clock.true_ms = _due(crew) * schedule.SLOT_MS + schedule.CENTRE_MS
    store = _told_store(home, book, name)
    transport = _told_transport(parse_endpoint(crew.endpoint), clock, book, name)
    token = token_reader(Path(crew.token_file) if crew.token_file else None)
    sender = Sender(store, clock, transport, token, Signer(home).sign)
    node = Node(crew.cluster, name, clock, simulated_collectors(world), store, sender, simulated=True, shutdown="clean")
    node._delay_ms = int(node._delay_ms * crew.tick_s / 15)
    return clock, node


def _told_store(home: Path, book: Book, name: str) -> Any:
    """The agent's own store, which also tells the oracle of every sample before and after it is kept."""
    from agent.store import Store

    class Told(Store):
        def add_sample(self, interval: dict[str, Any], head: dict[str, Any], memory: dict[str, Any]) -> None:
            if not self.healthy:  # as the store itself does
                interval = {**interval, "sources": {**interval.get("sources", {}), "outbox": "error"}}
            sample = {"node": name, "boot_id": head["boot_id"], "boottime": interval["boottime"]}
            book.write("taking", **sample, boot_at=head["boot_at"], hash=sample_hash(interval))
            super().add_sample(interval, head, memory)
            book.write("kept" if self.healthy else "volatile", **sample)

        def _begin_anew(self, why: str) -> None:
            super()._begin_anew(why)
            book.write("damaged", node=name, **self.resets[-1])

    return Told(home, limit_bytes=64_000_000)


def _told_transport(endpoint: Any, clock: FastClock, book: Book, name: str) -> Any:
    """The agent's own transport, which tells the oracle of receipts, and the agent the instant on its own clock."""
    from agent.transport import Reply, Transport

    class Told(Transport):
        def post(self, body: bytes, headers: Mapping[str, str], path: str | None = None) -> Reply:
            clock.thaw()
            try:
                reply = super().post(body, headers, path)
            finally:
                clock.freeze()
            book.write("answer", status=reply.status)
            receipt = contract._json_map(reply.body) if reply.status in (200, 202, 409) else None
            if receipt is None or contract.parse_rfc3339_ms(receipt.get("received_at")) is None:
                return reply
            book.write("acked", node=name, sha256=receipt["batch_sha256"], seq=receipt.get("seq"))
            receipt["received_at"] = _rfc3339(clock.seen_ms())  # the server's clock is right whatever the node's is
            return Reply(reply.status, reply.headers, json.dumps(receipt).encode())

    return Told(endpoint, deadline_s=10.0)


def _rfc3339(ms: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(ms // 1000)) + f".{ms % 1000:03d}Z"


if __name__ == "__main__":
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(name)s %(message)s")
    sys.exit(run(Crew(**json.loads(Path(sys.argv[1]).read_text()))))
