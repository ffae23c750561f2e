"""Ingest from HTTP to commit: one granian worker on one core, PostgreSQL and the loader on the other.

R1 = CPU of the web process per batch / CPU of one typed decode. R4 = WAL bytes / body bytes.
"""

from __future__ import annotations

import time
from typing import Any

from benchmarks.common import bodies, cpu_of, decode_us, repeat, show
from benchmarks.fleet_rows import start
from benchmarks.web import postmaster, send, spread, web

NODES, MINUTES = 60, 8


def run(rounds: int) -> dict[str, Any]:
    """Measure and print; the figures."""
    start()
    from django.db import connection

    database = postmaster()
    with web() as (port, pid):
        spread(pid, database)
        figures = repeat(rounds, lambda number: _round(number, port, pid, database, connection), "decode_us")
    show(
        "ingest: HTTP to commit, 8 GPUs and 8 ports a batch",
        figures,
        [
            ("batches_s", "batches per second (wall, one web process)"),
            ("per_core", "batches per CPU second of the web process"),
            ("web_us", "CPU of the web process per batch, µs"),
            ("pg_us", "CPU of PostgreSQL per batch, µs"),
            ("decode_us", "calibrator: typed decode per batch, µs"),
            ("R1", "R1: web CPU / typed decode (goal ≤ 14)"),
            ("R4", "R4: WAL bytes / body bytes, ingest alone (goal ≤ 1.4)"),
            ("p50_ms", "p50 latency, ms"),
            ("p99_ms", "p99 latency, ms"),
        ],
    )
    return figures


def _round(number: int, port: int, web_pid: int, database: int, connection: Any) -> dict[str, float]:
    from fleet.decode import gunzip

    load = bodies(NODES, MINUTES, seed=number)
    decoded = decode_us([gunzip(body) for body, _ in load[:200]])
    with connection.cursor() as cursor:
        cursor.execute("select pg_current_wal_insert_lsn()")
        before_wal = cursor.fetchone()[0]
    before_web, before_pg, begin = cpu_of(web_pid), cpu_of(database), time.perf_counter()
    latencies = send(port, [body for body, _ in load])
    seconds = time.perf_counter() - begin
    web_us = (cpu_of(web_pid) - before_web) / len(load) * 1e6
    pg_us = (cpu_of(database) - before_pg) / len(load) * 1e6
    with connection.cursor() as cursor:
        cursor.execute("select pg_wal_lsn_diff(pg_current_wal_insert_lsn(), %s)", [before_wal])
        wal = float(cursor.fetchone()[0])
    latencies.sort()
    return {
        "batches_s": len(load) / seconds,
        "per_core": 1e6 / web_us,
        "web_us": web_us,
        "pg_us": pg_us,
        "decode_us": decoded,
        "R1": web_us / decoded,
        "R4": wal / sum(len(body) for body, _ in load),
        "p50_ms": latencies[len(latencies) // 2] * 1000,
        "p99_ms": latencies[int(len(latencies) * 0.99)] * 1000,
    }
