"""The web process of a benchmark, the PostgreSQL beside it, and a sender of bodies."""

from __future__ import annotations

import http.client
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress

import psutil

from goodput_site.launcher.processes import free_port

THREADS = 12
NO_QUOTAS = {name: "0,0" for name in ("GOODPUT_QUOTA_ORG", "GOODPUT_QUOTA_KEY", "GOODPUT_QUOTA_NODE")}


def postmaster() -> int:
    """The pid of PostgreSQL's first process, which runs on this machine."""
    from django.db import connection

    with connection.cursor() as cursor:
        cursor.execute("select pg_backend_pid()")
        return int(psutil.Process(cursor.fetchone()[0]).ppid())


@contextmanager
def web(**env: str) -> Iterator[tuple[int, int]]:
    """(port, pid) of one granian worker with the whole application and no quotas but those in `env`."""
    port = free_port()
    command = [sys.executable, "-m", "granian", "--interface", "wsgi", "goodput_site.wsgi:application"]
    command += ["--host", "127.0.0.1", "--port", str(port), "--workers", "1", "--blocking-threads", "4", "--no-log"]
    server = subprocess.Popen(command, env={**os.environ, **NO_QUOTAS, **env})
    try:
        _wait(port)
        yield port, server.pid
    finally:
        server.terminate()
        server.wait(10)


@contextmanager
def workers() -> Iterator[list[int]]:
    """The pids of one worker with one process and of beat, as the launcher starts them: what arrives is folded."""
    with tempfile.TemporaryDirectory(prefix="goodput-bench-") as folder:
        celery = [sys.executable, "-m", "celery", "-A", "goodput_site.celery:app"]
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        worker = [*celery, "worker", "--pool", "prefork", "-c", "1", "--without-gossip", "--without-mingle"]
        beat = [*celery, "beat", "-s", f"{folder}/schedule"]
        started = [subprocess.Popen(command, **quiet) for command in (worker, beat)]  # type: ignore[call-overload]
        try:
            yield [process.pid for process in started]
        finally:
            for process in reversed(started):
                process.terminate()
            for process in started:
                process.wait(60)


def _wait(port: int) -> None:
    for _ in range(300):
        time.sleep(0.1)
        with suppress(OSError):
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=2)
            connection.request("GET", "/healthz")
            if connection.getresponse().status == 200:
                return
    raise RuntimeError("the web process did not start")


def spread(web_pid: int, postmaster_pid: int) -> None:
    """Web on core 0, PostgreSQL and this process on core 1, where there are two."""
    if (os.cpu_count() or 1) < 2:
        return
    for pid in [web_pid, *[child.pid for child in psutil.Process(web_pid).children(recursive=True)]]:
        for thread in psutil.Process(pid).threads():
            with suppress(OSError):
                os.sched_setaffinity(thread.id, {0})
    for pid in [os.getpid(), postmaster_pid, *[child.pid for child in psutil.Process(postmaster_pid).children()]]:
        with suppress(OSError):
            os.sched_setaffinity(pid, {1})


def send(port: int, load: Sequence[bytes]) -> list[float]:
    """Send all bodies over THREADS connections; the latency of each in seconds. Every answer must be a 202."""
    latencies: list[float] = []
    refused: list[bytes] = []
    headers = {"Content-Type": "application/msgpack", "Content-Encoding": "gzip"}

    def work(share: Sequence[bytes]) -> None:
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
