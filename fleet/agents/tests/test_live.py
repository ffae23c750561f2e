"""The real agent, the real server: a token that may only enrol brings a node in, which then has a key of its own."""

from __future__ import annotations

import json
import subprocess
import sys
import urllib.request

import pytest
from django.utils import timezone
from django_tenants.utils import tenant_context

from agent.wire import fingerprint


def run(live_server, directory, token, *words):
    """A command of the agent with its own state directory; the output."""
    key = directory / "token"
    key.write_text(token + "\n")
    key.chmod(0o600)
    flags = [
        "--source",
        "sim",
        "--scenario",
        "healthy",
        "--node-id",
        directory.name,
        "--state-dir",
        f"{directory}/state",
    ]
    flags += ["--endpoint", f"{live_server.url}/v1/batches", "--token-file", str(key)]
    return subprocess.run([sys.executable, "-m", "agent", *words, *flags], capture_output=True, text=True, timeout=120)


@pytest.mark.django_db(transaction=True)
def test_one_bootstrap_token_brings_a_fleet_in(live_server, alpha, key_of, tmp_path):
    from fleet.agents.models import AgentKey
    from fleet.agents.selectors import list_agents
    from fleet.folding import fold_waiting
    from orgs.models import ApiKey

    urllib.request.urlopen(f"{live_server.url}/healthz", timeout=300).close()  # the first request loads every route
    bootstrap = key_of(alpha, "enrol")
    for name in ("gpu-01", "gpu-02"):
        (tmp_path / name).mkdir()
        for _ in range(2):
            done = run(live_server, tmp_path / name, bootstrap, "once")
            assert done.returncode == 0, done.stderr
    told = run(live_server, tmp_path / "gpu-01", bootstrap, "doctor").stdout
    own = ApiKey.objects.filter(org=alpha).exclude(node="")
    assert sorted(own.values_list("node", flat=True)) == ["gpu-01", "gpu-02"]  # one each, not one per start
    with tenant_context(alpha):
        keys = {row.node: row for row in AgentKey.objects.all()}
        assert fingerprint(bytes(keys["gpu-01"].public_key)) in told
        assert "active at" in told and "with an ingest key of its own" in told  # noqa: PT018
        fold_waiting(timezone.now())
        seen = {agent.node: agent.counts for agent in list_agents()}
        only_valid = {"valid": 2, "unsigned": 0, "unknown_key": 0, "bad": 0, "revoked": 0}
        assert seen == {"gpu-01": only_valid, "gpu-02": only_valid}
    status = run(live_server, tmp_path / "gpu-02", bootstrap, "status")
    (node,) = json.loads(status.stdout)["nodes"]
    assert (node["delivered"], node["batches_queued"]) == (2, 0)
