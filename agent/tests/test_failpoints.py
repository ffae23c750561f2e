"""The process is killed with os._exit at every point between sample and delete: no loss, nothing counts twice."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

import pytest

from agent import failpoints
from agent.tests.rig import START_MS

SAMPLES = 9


def run_child(directory, url, start_ms, count, **environment):
    return subprocess.run(
        [sys.executable, "-m", "agent.tests.crash_child", str(directory), url, str(start_ms), str(count)],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=60,
    )


@pytest.mark.parametrize("point", failpoints.NAMES)
def test_a_kill_loses_nothing_that_was_committed(tmp_path, backend, point):
    taken = []
    now = START_MS
    for times in (1, 2, 1):
        done = run_child(tmp_path, backend.url, now, SAMPLES, GOODPUT_FAILPOINT=f"{point}:{times}")
        assert done.returncode == failpoints.EXIT_CODE, done.stderr
        taken += [int(line) for line in done.stdout.split()]
        now += 600_000  # the wall clock goes on while the agent is dead
    done = run_child(tmp_path, backend.url, now, SAMPLES)
    assert done.returncode == 0, done.stderr
    taken += [int(line) for line in done.stdout.split()]
    times = backend.sample_times()
    assert set(taken) <= set(times)
    assert len(times) == len(set(times))
    batches = list(backend.batches.values())
    assert len({batch["agent_id"] for batch in batches}) == 1
    seqs = sorted(batch["seq"] for batch in batches)
    assert seqs == list(range(1, len(seqs) + 1))


SHIM = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>
static void count(void) {
    int log = open(getenv("GOODPUT_SYNC_LOG"), O_WRONLY | O_APPEND | O_CREAT, 0600);
    if (log >= 0) { if (write(log, "s", 1) < 0) _exit(9); close(log); }
}
int fsync(int fd) { count(); return ((int (*)(int))dlsym(RTLD_NEXT, "fsync"))(fd); }
int fdatasync(int fd) { count(); return ((int (*)(int))dlsym(RTLD_NEXT, "fdatasync"))(fd); }
"""


def test_each_sample_is_synced_to_disk_before_it_counts(tmp_path, backend):
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("no C compiler: fsync cannot be counted")
    (tmp_path / "shim.c").write_text(SHIM)
    command = [compiler, "-shared", "-fPIC", "-o", str(tmp_path / "shim.so"), str(tmp_path / "shim.c"), "-ldl"]
    subprocess.run(command, check=True)
    log = tmp_path / "syncs"
    counts = []
    backend.down = True
    for index, samples in enumerate((1, 5)):
        log.write_text("")
        done = run_child(
            tmp_path / f"state-{index}",
            backend.url,
            START_MS,
            samples,
            LD_PRELOAD=str(tmp_path / "shim.so"),
            GOODPUT_SYNC_LOG=str(log),
        )
        assert done.returncode == 0, done.stderr
        counts.append(len(log.read_text()))
    assert counts[1] - counts[0] >= 4  # one sync per sample at least
