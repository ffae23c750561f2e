"""The same samples into Goodput and into time-series databases, one after the other in each round of one run.

Goodput takes a batch over HTTP, fsyncs it, keeps its bytes as evidence, classifies every GPU and writes node hours.
VictoriaMetrics and Prometheus take the same numbers by remote write (one request a batch, snappy and protobuf) and
store them. CPU per batch of everything that runs on the server's side is compared. The load lies in no file and no
calibrator: 60 nodes of 8 GPUs with 15 numbers and 8 ports with 21 counters each, four samples a batch.
"""

from __future__ import annotations

import http.client
import shutil
import struct
import subprocess
import tempfile
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import cramjam

from benchmarks.common import batch, bodies, cpu_of, decode_us, repeat, show
from benchmarks.fleet_rows import start
from benchmarks.web import postmaster, send, web
from goodput_site.launcher.processes import free_port

NODES, MINUTES, THREADS = 60, 4, 4
GPU_FIELDS = (
    "memory_used", "memory_total", "sm_clock", "sm_clock_max", "throttle_reasons", "temperature", "ecc_corrected",
    "ecc_uncorrected", "pcie_gen", "pcie_gen_max", "pcie_width", "pcie_width_max", "gpu_utilization",
    "memory_utilization", "recovery_action",
)  # fmt: skip
PEERS = {
    "victoria-metrics": ("-storageDataPath={folder}", "-httpListenAddr=127.0.0.1:{port}", "-loggerLevel=ERROR"),
    "prometheus": (
        "--config.file={folder}/prometheus.yml", "--storage.tsdb.path={folder}/data", "--log.level=error",
        "--web.listen-address=127.0.0.1:{port}", "--web.enable-remote-write-receiver",
    ),
}  # fmt: skip
WRITE = "/api/v1/write"
HEADERS = {
    "Content-Type": "application/x-protobuf",
    "Content-Encoding": "snappy",
    "X-Prometheus-Remote-Write-Version": "0.1.0",
}


def run(rounds: int) -> dict[str, Any]:
    """Measure and print; the figures."""
    start()
    database = postmaster()
    there = [name for name in PEERS if shutil.which(name)]
    for name in set(PEERS) - set(there):
        print(f"peers: {name} is not installed here (apt-get install {name}) and is left out")
    with tempfile.TemporaryDirectory(prefix="goodput-peers-") as folder, web() as (port, pid):
        ports = {"goodput": port, **{name: free_port() for name in there}}
        started = {name: _start(name, Path(folder) / name, ports[name]) for name in there}
        pids = {name: process.pid for name, process in started.items()}
        try:
            figures = repeat(rounds, lambda number: _round(number, ports, pid, database, pids), "decode_us")
        finally:
            for process in started.values():
                process.terminate()
                process.wait(20)
    rows = [
        ("goodput_us", "Goodput: web, PostgreSQL and fold, CPU µs per batch"),
        ("goodput_web_us", "  of it the web process"),
        ("goodput_fold_us", "  of it the fold and what it asks of PostgreSQL"),
    ]
    for name in there:
        rows += [(f"{name}_us", f"{name}: CPU µs per batch"), (f"to_{name}", f"Goodput / {name} (goal ≤ 4)")]
    show("peers: the same samples, server side only", figures, [*rows, ("decode_us", "calibrator: typed decode, µs")])
    return figures


def _start(name: str, folder: Path, port: int) -> subprocess.Popen[bytes]:
    folder.mkdir()
    (folder / "prometheus.yml").write_text("global: {}\n")
    command = [name, *(word.format(folder=folder, port=port) for word in PEERS[name])]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    for _ in range(150):
        time.sleep(0.1)
        with suppress(OSError, http.client.HTTPException):
            link = http.client.HTTPConnection("127.0.0.1", port, timeout=2)
            link.request("GET", "/-/ready" if name == "prometheus" else "/health")
            if link.getresponse().status == 200:
                return process
    process.kill()
    raise RuntimeError(f"{name} did not start")


