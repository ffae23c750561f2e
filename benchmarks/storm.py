"""After a long outage: nodes come back with a backlog, through the agent's own outbox and sender, and go on reporting.

A tenth of 500 nodes with a tenth of ten hours: 50 outboxes of 60 batches each, while each node makes a new batch every
6 s, which is the live rate of 500 nodes. Another org sends five batches a second before and during it. Three times in
each round: first come, first served; with a thread kept free of each org, as always; and with a quota for the org that
comes back, too.
"""

from __future__ import annotations

import json
import os
import random
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from agent import wire
from agent.clock import SystemClock
from agent.sender import Sender
from agent.store import Store
from agent.transport import Transport, parse_endpoint
from benchmarks.common import batch, cpu_of, decode_us, repeat, show
from benchmarks.fleet_rows import start
from benchmarks.web import postmaster, web, workers

NODES, BACKLOG, LIVE_EVERY_S, CALM_S = 50, 60, 6.0, 8
OTHERS_PER_S = 5
QUOTA = 100  # batches a second of the org that comes back, in the last third of a round
OUTAGE_MS = 10 * 3_600_000
SENT = 1  # state of agent/outbox_room.py
KINDS: dict[str, tuple[str, dict[str, str]]] = {
    # a share that none of the four threads is outside of
    "free": ("no share, no quota", {"GOODPUT_WEB_THREADS": "1000"}),
    "share": ("a thread left free", {}),
    "quota": (f"the same, quota of {QUOTA} batches a second", {"GOODPUT_QUOTA_ORG": f"{QUOTA},0"}),
}


def run(rounds: int) -> dict[str, Any]:
    """Measure and print; the figures."""
    start()
    from orgs.models import Org
    from orgs.services import create_org, issue_key

    database = postmaster()
    orgs = [Org.objects.get(slug="local"), create_org("bench-other", "Another customer (simulated)")]
    tokens = [issue_key(org, "bench", ["ingest"], actor="bench")[1] for org in orgs]
    with workers():
        figures = repeat(rounds, lambda number: _round(number, tokens, database), "decode_us")
    rows = []
    for kind, (words, _) in KINDS.items():
        rows += [
            (f"{kind}_drain_s", f"{words}: s until the backlog is gone"),
            (f"{kind}_rate", "  batches a second meanwhile"),
            (f"{kind}_500", "  500 nodes after ten hours at this rate, min (600 N / (rate - N / 60))"),
            (f"{kind}_live_p99_s", "  p99 of a live batch from made to receipt, s"),
            (f"{kind}_calm_p99_ms", "  another org's p99 before it, ms"),
            (f"{kind}_other_p99_ms", "  another org's p99 during it, ms"),
            (f"{kind}_us", "  CPU of web and PostgreSQL per batch, µs"),
        ]
    rows += [("decode_us", "calibrator: typed decode per batch, µs"), ("load", "load average during it")]
    show(f"storm: {NODES} nodes come back with {BACKLOG} batches each", figures, rows)
    return figures


def _round(number: int, tokens: list[str], database: int) -> dict[str, float]:
    from fleet.decode import gunzip

    rng = random.Random(number)
    first_ms = int(time.time()) // 60 * 60_000 - OUTAGE_MS
    out: dict[str, float] = {}
    for kind, (_, env) in KINDS.items():
        made = [
            [batch(f"{kind}-{number}-{node:02d}", minute, rng, first_ms) for minute in range(BACKLOG)]
            for node in range(NODES)
        ]
        if not out:
            out["decode_us"] = decode_us([gunzip(wire.pack(one)[0]) for one in made[0]])
        with _outboxes(made) as stores, web(**env) as (port, pid):
            found = _storm(stores, port, pid, database, tokens, number)
        out.update({f"{kind}_{name}": value for name, value in found.items()})
    out["load"] = os.getloadavg()[0]
    return out


