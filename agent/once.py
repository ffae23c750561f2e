"""`once`: one sample, printed or sent."""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import Any, Sequence

from agent import wire
from agent.bounds import bounded
from agent.build_nodes import build
from agent.config import Settings
from agent.node import Node

_TRIES = 3


def one_batch(node: Node) -> dict[str, Any]:
    """A batch of one sample taken now, as it would be sent, in the wire's order of keys."""
    at = node.clock.now()
    readings = node.read(at)
    batch = bounded(node.head(at, readings), "BATCH")
    interval = bounded(node.interval(at, readings), "INTERVAL")
    batch.update({"schema_version": wire.SCHEMA_VERSION, "intervals": [interval]})
    return wire.ordered(batch)


def print_batch(settings: Settings) -> int:
    """Prints one batch per node as JSON; touches no outbox, sends nothing."""
    with tempfile.TemporaryDirectory(prefix="goodput-once-") as directory:
        nodes, lock = build(settings._replace(state_dir=Path(directory)), sending=False)
        for node in nodes:
            print(json.dumps(one_batch(node), indent=2))
            node.stop()
        lock.close()
    return 0


def send_now(nodes: Sequence[Node]) -> int:
    """Samples every node once and tries to deliver what waits; 0 if all was receipted."""
    missed = 0
    for node in nodes:
        node.sample()
        node.store.assemble(node.clock.now().ts)
        for _attempt in range(_TRIES):
            while node.sender is not None and node.sender.step() == 0:
                pass
            if node.store.outbox.queued_count() == 0:
                break
        left = node.store.outbox.queued_count()
        if left:
            error = node.sender.last_error if node.sender else "no sender"
            print(f"{node.node_id}: {left} batch(es) wait in the outbox: {error}", file=sys.stderr)
        missed += left
        node.stop()
    return 1 if missed else 0