def _round(number: int, ports: dict[str, int], web_pid: int, database: int, peers: dict[str, int]) -> dict[str, float]:
    import random

    from fleet.decode import gunzip

    first_ms = (int(time.time()) // 3600 - 2) * 3_600_000
    load = bodies(NODES, MINUTES, seed=number, first_ms=first_ms)
    rng = random.Random(number)
    same = [
        remote_write(batch(f"node-{number}-{node:04d}", minute, rng, first_ms))
        for minute in range(MINUTES)
        for node in range(NODES)
    ]
    out = {"decode_us": decode_us([gunzip(body) for body, _ in load[:200]])}
    before_web, before_pg = cpu_of(web_pid), cpu_of(database)
    send(ports["goodput"], [body for body, _ in load])
    out["goodput_web_us"] = (cpu_of(web_pid) - before_web) / len(load) * 1e6
    ingest_pg = cpu_of(database) - before_pg
    before_pg, before_own = cpu_of(database), time.process_time()
    _fold()
    fold = time.process_time() - before_own + cpu_of(database) - before_pg
    out["goodput_fold_us"] = fold / len(load) * 1e6
    out["goodput_us"] = out["goodput_web_us"] + (ingest_pg + fold) / len(load) * 1e6
    for name, pid in peers.items():
        before = cpu_of(pid)
        _write(ports[name], same)
        if name == "victoria-metrics":
            _get(ports[name], "/internal/force_flush")
        out[f"{name}_us"] = (cpu_of(pid) - before) / len(same) * 1e6
        out[f"to_{name}"] = out["goodput_us"] / out[f"{name}_us"]
    return out


def _fold() -> None:
    from django.utils import timezone
    from django_tenants.utils import tenant_context

    from fleet.folding import fold_waiting
    from orgs.models import Org

    with tenant_context(Org.objects.get(slug="local")):
        while fold_waiting(timezone.now()):
            pass


def _write(port: int, requests: list[bytes]) -> None:
    refused: list[bytes] = []

    def work(share: list[bytes]) -> None:
        link = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
        for body in share:
            link.request("POST", WRITE, body, HEADERS)
            answer = link.getresponse()
            said = answer.read()
            if answer.status not in (200, 204):
                refused.append(said)

    threads = [threading.Thread(target=work, args=(requests[start::THREADS],)) for start in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if refused:
        raise RuntimeError(f"{len(refused)} writes were refused, the first with {refused[0][:300]!r}")


def _get(port: int, path: str) -> None:
    link = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    link.request("GET", path)
    link.getresponse().read()


def remote_write(made: dict[str, Any]) -> bytes:
    """A batch's numbers as one remote-write request: protobuf `WriteRequest`, snappy."""
    node, series = made["node_id"], bytearray()
    intervals = made["intervals"]
    for at, gpu in enumerate(intervals[0]["gpus"]):
        labels = {"cluster": made["cluster_id"], "gpu": str(at), "node": node, "uuid": gpu["uuid"]}
        for name in GPU_FIELDS:
            values = [(interval["ts"], float(interval["gpus"][at][name])) for interval in intervals]
            series += _field(1, _series({"__name__": f"gpu_{name}", **labels}, values))
    for at, port in enumerate(intervals[0]["ib_ports"]):
        labels = {"cluster": made["cluster_id"], "device": port["device"], "node": node}
        for name in port["counters"]:
            values = [(interval["ts"], float(interval["ib_ports"][at]["counters"][name])) for interval in intervals]
            series += _field(1, _series({"__name__": f"ib_{name}", **labels}, values))
    return bytes(cramjam.snappy.compress_raw(bytes(series)))


def _series(labels: dict[str, str], samples: list[tuple[int, float]]) -> bytes:
    out = bytearray()
    for name, value in labels.items():
        out += _field(1, _field(1, name.encode()) + _field(2, value.encode()))
    for ts, number in samples:
        out += _field(2, b"\x09" + struct.pack("<d", number) + b"\x10" + _varint(ts))
    return bytes(out)


def _field(number: int, content: bytes) -> bytes:
    return bytes((number << 3 | 2,)) + _varint(len(content)) + content


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)
