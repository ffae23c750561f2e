"""Children of the launcher: started so that none can outlive it, and ended as whole process groups.

A process is only ever found by the pid and the start time that we wrote down ourselves, never by its name.
"""

import contextlib
import ctypes
import http.client
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import psutil

ROOT = Path(__file__).resolve().parents[2]

PR_SET_PDEATHSIG = 1  # <linux/prctl.h>
START_TIME_SLACK_SECONDS = 3  # a start time is derived from the wall clock, which may be stepped


def spawn(
    argv: Sequence[str],
    *,
    env: Mapping[str, str],
    log: Path | None = None,
    death_signal: signal.Signals = signal.SIGTERM,
    account: tuple[int, int] | None = None,
    own_group: bool = True,
) -> subprocess.Popen[bytes]:
    """Start a direct child in a process group of its own, its output appended to `log`.

    On Linux the kernel sends it `death_signal` when we die, however we die. `account` is (uid, gid) to drop to.
    """
    with contextlib.ExitStack() as stack:
        output = stack.enter_context(log.open("ab")) if log else None
        return subprocess.Popen(
            argv,
            env=dict(env),
            cwd=ROOT if account is None else "/",
            stdin=subprocess.DEVNULL if own_group else None,
            stdout=output,
            stderr=subprocess.STDOUT if output else None,
            process_group=0 if own_group else None,
            preexec_fn=_die_with_parent(death_signal),
            **_drop_to(account),
        )


def _drop_to(account: tuple[int, int] | None) -> dict[str, Any]:
    if account is None:
        return {}
    return {"user": account[0], "group": account[1], "extra_groups": []}


def _die_with_parent(death_signal: signal.Signals) -> Callable[[], None] | None:
    if not sys.platform.startswith("linux"):
        return None  # elsewhere the next `up` ends what is left, by pid and start time
    prctl = ctypes.CDLL(None, use_errno=True).prctl
    parent = os.getpid()

    def ask_the_kernel() -> None:
        prctl(PR_SET_PDEATHSIG, int(death_signal), 0, 0, 0)
        if os.getppid() != parent:  # it died before the line above
            os._exit(1)

    return ask_the_kernel


def run_as(
    account: tuple[int, int] | None, argv: Sequence[str], *, said: bytes = b"", env: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[bytes]:
    """Run a short command to its end as `account` (ourselves when None), `said` on its input; output is captured."""
    return subprocess.run(
        argv,
        check=False,
        cwd="/",
        env=env,
        input=said,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        **_drop_to(account),
    )


def end_group(pgid: int, with_signal: signal.Signals) -> None:
    """Signal every process of a group; a group that is already gone is fine."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pgid, with_signal)


def stop(child: subprocess.Popen[bytes], with_signal: signal.Signals, patience_seconds: float = 10) -> int:
    """End a child and whatever it started; returns its exit status (negative: the signal)."""
    if child.poll() is None:
        child.send_signal(with_signal)
    try:
        status = child.wait(patience_seconds)
    except subprocess.TimeoutExpired:
        end_group(child.pid, signal.SIGKILL)
        status = child.wait()
    end_group(child.pid, signal.SIGKILL)
    return status


def start_time(pid: int) -> float | None:
    """When the process began, in seconds of the Unix clock; None when there is no such live process."""
    try:
        process = psutil.Process(pid)
        return None if process.status() == psutil.STATUS_ZOMBIE else process.create_time()
    except psutil.Error:
        return None


def is_same_process(pid: int, started: float) -> bool:
    """True while the process that we wrote down as (pid, start time) lives; a reused pid is another process."""
    now = start_time(pid)
    return now is not None and abs(now - started) <= START_TIME_SLACK_SECONDS


def end_leftovers(pids: Iterable[int], mark: tuple[str, str]) -> int:
    """End what a killed supervisor left: members of the groups `pids` that carry our `mark` (an environment variable).

    A pid that another program got since does not carry it. Returns how many there were.
    """
    groups = set(pids)
    left = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            if os.getpgid(process.pid) in groups and process.environ().get(mark[0]) == mark[1]:
                left.append(process)
    for process in left:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.send_signal(signal.SIGINT)  # the one signal on which every part ends quickly and cleanly
    for process in psutil.wait_procs(left, timeout=10)[1]:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()
    psutil.wait_procs(left, timeout=5)
    return len(left)


def memory_bytes(pid: int) -> int:
    """What a process and its descendants hold, each shared page counted once where the system tells (Linux)."""
    total = 0
    with contextlib.suppress(psutil.Error):
        parent = psutil.Process(pid)
        for process in (parent, *parent.children(recursive=True)):
            with contextlib.suppress(psutil.Error):
                total += getattr(process.memory_full_info(), "pss", 0) or process.memory_info().rss
    return total


def free_port() -> int:
    """A TCP port of 127.0.0.1 that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def http_status(port: int, path: str) -> int:
    """The status of a GET to our own web server; 0 when it does not answer within 3 s."""
    return http_get(port, path)[0]


def http_get(port: int, path: str) -> tuple[int, str]:
    """Status and body of a GET to our own web server; (0, "") when it does not answer within 3 s."""
    link = http.client.HTTPConnection("127.0.0.1", port, timeout=3)
    with contextlib.closing(link), contextlib.suppress(OSError, http.client.HTTPException):
        link.request("GET", path)
        answer = link.getresponse()
        return answer.status, answer.read().decode(errors="replace")
    return 0, ""


def wait_until(ready: Callable[[], bool], alive: Callable[[], bool], timeout_seconds: float) -> bool:
    """Ask every 30 ms until `ready`; False when `alive` ends or the time is up first."""
    deadline = time.monotonic() + timeout_seconds
    while time.monotonic() < deadline and alive():
        if ready():
            return True
        time.sleep(0.03)
    return False


def tail(path: Path, lines: int) -> list[str]:
    """The last lines of a log file that say something; empty when there is none."""
    with contextlib.suppress(OSError), path.open("rb") as log:
        log.seek(max(0, log.seek(0, os.SEEK_END) - (64 << 10)))
        return [line for line in log.read().decode(errors="replace").splitlines() if line.strip()][-lines:]
    return []
