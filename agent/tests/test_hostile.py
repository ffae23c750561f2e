"""What a hostile or broken surrounding may do: absurd readings, damaged bytes, locked files, noisy libraries."""

from __future__ import annotations

import shutil
import sqlite3
import subprocess
import threading
import time

import pytest

from agent import wire
from agent.bounds import bounded
from agent.collect.base import ERROR, OK, Reading
from agent.collect.kmsg import KmsgCollector
from agent.control import Control
from agent.node import Node
from agent.runner import Runner
from agent.store import Store
from agent.tests.measure import STUB
from agent.tests.stub_driver import INSTANT
from agent.tests.test_boots_and_steps import SteppedClock, batches


class Saying:
    """A collector that says what it is told to."""

    source = "nvml"

    def __init__(self, facts, batch=None):
        self.facts, self.batch = facts, batch or {}

    def restore(self, memory):
        if memory:
            raise ValueError("damaged")

    def collect(self, at):
        return Reading(self.source, OK, dict(self.facts), {"seen": 1}, dict(self.batch))

    def close(self):
        pass


def sampled(tmp_path, facts, batch=None):
    clock = SteppedClock()
    node = Node("c", "n", clock, [Saying(facts, batch)], Store(tmp_path))
    node.sample()
    (found,) = batches(node)
    node.stop()
    return found


def test_an_absurd_value_is_left_out_and_its_sample_stays(tmp_path):
    gpu = {"uuid": "GPU-1", "temperature": 2**64 - 1, "power": -5, "name": "a\x00b", "memory_total": 80, "ecc_mode": 1,
           "throttle_reasons": 2**64 - 1, "throttle_time": {"sw": 2**64 - 1, "hw": 4}}  # fmt: skip
    port = {"device": "mlx5_0", "port": 1, "link_rate": float("inf"), "counters": {f"c{n}": 1 for n in range(99)}}
    batch = sampled(
        tmp_path,
        {"gpus": [gpu, {"uuid": None}, {"name": "no uuid"}, 5], "ib_ports": [port], "pci": {"0000:3b:00.0": "present"}},
        {"driver_version": "570\n.1"},
    )
    (interval,) = batch["intervals"]
    assert interval["gpus"] == [{"uuid": "GPU-1", "memory_total": 80, "throttle_reasons": 2**64 - 1,
                                 "throttle_time": {"hw": 4}}]  # fmt: skip
    assert len(interval["ib_ports"][0]["counters"]) == wire.MAX_COUNTERS
    assert "link_rate" not in interval["ib_ports"][0]
    assert "driver_version" not in batch


def test_more_events_than_the_contract_allows_are_cut_not_refused(tmp_path):
    events = [{"kind": "xid", "code": 43, "at": n, "mono": n} for n in range(400)]
    (interval,) = sampled(tmp_path, {"events": events})["intervals"]
    assert len(interval["events"]) == len(interval["xids"]) == wire.MAX_EVENTS


def test_what_bounds_let_through_the_server_takes():
    decode = pytest.importorskip("fleet.decode")
    odd = {"ts": 1, "boottime": 2**63, "clock": {"error_ms": 1}, "gpus": [{"uuid": "G", "power": 2**63}, {}],
           "net": {"upload": "ok", "x\n": "ok"}, "sources": {"nvml": "o" * 300}, "xids": [{"code": -1}],
           "ib_ports": [{"device": "a", "port": 1, "link_rate": 2e9, "reasons": ["A", "\x1b"], "is_vf": "yes"}],
           "events": [{"kind": "xid", "link": True}]}  # fmt: skip
    interval = bounded(odd, "INTERVAL")
    head = {"schema_version": 1, "cluster_id": "c", "node_id": "n", "agent_version": "1"}
    decode.decode(wire.encode({**head, "intervals": [interval]}))
    assert interval["gpus"] == [{"uuid": "G"}]
    assert interval["net"] == {"upload": "ok"}
    assert "clock" not in interval


def test_what_is_in_order_passes_as_it_is():
    from agent.collect.sim_world import World

    world = World(1, "n", "ib_flap")
    interval = {"ts": 1, "gpus": [world.gpu(5, 1)], "ib_ports": [world.port(5, n) for n in range(8)], "unlisted": 1}
    odd = []
    assert bounded(interval, "INTERVAL", odd) == interval
    assert odd == []


def test_a_sample_that_cannot_be_sent_takes_no_other_with_it(tmp_path):
    clock = SteppedClock()
    node = Node("c", "n", clock, [], Store(tmp_path))
    outbox = node.store.outbox
    for number in range(8):
        body = {"ts": number, "gpus": []}
        outbox.add_sample({**body, "unlisted": 1} if number == 1 else body, {"cluster_id": "c", "node_id": "n",
                                                                            "agent_version": "1"}, {})  # fmt: skip
    outbox._db.execute("UPDATE samples SET body=x'c1' WHERE ts=4")  # the disk changed a byte
    outbox._db.execute("UPDATE samples SET head='{' WHERE ts=6")
    found = [interval["ts"] for batch in batches(node) for interval in batch["intervals"]]
    node.stop()
    assert found == [0, 2, 3, 5, 7]


