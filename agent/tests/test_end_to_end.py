"""A simulated node delivers to a real HTTP server."""

from __future__ import annotations

import os
import subprocess
import sys
import time

import pytest

from agent import wire
from agent.tests.rig import START_MS, Rig


def test_samples_arrive_once_in_batches_of_up_to_four(tmp_path, backend):
    rig = Rig(tmp_path, backend.url)
    for _ in range(10):
        rig.minute()
        rig.drain()
    times = backend.sample_times()
    assert times == [START_MS + 7_500 + 15_000 * n for n in range(len(times))]
    assert len(times) >= 37
    assert all(1 <= len(batch["intervals"]) <= 4 for batch in backend.batches.values())
    assert sorted(b["seq"] for b in backend.batches.values()) == list(range(1, len(backend.batches) + 1))
    rig.close()


def test_first_sample_is_sent_at_once_and_later_batches_carry_sync(tmp_path, backend):
    rig = Rig(tmp_path, backend.url)
    backend.wall_ms = lambda: rig.now_ms + 250
    rig.sample()
    rig.drain()
    (first,) = backend.batches.values()
    assert len(first["intervals"]) == 1
    assert "sync" not in first
    rig.minute()
    rig.drain()
    newest = max(backend.batches.values(), key=lambda batch: batch["seq"])
    assert newest["sync"] == {"received_at": START_MS + 7_750, "boottime": first["intervals"][0]["boottime"]}
    rig.close()


def test_every_batch_says_that_it_is_simulated_and_keeps_to_the_contract(tmp_path, backend):
    for scenario in ("healthy", "thermal", "xid79", "ib_flap", "ecc_storm", "driver_reload"):
        rig = Rig(tmp_path / scenario, backend.url, scenario)
        for _ in range(25 if scenario in ("xid79", "ecc_storm") else 8):
            rig.minute()
        rig.drain()
        rig.close()
    assert len(backend.batches) > 80
    for batch in backend.batches.values():
        assert batch["agent_version"].endswith("+sim")
        assert wire.ordered(batch) == batch
    codes = {x["code"] for b in backend.batches.values() for i in b["intervals"] for x in i["xids"]}
    assert {79, 48, 63, 154} <= codes
    assert len({b["boot_id"] for b in backend.batches.values()}) > 1
    assert any("last_alive" in b for b in backend.batches.values())


def test_a_restart_changes_nothing_that_was_simulated(tmp_path, backend):
    times = []
    for directory in ("one", "two"):
        rig = Rig(tmp_path / directory, backend.url, "xid79")
        for minute in range(25):
            rig.minute()
            if directory == "two" and minute in (3, 15):
                now = rig.now_ms
                rig.close()
                rig = Rig(tmp_path / directory, backend.url, "xid79", start_ms=now)
        rig.drain()
        rig.close()
        found = [(i["ts"], x["code"]) for b in backend.batches.values() for i in b["intervals"] for x in i["xids"]]
        times.append(sorted(found))
        backend.batches.clear()
    assert times[0] == times[1]
    assert times[0]


@pytest.mark.slow
def test_the_command_delivers_four_simulated_nodes(tmp_path, backend):
    environment = {**os.environ, "GOODPUT_ENDPOINT": backend.url, "GOODPUT_STATE_DIR": str(tmp_path / "state")}
    process = subprocess.Popen(
        [sys.executable, "-m", "agent", "run", "--source", "sim", "--sim-nodes", "4"], env=environment
    )
    try:
        until = time.monotonic() + 25
        while len({b["node_id"] for b in backend.batches.values()}) < 4 and time.monotonic() < until:
            time.sleep(0.2)
        assert {b["node_id"] for b in backend.batches.values()} == {"sim-01", "sim-02", "sim-03", "sim-04"}
        assert {b["cluster_id"] for b in backend.batches.values()} == {"demo"}
    finally:
        process.terminate()
        assert process.wait(15) == 0
