"""The cases of agents in the field (kind d): what the agent does about each, and which are the server's to decide."""

from __future__ import annotations

import json
from pathlib import Path

from agent.clock import Instant
from agent.collect.kmsg import KmsgCollector, PrintkClock
from agent.collect.kmsg_read import Device
from agent.outbox import Outbox
from agent.replay import replay
from agent.tests.rig import Rig

CASES = [json.loads(line) for line in (Path(__file__).parent / "data/field-cases.jsonl").read_text().splitlines()]
AGENT = {case["id"]: case for case in CASES if case["kind"] == "d.agent"}
COUNT = 16
ELSEWHERE = {
    "D001": "test_outbox: a full disk goes on in memory; test_sender: an outcome that the disk does not take",
    "D002": "test_outbox: a damaged file is set aside and what can be read is delivered",
    "D004": "test_sender: an outcome that the disk does not take is not sent for ever",
    "D027": "test_cases_kmsg",
}
SERVERS = {
    "D009": "placing samples of a skewed clock is the fold's (boot-time clock and sync)",
    "D012": "two nodes of one identity: the server sees two agent ids and boots",
    "D016": "the end of a condition is decided by the fold from evidence",
    "D018": "an event without a bus id stays without one (A007); what it means is the server's",
    "D024": "four witnesses of one loss: the fold's",
}
OVERRULED = {
    # The case wants a server that stores the two good samples; the design refuses a batch as a whole and accepts
    # instants up to any age, marking a clock ahead as suspect. The agent's part (neither loop nor drop) is below.
    "D006": "nothing is half-stored",
}
HERE = {"D007", "D010", "D014", "D020", "D022", "D026"}


def test_every_agent_case_has_a_place():
    assert len(AGENT) == COUNT
    assert set(ELSEWHERE) | set(SERVERS) | set(OVERRULED) | HERE == set(AGENT)


def test_a_refused_batch_is_neither_resent_for_ever_nor_dropped(tmp_path, backend):
    """D006."""
    rig = Rig(tmp_path, backend.url)
    backend.behave = lambda handler, _body: (
        handler.answer(422, b'{"code": "timestamp_order", "status": 422}', {"Content-Type": "application/problem+json"})
        or True
    )
    rig.minute()
    rig.drain()
    sent = len(backend.requests)
    rig.drain()
    assert len(backend.requests) == sent
    assert rig.store.outbox.counts()["batches_quarantined"] == sent
    rig.close()


def test_samples_carry_clocks_that_no_step_can_move(tmp_path, backend):
    """D007: the wall clock jumps by 12 h and back; durations stay in mono and boottime."""

    class Stepped:
        times = [(36_000_000, 1_000_000), (79_230_000, 1_030_000), (36_060_000, 1_060_000)]

        def __init__(self):
            self.at = 0

        def now(self):
            wall, mono = self.times[self.at]
            return Instant(wall, mono, mono, "b" * 32, 35_000_000)

    from agent.node import Node
    from agent.store import Store

    clock, store = Stepped(), Store(tmp_path)
    node = Node("c", "n", clock, [], store)
    for index in range(3):
        clock.at = index
        node.sample()
    store.assemble(0)
    intervals = _intervals(store.outbox)
    assert [i["mono"] for i in intervals] == [1_000_000, 1_030_000, 1_060_000]
    assert intervals[-1]["mono"] - intervals[0]["mono"] == 60_000
    store.close()


def _intervals(outbox):
    import gzip

    import msgpack

    return [i for row in outbox.queued() for i in msgpack.unpackb(gzip.decompress(row[3]), raw=False)["intervals"]]


class Fixed:
    def __init__(self, instant):
        self.instant = instant

    def now(self):
        return self.instant


def test_an_event_of_the_backlog_is_placed_with_the_time_that_the_machine_slept():
    """D010: boot at 00:00, 114,793 s awake, 39,213 s asleep: the record stands at now, not 10 h 53 min before."""
    boot_at = 1_602_979_200_000
    now = Instant(boot_at + 154_006_000, 114_793_000, 154_006_000, "b" * 32, boot_at)
    record = b"4,7,114793000000,c;NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus."
    (event,) = _read([record], Fixed(now))
    assert event["at"] == boot_at + 154_006_000
    assert event["mono"] == 114_793_000
    assert event["backlog"] is True


def _read(records, clock, collector=None):
    waiting = list(records)

    def call(_descriptor, _size):
        if not waiting:
            raise BlockingIOError
        return waiting.pop(0)

    import os

    if collector is None:
        device = Device(os.open("/dev/null", os.O_RDONLY), call)
        collector = KmsgCollector(Path("/dev/kmsg"), clock, start=False, opener=lambda _path: device)
    found = collector.collect(clock.now()).facts["events"]
    collector.close()
    return found


def test_a_live_event_stands_at_its_reading_and_a_late_one_at_its_own_time():
    printk = PrintkClock()
    assert printk.live(100_000_000, 100_020) == 100_020  # 20 ms drift
    assert printk.live(160_000_000, 160_010) == 160_010
    assert printk.live(200_000_000, 500_000) == 200_010  # read five minutes late