def test_a_damaged_memory_stops_no_start(tmp_path):
    clock = SteppedClock()
    for _ in range(2):  # the second start restores what the first committed, and that raises
        node = Node("c", "n", clock, [Saying({})], Store(tmp_path))
        node.sample()
        node.store.keep_memory("farewell", {"boot_id": "boot-0", "at": "late"})
        node.stop()
        clock.elapsed += 15_000
    node = Node("c", "n", clock, [], Store(tmp_path))
    node.sample()
    assert sum(len(batch["intervals"]) for batch in batches(node)) == 3
    node.stop()


def test_a_file_that_another_process_holds_costs_no_sample(tmp_path):
    clock = SteppedClock()
    node = Node("c", "n", clock, [], Store(tmp_path))
    other = sqlite3.connect(str(tmp_path / "outbox.sqlite"), isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    begun = time.monotonic()
    node.sample()
    assert time.monotonic() - begun < 14  # the next slot is not missed
    other.execute("ROLLBACK")
    other.close()
    clock.elapsed += 15_000
    node.sample()
    assert node.store.healthy
    assert sorted(i["ts"] for b in batches(node) for i in b["intervals"]) == [clock.now().ts - 15_000, clock.now().ts]
    node.stop()


def test_damage_where_nothing_new_can_be_made_goes_on_in_memory_and_returns(tmp_path, monkeypatch):
    clock = SteppedClock()
    node = Node("c", "n", clock, [], Store(tmp_path))
    node.sample()
    node.store.outbox._db.execute("UPDATE meta SET value='{' WHERE key='alive'")
    with monkeypatch.context() as patch:
        patch.setattr("agent.store.set_aside", lambda _path: (_ for _ in ()).throw(OSError(30, "read-only")))
        for _ in range(3):
            clock.elapsed += 15_000
            node.sample()
        assert not node.store.healthy
    clock.elapsed += 15_000
    node.sample()
    assert node.store.healthy
    assert sum(len(batch["intervals"]) for batch in batches(node)) == 5
    node.stop()


def test_a_start_on_a_damaged_file_that_cannot_be_moved_is_no_crash(tmp_path, monkeypatch):
    (tmp_path / "outbox.sqlite").write_bytes(b"no database at all" * 100)
    monkeypatch.setattr("agent.store.set_aside", lambda _path: (_ for _ in ()).throw(OSError(30, "read-only")))
    node = Node("c", "n", SteppedClock(), [], Store(tmp_path))
    node.sample()
    assert node.store.trouble
    assert len(batches(node)) == 1
    node.stop()


@pytest.mark.parametrize(
    "text", ["[" * 100_000, "null", '{"kind": "xid"}', '{"kind": "xid", "code": "x", "pci_bus_id": "0000:3b:00.0"}',
             '{"kind": "xid", "code": 79, "pci_bus_id": "0000:3b:00.0", "process": "secret"}', "\xff", "{"],
)  # fmt: skip
def test_a_request_that_is_none_is_taken_away_and_does_nothing(tmp_path, text):
    taken = []
    (tmp_path / "inject.json").write_text(text, encoding="latin-1")
    Control(tmp_path).poll(taken.append, taken.append)
    Control(tmp_path).poll(taken.append, taken.append)
    assert taken == []
    if text != "\xff":
        assert not (tmp_path / "inject.json").exists()


def test_a_request_that_fails_stops_no_sampling(tmp_path):
    def fails():
        raise RuntimeError("no")

    runner = Runner([], SteppedClock(), fails)
    runner._turn()


class Failing:
    """A kernel log that raises what nobody expects, then gives a line."""

    def __init__(self):
        self.reads = 0

    def read(self):
        self.reads += 1
        if self.reads == 1:
            raise RuntimeError("unexpected")
        return None if self.reads > 2 else "4,7,1000,-;NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus."

    def wait(self, timeout_s):
        time.sleep(0.05)
        return False

    def close(self):
        pass


def test_the_kernel_logs_thread_outlives_the_unexpected(tmp_path, monkeypatch):
    monkeypatch.setattr("agent.collect.kmsg.REOPEN_S", 0.0)
    source = Failing()
    collector = KmsgCollector(tmp_path / "kmsg", SteppedClock(), start=False, opener=lambda _path: source)
    thread = threading.Thread(target=collector._loop, daemon=True)
    thread.start()
    until = time.monotonic() + 15
    while source.reads < 3 and time.monotonic() < until:
        time.sleep(0.05)
    collector._stop.set()
    thread.join(5)
    reading = collector.collect(INSTANT)
    collector.close()
    assert [event["code"] for event in reading.facts["events"]] == [79]
    assert reading.status in (OK, ERROR)


def test_a_library_that_prints_spoils_no_answer(stub_driver, tmp_path, monkeypatch):
    (tmp_path / "noise.c").write_text(
        "#include <stdio.h>\n"
        '__attribute__((constructor)) static void noise(void) { printf("NVML says hello\\n"); fflush(stdout); }\n'
    )
    command = [shutil.which("cc") or "cc", "-shared", "-fPIC", "-Wl,-soname,libnvidia-ml.so.1"]
    target = str(tmp_path / "libnvidia-ml.so.1")
    subprocess.run([*command, "-o", target, str(tmp_path / "noise.c"), str(STUB)], check=True)
    monkeypatch.setenv("LD_LIBRARY_PATH", str(tmp_path))
    assert len(stub_driver.read().facts["gpus"]) == 8
