"""Clocks and boots: what time it is, by which clock, on which boot of the machine.

Durations never depend on the wall clock: every sample carries CLOCK_MONOTONIC and CLOCK_BOOTTIME too.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import struct
import time
from pathlib import Path
from typing import NamedTuple, Optional, Protocol

from agent.child import find_program

SYNCHRONISED = "synchronised"
UNSYNCHRONISED = "unsynchronised"
UNKNOWN = "unknown"

_TIME_ERROR = 5  # adjtimex(2): the clock is not synchronised
_STA_UNSYNC = 0x0040
_UTMP = struct.Struct("<hi32s4s32s256shhiii16s20x")  # glibc's struct utmp on 64-bit Linux, 384 bytes
_RUN_LVL, _BOOT_TIME = 1, 2
_WTMP_TAIL_RECORDS = 20_000
SYSTEM_PATH = "/usr/bin:/bin"  # never a program that happens to lie in $PATH
_JOURNAL_DEADLINE_S = 3.0


class Instant(NamedTuple):
    """One reading of all clocks; everything in ms. `ts` is the wall clock since 1970 UTC."""

    ts: int
    mono: int
    boottime: int
    boot_id: str
    boot_at: int
    status: str = UNKNOWN
    error_ms: Optional[int] = None

    def facts(self) -> dict[str, object]:
        """The interval's clock keys."""
        clock: dict[str, object] = {"status": self.status}
        if self.error_ms is not None:
            clock["error_ms"] = self.error_ms
        return {"ts": self.ts, "mono": self.mono, "boottime": self.boottime, "clock": clock}


class Clock(Protocol):
    """Where an agent takes its time from."""

    def now(self) -> Instant:
        """All clocks, read now."""
        ...


def hash_boot_id(kernel_id: str) -> str:
    """A boot's public id: 32 hex digits that say nothing of the kernel's own random id."""
    return hashlib.sha256(b"goodput boot v1\n" + kernel_id.strip().encode()).hexdigest()[:32]


class SystemClock:
    """The machine's clocks. `proc` may point at another tree for tests."""

    def __init__(self, proc: Path = Path("/proc")) -> None:
        try:
            kernel_id = (proc / "sys/kernel/random/boot_id").read_text()
        except OSError:
            kernel_id = "no boot id"
        self.boot_id = hash_boot_id(kernel_id)
        self._boot_at: Optional[int] = None

    def now(self) -> Instant:
        """All clocks, read within a few microseconds of each other. `boot_at` stays as first computed."""
        ts = time.time_ns() // 1_000_000
        mono = time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1_000_000
        boottime = time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1_000_000
        if self._boot_at is None:
            self._boot_at = ts - boottime
        status, error_ms = kernel_clock_status()
        return Instant(ts, mono, boottime, self.boot_id, self._boot_at, status, error_ms)


class _Timex(ctypes.Structure):
    """Head of struct timex (adjtimex(2)); the tail is padding that the kernel may write."""

    _fields_ = [
        ("modes", ctypes.c_uint),
        ("offset", ctypes.c_long),
        ("freq", ctypes.c_long),
        ("maxerror", ctypes.c_long),
        ("esterror", ctypes.c_long),
        ("status", ctypes.c_int),
        ("rest", ctypes.c_char * 512),
    ]


_libc: Optional[ctypes.CDLL] = None


def kernel_clock_status() -> tuple[str, Optional[int]]:
    """(status, greatest error in ms) of the wall clock as the kernel sees it; reading needs no privilege."""
    global _libc
    try:
        if _libc is None:
            _libc = ctypes.CDLL(None, use_errno=True)
        timex = _Timex()
        state = _libc.adjtimex(ctypes.byref(timex))
    except (OSError, AttributeError):
        return UNKNOWN, None
    if state < 0:
        return UNKNOWN, None
    if state == _TIME_ERROR or timex.status & _STA_UNSYNC:
        return UNSYNCHRONISED, None
    return SYNCHRONISED, max(0, (timex.maxerror + 999) // 1000)


def last_shutdown(wtmp: Path = Path("/var/log/wtmp")) -> str:
    """`clean`, `unclean` or `unknown`: whether a shutdown record stands between the last two boots in wtmp."""
    try:
        size = wtmp.stat().st_size
        with wtmp.open("rb") as file:
            file.seek(max(0, size - size % _UTMP.size - _WTMP_TAIL_RECORDS * _UTMP.size))
            data = file.read(_WTMP_TAIL_RECORDS * _UTMP.size)
    except OSError:
        return "unknown"
    boots: list[bool] = []  # per boot in the tail: did a shutdown record precede it
    shut_down = False
    for start in range(0, len(data) - _UTMP.size + 1, _UTMP.size):
        kind, _pid, _line, _id, user = _UTMP.unpack_from(data, start)[:5]
        if kind == _BOOT_TIME:
            boots.append(shut_down)
            shut_down = False
        elif kind == _RUN_LVL and user.rstrip(b"\0") == b"shutdown":
            shut_down = True
    if len(boots) < 2:
        return "unknown"
    return "clean" if boots[-1] else "unclean"


def newest_journal_instant(path: str = SYSTEM_PATH, deadline_s: float = _JOURNAL_DEADLINE_S) -> Optional[int]:
    """The newest instant in the journal of the boot before this one, in ms since 1970; None where it says none.

    journalctl is read only, found in `path` alone, and given up on after the deadline: a sick disk delays no sample.
    """
    import json
    import subprocess

    program = find_program("journalctl", path)
    if program is None:
        return None
    command = [program, "--boot=-1", "--lines=1", "--output=json", "--no-pager", "--quiet"]
    try:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, start_new_session=True
        )
    except OSError:
        return None
    try:
        out = process.communicate(timeout=deadline_s)[0]
        return int(json.loads(out.splitlines()[-1])["__REALTIME_TIMESTAMP"]) // 1000
    except (subprocess.TimeoutExpired, ValueError, LookupError, TypeError, RecursionError):
        return None
    finally:
        if process.poll() is None:
            process.kill()  # not waited for: the kernel may hold it
        if process.stdout is not None:
            process.stdout.close()


def machine_is_stopping() -> bool:
    """Whether systemd says that the machine is shutting down (not only this service stopping)."""
    if not os.path.isdir("/run/systemd/system"):
        return False
    import subprocess

    try:
        done = subprocess.run(["/usr/bin/systemctl", "is-system-running"], capture_output=True, timeout=2, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.stdout.strip() == b"stopping"
