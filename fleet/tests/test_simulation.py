"""A simulated past is folded like any other: one seed over HTTP to a real server and worker gives the same rows."""

from __future__ import annotations

import http.client
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command
from django.db import connection
from django_tenants.utils import tenant_context

from fleet.models import Cluster, NodeHour, NodeLive
from fleet.selectors_waiting import oldest_waiting, orgs_with_work
from fleet.simulation import Plan, uploads
from fleet.tests.ingest.server import ROOT, Server
from fleet.tests.test_folding import deliver

HOUR_MS = 3_600_000
FIRST_MS = 1_795_734_000_000


def rows(org: Any) -> dict[tuple[str, int], bytes]:
    """Every node hour of an org as stored."""
    with tenant_context(org):
        return {(hour.node.name, hour.hour): bytes(hour.body) for hour in NodeHour.objects.select_related("node")}


@pytest.mark.django_db
def test_simulate_makes_a_labelled_past_and_writes_the_truth_beside_it(alpha: Any, tmp_path: Path) -> None:
    truth = tmp_path / "truth.json"
    call_command("simulate", org="alpha", nodes=2, days=0.1, seed=3, truth=truth, verbosity=0)
    told = json.loads(truth.read_text())
    assert told["plan"]["nodes"] == 2
    assert all(fault["first_ms"] < fault["end_ms"] for fault in told["faults"])
    with tenant_context(alpha):
        assert Cluster.objects.get().is_simulated
        assert NodeLive.objects.count() == 2
        assert all(live.agent_version.endswith("+sim") for live in NodeLive.objects.all())
    assert len(rows(alpha)) >= 6
    assert oldest_waiting([alpha]) is None


@pytest.mark.django_db(transaction=True)
def test_the_same_seed_over_http_gives_the_same_rows(
    alpha: Any, beta: Any, key_of: Any, database_url: str, tmp_path: Path
) -> None:
    plan = Plan("sim", 2, FIRST_MS, FIRST_MS + 2 * HOUR_MS, 21)
    with tenant_context(alpha):
        deliver(alpha, [body for body, _ in uploads(plan)])
    token = key_of(beta)
    env = {"DATABASE_URL": database_url, "GOODPUT_EXPOSE": "local"}
    with Server(tmp_path / "web.log", **env) as server, Worker(tmp_path / "worker.log", env):
        client = http.client.HTTPConnection("127.0.0.1", server.port, timeout=30)
        headers = {
            "Content-Type": "application/msgpack",
            "Content-Encoding": "gzip",
            "Authorization": f"Bearer {token}",
            "Host": "localhost",
        }
        for body, sha256 in uploads(plan):
            client.request("POST", "/v1/batches", body, headers)
            response = client.getresponse()
            receipt = json.loads(response.read())
            assert response.status == 202, receipt
            assert receipt["batch_sha256"] == sha256
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline and orgs_with_work([beta]):
            time.sleep(0.2)
            connection.close()
        assert not orgs_with_work([beta]), (tmp_path / "worker.log").read_text()[-3000:]
    assert rows(beta) == rows(alpha)
    assert len(rows(beta)) == 4


class Worker:
    """A real Celery worker with its clock, on the test database."""

    def __init__(self, log: Path, env: dict[str, str]):
        self._log, self._env = log, {**os.environ, "DJANGO_SETTINGS_MODULE": "goodput_site.settings", **env}

    def __enter__(self) -> Worker:
        command = [sys.executable, "-m", "celery", "-A", "goodput_site.celery:app", "worker", "-B", "-c", "1"]
        command += ["-s", str(self._log.with_suffix(".schedule")), "-l", "INFO", "--without-gossip", "--without-mingle"]
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                command, cwd=ROOT, env=self._env, stdout=log, stderr=log, start_new_session=True
            )
        return self

    def __exit__(self, *_: object) -> None:
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
