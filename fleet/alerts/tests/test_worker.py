"""From an incident in the table to the receiver through a real broker and a real worker on the queue of alerts."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from django_tenants.utils import tenant_context

from fleet.alerts.models import Delivery
from fleet.alerts.services import create_channel
from fleet.alerts.tasks import sweep
from fleet.alerts.tests.conftest import HttpSink
from fleet.services_incidents import Actor
from goodput_site.celery import app

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.slow]
ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def worker(database_url: str, tmp_path: Path) -> Iterator[Callable[[], subprocess.Popen[bytes]]]:
    """A function: starts a worker as the launcher does, and waits until it is ready."""
    app.control.purge()
    started: list[subprocess.Popen[bytes]] = []

    def start() -> subprocess.Popen[bytes]:
        log = (tmp_path / f"worker-{len(started)}.log").open("w+b")
        environ = {**os.environ, "DATABASE_URL": database_url, "DJANGO_SETTINGS_MODULE": "goodput_site.settings"}
        command = [sys.executable, "-m", "celery", "-A", "goodput_site.celery:app", "worker", "-Q", "alerts"]
        command += ["--pool", "threads", "-c", "4", "--without-gossip", "--without-mingle", "-l", "INFO"]
        started.append(subprocess.Popen(command, cwd=ROOT, env=environ, stdout=log, stderr=log))
        until = time.monotonic() + 90
        while b"[tasks]" not in Path(log.name).read_bytes():
            assert time.monotonic() < until, Path(log.name).read_text()
            assert started[-1].poll() is None, Path(log.name).read_text()
            time.sleep(0.2)
        return started[-1]

    yield start
    for process in started:
        if process.poll() is None:
            process.send_signal(signal.SIGKILL)
            process.wait(10)


def test_it_is_told_through_the_queue_and_a_lost_worker_loses_nothing(
    alpha: Any, http_sink: HttpSink, actor: Actor, break_gpu: Callable[..., Any], worker: Callable[..., Any]
) -> None:
    more = {"name": "hook", "least_severity": "info", "hold_seconds": 0, "url": http_sink.url}
    with tenant_context(alpha):
        create_channel({"kind": "webhook", **more}, actor)
        break_gpu()
    first = worker()
    sweep.apply_async()
    http_sink.wait(1, 60)
    wait_until_sent(alpha, 1)
    first.send_signal(signal.SIGKILL)  # and whatever lies in the broker goes too
    first.wait(10)
    app.control.purge()
    with tenant_context(alpha):
        break_gpu(node="n2", code="XID_79")
    worker()
    sweep.apply_async()
    http_sink.wait(2, 60)
    assert [one.json["facts"]["node"] for one in http_sink.received] == ["node-17", "n2"]
    wait_until_sent(alpha, 2)


def wait_until_sent(org: Any, count: int) -> None:
    """Until so many deliveries are kept as sent."""
    until = time.monotonic() + 30
    with tenant_context(org):
        while Delivery.objects.filter(status="sent").count() < count:
            assert time.monotonic() < until
            time.sleep(0.1)
