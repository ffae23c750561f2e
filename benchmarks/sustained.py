"""From HTTP to the rollup at a steady rate: a web process, a worker and beat, fed on a timetable whatever the answers.

A latency counts from the instant at which the batch was due, so a server that falls behind can't hide it. The lag of
the fold is the age of the oldest batch that waits, asked twice a second. At a quarter of the goal's rate, which a
machine with other work on it keeps up with, and at the goal's. A rate that is not kept up with shows as fewer batches a
second than were sent and as a latency that grows; the CPU per batch says what the whole rate takes in any case.
"""

from __future__ import annotations

import http.client
import os
import random
import statistics
import threading
import time
from queue import Empty, SimpleQueue
from typing import Any

from agent import wire
from benchmarks.common import batch, cpu_of, decode_us, repeat, show
from benchmarks.fleet_rows import start
from benchmarks.web import postmaster, web, workers

GOAL = 400  # batches a second
RATES, SECONDS, THREADS = (100, GOAL), 20, 8
NODES = 400
HEADERS = {"Content-Type": "application/msgpack", "Content-Encoding": "gzip"}


def run(rounds: int) -> dict[str, Any]:
    """Measure and print; the figures."""
    org = start()
    database = postmaster()
    with web() as (port, pid), workers() as worker_pids:
        figures = repeat(rounds, lambda number: _both(org, number, port, pid, worker_pids, database), "decode_us")
    rows = []
    for rate in RATES:
        rows += [
            (f"{rate}_batches_s", f"{rate} a second sent: batches per second that were taken"),
            (f"{rate}_p50_ms", "  p50 from the due instant to the receipt, ms"),
            (f"{rate}_p99_ms", "  p99, ms (goal ≤ 250)"),
            (f"{rate}_lag_s", "  greatest lag of the fold, s (goal ≤ 10)"),
            (f"{rate}_web_us", "  CPU of the web process per batch, µs"),
            (f"{rate}_worker_us", "  CPU of worker and beat per batch, µs"),
            (f"{rate}_pg_us", "  CPU of PostgreSQL per batch, µs"),
            (f"{rate}_ratio", "  the whole / typed decode"),
            (f"{rate}_cores", f"  cores that {GOAL} batches a second take (goal ≤ 2)"),
        ]
    rows += [
        ("decode_us", "calibrator: typed decode per batch, µs"),
        ("load", "processes that wanted a core (load average) during it"),
    ]
    show(f"sustained: {SECONDS} s, HTTP to rollup", figures, rows)
    return figures


_began = time.time()
_minute = 0  # of the nodes' time, behind what was sent already


def load_of(number: int, count: int) -> list[bytes]:
    """Bodies of NODES nodes, minute after minute, from where the load before ended."""
    global _minute
    rng = random.Random(number)
    first_ms = (int(_began) // 3600 - 4) * 3_600_000
    first, _minute = _minute, _minute + count // NODES
    return [
        wire.pack(batch(f"node-{node:04d}", minute, rng, first_ms))[0]
        for minute in range(first, _minute)
        for node in range(NODES)
    ]


def _both(org: Any, number: int, port: int, web_pid: int, worker_pids: list[int], database: int) -> dict[str, float]:
    found: dict[str, float] = {}
    for rate in RATES:
        one = _round(org, number, rate, port, web_pid, worker_pids, database)
        found["decode_us"] = one.pop("decode_us")
        found |= {f"{rate}_{name}": value for name, value in one.items()}
    return {**found, "load": os.getloadavg()[0]}


def _round(
    org: Any, number: int, rate: int, port: int, web_pid: int, worker_pids: list[int], database: int
) -> dict[str, float]:
    from fleet.decode import gunzip
    from fleet.selectors_waiting import oldest_waiting

    load = load_of(number, rate * SECONDS)
    decoded = decode_us([gunzip(body) for body in load[:200]])
    before = cpu_of(web_pid), sum(map(cpu_of, worker_pids)), cpu_of(database)
    due: SimpleQueue[tuple[float, bytes]] = SimpleQueue()
    begin = time.perf_counter() + 0.5
    for at, body in enumerate(load):
        due.put((begin + at / rate, body))
    latencies: list[float] = []
    ended: list[float] = []
    threads = [threading.Thread(target=_send, args=(port, due, latencies, ended)) for _ in range(THREADS)]
    for thread in threads:
        thread.start()
    lags = [0.0]
    while any(thread.is_alive() for thread in threads) or oldest_waiting([org]) is not None:
        lags.append(oldest_waiting([org]) or 0.0)
        time.sleep(0.5)
        if time.perf_counter() - begin > 20 * SECONDS:
            raise RuntimeError("the fold does not come to an end")
    if len(latencies) < len(load):
        raise RuntimeError(f"{len(load) - len(latencies)} batches were not taken")
    spent = [
        (now - then) / len(load) * 1e6
        for now, then in zip((cpu_of(web_pid), sum(map(cpu_of, worker_pids)), cpu_of(database)), before, strict=True)
    ]
    ordered = sorted(latencies)
    return {
        "batches_s": len(load) / (ended[-1] - begin),
        "p50_ms": statistics.median(ordered) * 1000,
        "p99_ms": ordered[int(len(ordered) * 0.99)] * 1000,
        "lag_s": max(lags),
        "web_us": spent[0],
        "worker_us": spent[1],
        "pg_us": spent[2],
        "ratio": sum(spent) / decoded,
        "cores": sum(spent) * GOAL / 1e6,
        "decode_us": decoded,
    }


def _send(port: int, due: SimpleQueue[tuple[float, bytes]], latencies: list[float], ended: list[float]) -> None:
    client = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    while True:
        try:
            at, body = due.get_nowait()
        except Empty:
            return
        time.sleep(max(0.0, at - time.perf_counter()))
        client.request("POST", "/v1/batches", body, HEADERS)
        answer = client.getresponse()
        said = answer.read()
        if answer.status != 202:
            raise RuntimeError(f"refused: {said[:300]!r}")
        ended.append(time.perf_counter())
        latencies.append(time.perf_counter() - at)
