"""What the boot before left behind, and a wall clock that is set while the agent runs."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import msgpack
import pytest

from agent.clock import SYNCHRONISED, Instant, newest_journal_instant
from agent.node import Node
from agent.runner import Runner, SignalEvent
from agent.schedule import CENTRE_MS, SLOT_MS
from agent.store import Store

ROOT = Path(__file__).parents[2]
HOUR_MS = 3_600_000
START_MS = 1_796_000_400_000


@pytest.fixture
def journalctl(tmp_path):
    """Writes a journalctl into a folder of its own; the folder."""

    def write(script):
        folder = tmp_path / "bin"
        folder.mkdir(exist_ok=True)
        (folder / "journalctl").write_text(f"#!/bin/sh\n{script}\n")
        (folder / "journalctl").chmod(0o755)
        return str(folder)

    return write


def test_the_journal_tells_the_newest_instant_of_the_boot_before(journalctl, tmp_path):
    folder = journalctl(f"""echo "$*" > {tmp_path}/arguments; echo '{{"__REALTIME_TIMESTAMP":"1796000000123456"}}'""")
    assert newest_journal_instant(folder) == 1_796_000_000_123
    assert (tmp_path / "arguments").read_text().split() == [
        "--boot=-1", "--lines=1", "--output=json", "--no-pager", "--quiet",
    ]  # fmt: skip


@pytest.mark.parametrize("script", ["exit 1", "echo no json", "echo '[]'", "echo '{}'", "true", "echo null"])
def test_a_journal_without_that_boot_tells_nothing(journalctl, script):
    assert newest_journal_instant(journalctl(script)) is None


def test_no_journal_and_one_that_hangs_tell_nothing(journalctl, tmp_path):
    assert newest_journal_instant(str(tmp_path / "nowhere")) is None
    begun = time.monotonic()
    assert newest_journal_instant(journalctl("exec sleep 60"), 0.3) is None
    assert time.monotonic() - begun < 20


class SteppedClock:
    """A clock whose wall can be set; `boot` names the boot, which began at `boot_at`."""

    def __init__(self, boot="boot-1", boot_at=START_MS - 50_000_000):
        self.elapsed = START_MS - boot_at
        self.boot, self.boot_at, self.offset = boot, boot_at, 0

    def now(self):
        ts = self.boot_at + self.elapsed + self.offset
        return Instant(ts, self.elapsed, self.elapsed, self.boot, self.boot_at, SYNCHRONISED, 1)


def batches(node):
    node.store.assemble(0)
    return [_unpacked(row[3]) for row in node.store.outbox.queued()]


def _unpacked(body):
    import gzip

    return msgpack.unpackb(gzip.decompress(body), raw=False)


def boots(tmp_path, journal_instant):
    """The first batch of a second boot of a node whose first boot sampled once."""
    first = SteppedClock()
    node = Node("c", "n", first, [], Store(tmp_path))
    node.sample()
    alive = first.now().ts
    node.stop()
    second = SteppedClock("boot-2", START_MS + HOUR_MS)
    second.elapsed = 60_000
    node = Node("c", "n", second, [], Store(tmp_path), journal_instant=lambda: journal_instant)
    node.sample()
    found = next(batch for batch in batches(node) if batch["boot_id"] == "boot-2")
    node.stop()
    return alive, found


@pytest.mark.parametrize(
    ("journal", "says"),
    [
        (None, 0),
        (START_MS - 5_000, 0),  # the outbox is newer
        (START_MS + 8_000, 8_000),  # the journal is newer
        (START_MS + 2 * HOUR_MS, 0),  # later than the next boot began: a clock that was wrong
    ],
)
def test_last_alive_is_the_newest_of_outbox_and_journal(tmp_path, journal, says):
    alive, batch = boots(tmp_path, journal)
    assert batch["last_alive"] == alive + says


def test_a_first_installation_after_a_crash_takes_the_journals_word(tmp_path):
    node = Node("c", "n", SteppedClock(), [], Store(tmp_path), journal_instant=lambda: START_MS - 60_000_000)
    node.sample()
    assert batches(node)[0]["last_alive"] == START_MS - 60_000_000
    node.stop()


def test_a_restart_within_a_boot_asks_no_journal(tmp_path):
    node = Node("c", "n", SteppedClock(), [], Store(tmp_path))
    node.sample()
    node.stop()

    def asked():
        raise AssertionError("the journal was asked")

    Node("c", "n", SteppedClock(), [], Store(tmp_path), journal_instant=asked).stop()


class FakeWait:
    """In place of the runner's event: waiting moves the clock, and `at` lists what happens after how many ms."""

    def __init__(self, clock, length_ms, at):
        self._clock, self._end = clock, clock.elapsed + length_ms
        self._at = [(clock.elapsed + after, offset) for after, offset in at]

    def is_set(self):
        return self._clock.elapsed >= self._end

    def wait(self, seconds):
        self._clock.elapsed += max(1, round(seconds * 1000))
        while self._at and self._clock.elapsed >= self._at[0][0]:
            self._clock.offset += self._at.pop(0)[1]


