"""Ingest from HTTP to commit: one granian worker on one core, PostgreSQL and the loader on the other.

R1 = CPU of the web process per batch / CPU of one typed decode. R4 = WAL bytes / body bytes.
"""

from __future__ import annotations

import http.client
import os
import subprocess
import sys
import threading
import time
from contextlib import suppress
from typing import Any

import psutil

from benchmarks.common import bodies, cpu_of, decode_us, repeat, show

NODES, MINUTES, THREADS = 60, 8, 12


def run(rounds: int) -> dict[str, Any]:
    """Measure and print; the figures."""
    os.environ["DJANGO_SETTINGS_MODULE"] = "goodput_site.settings"
    subprocess.check_call([sys.executable, "manage.py", "prepare", "--no-static"], stdout=subprocess.DEVNULL)
    import django

    django.setup()
    from django.db import connection

    with connection.cursor() as cursor:
        cursor.execute("select pg_backend_pid()")
        postmaster = psutil.Process(cursor.fetchone()[0]).ppid()
    port = 18_000 + os.getpid() % 2000
    server = _start(port)
    try:
        _spread(server.pid, postmaster)
        figures = repeat(rounds, lambda number: _round(number, port, server.pid, postmaster, connection), "decode_us")
    finally:
        server.terminate()
        server.wait(10)
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


def _start(port: int) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "granian", "--interface", "wsgi", "goodput_site.wsgi:application"]
    command += ["--host", "127.0.0.1", "--port", str(port), "--workers", "1", "--blocking-threads", "4", "--no-log"]
    server = subprocess.Popen(command)
    for _ in range(100):
        time.sleep(0.1)
        with suppress(OSError):
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=2)
            connection.request("GET", "/healthz")
            if connection.getresponse().status == 200:
                return server
    raise RuntimeError("the web process did not start")


def _spread(web: int, postmaster: int) -> None:
    """Web on core 0, PostgreSQL and this process on core 1, where there are two."""
    if (os.cpu_count() or 1) < 2:
        return
    for pid in [web, *[child.pid for child in psutil.Process(web).children(recursive=True)]]:
        for thread in psutil.Process(pid).threads():
            with suppress(OSError):
                os.sched_setaffinity(thread.id, {0})
    for pid in [os.getpid(), postmaster, *[child.pid for child in psutil.Process(postmaster).children()]]:
        with suppress(OSError):
            os.sched_setaffinity(pid, {1})


def _round(number: int, port: int, web: int, postmaster: int, connection: Any) -> dict[str, float]:
    from fleet.decode import gunzip

    load = bodies(NODES, MINUTES, seed=number)
    decoded = decode_us([gunzip(body) for body, _ in load[:200]])
    with connection.cursor() as cursor:
        cursor.execute("select pg_current_wal_insert_lsn()")
        before_wal = cursor.fetchone()[0]
    before_web, before_pg, begin = cpu_of(web), cpu_of(postmaster), time.perf_counter()
    latencies = _send(port, [body for body, _ in load])
    seconds = time.perf_counter() - begin
    web_us = (cpu_of(web) - before_web) / len(load) * 1e6
    pg_us = (cpu_of(postmaster) - before_pg) / len(load) * 1e6
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


def _send(port: int, load: list[bytes]) -> list[float]:
    """Send all bodies over THREADS connections; the latency of each in seconds. Every answer must be a 202."""
    latencies: list[float] = []
    refused: list[bytes] = []
    headers = {"Content-Type": "application/msgpack", "Content-Encoding": "gzip"}

    def work(share: list[bytes]) -> None:
        client = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
        for body in share:
            begin = time.perf_counter()
            client.request("POST", "/v1/batches", body, headers)
            response = client.getresponse()
            answer = response.read()
            latencies.append(time.perf_counter() - begin)
            if response.status != 202:
                refused.append(answer)

    threads = [threading.Thread(target=work, args=(load[start::THREADS],)) for start in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if refused:
        raise RuntimeError(f"{len(refused)} batches were refused, the first with {refused[0][:300]!r}")
    return latencies