@contextmanager
def _outboxes(made: list[list[dict[str, Any]]]) -> Iterator[list[Store]]:
    """Stores that hold these batches since the outage, in memory: the nodes' disks are not what is measured."""
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as folder:
        stores = []
        for at, batches in enumerate(made):
            home = Path(folder) / str(at)
            home.mkdir(mode=0o700)
            store = Store(home)
            for one in batches:
                _keep(store, one, one["intervals"][0]["ts"])
            stores.append(store)
        try:
            yield stores
        finally:
            for store in stores:
                store.close()


def _keep(store: Store, one: dict[str, Any], now_ms: int) -> None:
    """Commit a batch's samples as an agent does, and make a batch of them."""
    mine = ("intervals", "schema_version", "agent_id", "seq", "sync")
    head = {key: value for key, value in one.items() if key not in mine}
    for interval in one["intervals"]:
        store.add_sample(interval, head, {})
    store.assemble(now_ms)


def _storm(
    stores: list[Store], port: int, web_pid: int, database: int, tokens: list[str], number: int
) -> dict[str, float]:
    words = [str(port), tokens[1], str(OTHERS_PER_S), str(number)]
    other = subprocess.Popen(
        [sys.executable, "-m", "benchmarks.steady", *words], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    time.sleep(CALM_S)
    clock = SystemClock()
    began_ms, began = clock.now().ts, time.time()
    before = cpu_of(web_pid) + cpu_of(database)
    endpoint = parse_endpoint(f"http://127.0.0.1:{port}/v1/batches")
    senders = [Sender(store, clock, Transport(endpoint), lambda: tokens[0]) for store in stores]
    threads = [threading.Thread(target=sender.run) for sender in senders]
    for thread in threads:
        thread.start()
    rng = random.Random(number)
    due = [began + LIVE_EVERY_S * at / len(stores) for at in range(len(stores))]
    minute = BACKLOG
    while _waiting(stores, began_ms):
        for at, store in enumerate(stores):
            if due[at] <= time.time():
                due[at] += LIVE_EVERY_S
                _keep(store, batch(f"live-{number}-{at:02d}", minute, rng, began_ms), clock.now().ts)
                senders[at].wake()
        minute += 1
        time.sleep(0.1)
    drain_s = time.time() - began
    latencies = json.loads(other.communicate()[0])
    for sender in senders:
        sender.stop()
    for thread in threads:
        thread.join()
    sent = _sent(stores)
    spent = cpu_of(web_pid) + cpu_of(database) - before
    live = sorted((changed - made) / 1000 for made, changed in sent if made >= began_ms)
    calm = sorted(seconds for at, seconds in latencies if at < began)
    storm = sorted(seconds for at, seconds in latencies if began <= at <= began + drain_s)
    rate = len(sent) / drain_s
    return {
        "drain_s": drain_s,
        "rate": rate,
        "500": 600 * 500 / max(0.1, rate - 500 / 60) / 60,
        "live_p99_s": live[int(len(live) * 0.99)],
        "calm_p99_ms": calm[int(len(calm) * 0.99)] * 1000,
        "other_p99_ms": storm[int(len(storm) * 0.99)] * 1000,
        "us": spent / len(sent) * 1e6,
    }


def _rows(store: Store, statement: str, *values: int) -> list[tuple[int, ...]]:
    reader = sqlite3.connect(f"file:{store.path}?mode=ro", uri=True, timeout=30)
    try:
        return reader.execute(statement, values).fetchall()
    finally:
        reader.close()


def _waiting(stores: list[Store], began_ms: int) -> bool:
    return any(_rows(s, "SELECT 1 FROM batches WHERE state<>? AND made_at<? LIMIT 1", SENT, began_ms) for s in stores)


def _sent(stores: list[Store]) -> list[tuple[int, ...]]:
    """(made, receipted), in ms, of every batch that has its receipt."""
    return [
        row for store in stores for row in _rows(store, "SELECT made_at, changed_at FROM batches WHERE state=?", SENT)
    ]