@pytest.mark.parametrize("step_ms", [HOUR_MS, -HOUR_MS, 11_000, -11_000, 90, -90])
def test_a_wall_clock_that_is_set_keeps_centres_and_boot_time(tmp_path, step_ms):
    clock = SteppedClock()
    node = Node("c", "n", clock, [], Store(tmp_path))
    runner = Runner([node], clock)
    runner._stop = FakeWait(clock, 600_000, [(200_000, step_ms), (400_000, -step_ms)])
    runner.run()
    node = Node("c", "n", clock, [], Store(tmp_path))
    samples = [interval for batch in batches(node) for interval in batch["intervals"]]
    node.stop()
    assert len(samples) >= 38  # 40 slots of ten minutes; a step may cost the one that it falls into
    late = 1000 if abs(step_ms) == HOUR_MS else 7000  # a step by less than a slot may land behind a centre, in its slot
    for sample in samples:
        assert 0 <= (sample["ts"] - CENTRE_MS) % SLOT_MS < late
    times = [sample["boottime"] for sample in samples]
    assert times == sorted(times) == [sample["mono"] for sample in samples]
    assert max(b - a for a, b in zip(times, times[1:])) < 2 * SLOT_MS + 2000  # noqa: B905


def test_a_restart_of_the_clock_source_moves_no_boot(tmp_path):
    clock = SteppedClock()
    node = Node("c", "n", clock, [], Store(tmp_path))
    for offset in (0, HOUR_MS, -HOUR_MS):
        clock.offset = offset
        clock.elapsed += SLOT_MS
        node.sample()
    found = batches(node)
    node.stop()
    assert {(batch["boot_id"], batch["boot_at"]) for batch in found} == {("boot-1", clock.boot_at)}


RUNS_UNTIL_TOLD = """
import sys
sys.path.insert(0, sys.argv[1])
from agent.runner import Runner
from agent.clock import SystemClock
runner = Runner([], SystemClock())
runner.install_signals()
print("ready", flush=True)
runner.run()
"""


def test_signals_that_come_together_end_it():
    """As from a supervisor that ends the whole group: the next signal comes while the handler of the last one runs."""
    for _ in range(5):
        with subprocess.Popen([sys.executable, "-c", RUNS_UNTIL_TOLD, str(ROOT)], stdout=subprocess.PIPE) as child:
            try:
                assert child.stdout.readline() == b"ready\n"
                for _ in range(500):
                    child.send_signal(signal.SIGTERM)
                assert child.wait(10) in (0, -signal.SIGTERM)  # at the very end Python has no handler any more
            finally:
                child.kill()


def test_the_wait_works_behind_a_thousand_descriptors():
    """An agent of many simulated nodes has that many files open before it waits."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < 1100:
        pytest.skip(f"no more than {hard} descriptors are allowed here")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 1100), hard))
    taken = [os.open(os.devnull, os.O_RDONLY) for _ in range(1030)]
    try:
        event = SignalEvent()
        assert event.wait(0.01) is False
        event.set()
        assert event.wait(10) is True
    finally:
        for descriptor in taken:
            os.close(descriptor)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