def test_the_log_is_read_without_pause(tmp_path):
    """D014: a thread reads as records come; a sample only takes what is already there."""
    import os
    import time

    from agent.clock import SystemClock

    fifo = tmp_path / "kmsg"
    os.mkfifo(fifo)
    clock = SystemClock()
    collector = KmsgCollector(fifo, clock)
    collector.collect(clock.now())
    with open(fifo, "w") as writer:
        for seq in range(3000):
            usec = time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000
            writer.write(f"6,{seq},{usec},-;audit: noise\n")
        usec = time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000
        writer.write(f"4,3000,{usec},c;NVRM: Xid (PCI:0000:3b:00): 43, pid=1, name=x, Ch 1\n6,3001,{usec},-;end\n")
        writer.flush()
        until = time.monotonic() + 20
        while not collector._events and time.monotonic() < until:
            time.sleep(0.01)
        reading = collector.collect(clock.now())
    (event,) = reading.facts["events"]
    assert event["code"] == 43
    assert "backlog" not in event
    assert clock.now().mono - event["mono"] < 5000
    collector.close()


JOURNAL = """
import json, time
def entry(usec, message, transport="kernel", facility="0"):
    print(json.dumps({"_SOURCE_MONOTONIC_TIMESTAMP": str(usec), "MESSAGE": message, "_TRANSPORT": transport,
                      "SYSLOG_FACILITY": facility, "PRIORITY": "4"}), flush=True)
line = "NVRM: Xid (PCI:0000:%s:00): 79, GPU has fallen off the bus."
for bus in ("06", "07", "09"):
    entry(155044078590, line % bus)
entry(155044078591, line % "0a", transport="syslog")
entry(155044078592, line % "0b", facility="1")
entry(155044078593, "x\\nNVRM: Xid (PCI:0000:0c:00): 79, forged")
entry(155044078594, [78, 86, 82, 77, 255])
print("no json", flush=True)
time.sleep(30)
"""


def test_where_the_device_is_refused_the_journal_is_read():
    import sys
    import time

    from agent.collect.journal_read import Journal

    boot_at = 1_602_979_200_000
    clock = Fixed(Instant(boot_at + 155_100_000, 155_100_000, 155_100_000, "b" * 32, boot_at))
    memory = {}
    for wanted in (["0000:06:00.0", "0000:07:00.0", "0000:09:00.0"], []):  # the second reader repeats nothing
        source = Journal([sys.executable, "-c", JOURNAL])
        collector = KmsgCollector(Path("/dev/kmsg"), clock, start=False, opener=lambda _path, s=source: s)
        collector.restore(memory)
        found, until = [], time.monotonic() + 10
        while time.monotonic() < until:
            source.wait(0.2)
            reading = collector.collect(clock.now())
            found += reading.facts["events"]
            memory = reading.memory or memory
            if memory.get("seq", 0) >= 155044078594 * 64:
                break
        assert [event["pci_bus_id"] for event in found] == wanted
        assert reading.status == "ok"
        assert collector.gaps == []
        collector.close()


def test_a_new_boot_tells_when_the_one_before_was_last_alive(tmp_path):
    """D020."""
    outbox = Outbox(tmp_path / "outbox.sqlite")
    head = {"cluster_id": "c", "node_id": "n", "agent_version": "1"}
    sample = {"gpus": [], "ib_ports": [], "xids": []}
    outbox.add_sample({**sample, "ts": 36_000_000}, {**head, "boot_id": "one"}, {})
    outbox.assemble(36_000_000)
    outbox.add_sample({**sample, "ts": 38_460_000}, {**head, "boot_id": "two"}, {})
    outbox.assemble(38_460_000)
    import gzip

    import msgpack

    first, second = (msgpack.unpackb(gzip.decompress(row[3]), raw=False) for row in outbox.queued())
    assert "last_alive" not in first
    assert second["last_alive"] == 36_000_000
    outbox.close()


def test_backlog_arrives_with_its_own_times(tmp_path, backend):
    """D022: an hour without network, then everything with the instants at which it was."""
    rig = Rig(tmp_path, backend.url, "xid79")
    backend.down = True
    for _ in range(60):
        rig.minute()
    backend.down = False
    rig.store.assemble(rig.now_ms)
    rig.drain()
    intervals = [i for batch in backend.batches.values() for i in batch["intervals"]]
    assert len({i["ts"] for i in intervals}) == 240
    faults = [e for i in intervals for e in i.get("events", ()) if e.get("code") == 79]
    assert len(faults) >= 2
    assert all(abs(e["at"] - i["ts"]) <= 15_000 for i in intervals for e in i.get("events", ()))
    rig.close()


def test_records_of_an_older_format_are_not_deleted(tmp_path, backend):
    """D026: format 1 is the first; a file of another one is kept aside whole and named in the log and the outbox."""
    import sqlite3

    Outbox(tmp_path / "outbox.sqlite").close()
    with sqlite3.connect(tmp_path / "outbox.sqlite") as db:
        db.execute("PRAGMA user_version=77")
    rig = Rig(tmp_path, backend.url)
    rig.minute()
    (kept,) = list(tmp_path.glob("outbox.sqlite.damaged-*[0-9Z]"))
    assert rig.store.outbox.get("outbox_reset")["file"] == kept.name
    rig.close()


def test_no_part_of_a_line_gets_out():
    """D027, with every other case's secrets: nothing that a process could have chosen is in any output."""
    case = AGENT["D027"]
    text = json.dumps(list(replay("kmsg", case["input"])))
    for secret in case["expected"]["must_not_emit"]:
        assert secret not in text
