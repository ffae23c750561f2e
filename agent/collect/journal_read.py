"""The kernel log by way of the journal, read-only, for an agent that may not open /dev/kmsg.

The journal drops lines under load and forgets old ones, so this is the second choice. Only entries that journald itself
took from the kernel (`_TRANSPORT=kernel`) with the kernel's facility count; the tag `kernel:` in a text proves nothing.
"""

from __future__ import annotations

import json
import os
import select
import subprocess
from pathlib import Path
from typing import Any, Optional, Sequence

from agent.child import find_program
from agent.clock import SYSTEM_PATH
from agent.collect.kmsg_read import Source, SourceRefused, open_source

COMMAND = ("journalctl", "--dmesg", "--boot", "--follow", "--no-tail", "--output=json", "--no-pager", "--quiet")
LINE_MOST = 1 << 20
SAME_MICROSECOND = 64  # entries of one microsecond that can be told apart


class Journal:
    """Gives the journal's kernel entries as kernel log records. `contiguous` is false: numbers have gaps by nature.

    A record's sequence is made of its microsecond and its place among the entries of that microsecond; reading the
    boot again from its start gives the same numbers.
    """

    contiguous = False

    def __init__(self, command: Sequence[str] = COMMAND) -> None:
        self._process = subprocess.Popen(
            list(command), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
        assert self._process.stdout is not None
        self._descriptor = self._process.stdout.fileno()
        os.set_blocking(self._descriptor, False)
        self._buffer = b""
        self._usec, self._place = -1, 0

    def read(self) -> object:
        """One record as text, None when nothing waits. Raises OSError when journalctl has ended."""
        while True:
            line = self._line()
            if line is None:
                return None
            record = self._record(line)
            if record is not None:
                return record

    def _line(self) -> Optional[bytes]:
        while b"\n" not in self._buffer:
            try:
                chunk = os.read(self._descriptor, 65536)
            except BlockingIOError:
                return None
            if not chunk:
                raise OSError("journalctl has ended")
            self._buffer = (self._buffer + chunk)[-LINE_MOST:]
        line, self._buffer = self._buffer.split(b"\n", 1)
        return line

    def _record(self, line: bytes) -> Optional[str]:
        try:
            entry = json.loads(line)
            usec = int(entry["_SOURCE_MONOTONIC_TIMESTAMP"])
            facility = int(entry.get("SYSLOG_FACILITY", -1))
            priority = int(entry.get("PRIORITY", 6))
        except (ValueError, KeyError, TypeError, RecursionError):
            return None
        if not isinstance(entry, dict) or entry.get("_TRANSPORT") != "kernel" or facility < 0:
            return None
        self._place = min(self._place + 1, SAME_MICROSECOND - 1) if usec == self._usec else 0
        self._usec = usec
        return f"{facility << 3 | priority & 7},{usec * SAME_MICROSECOND + self._place},{usec},-;{_escaped(entry)}"

    def wait(self, timeout_s: float) -> bool:
        """Whether something can be read within the time."""
        return b"\n" in self._buffer or bool(select.select([self._descriptor], [], [], timeout_s)[0])

    def close(self) -> None:
        """Ends journalctl."""
        self._process.kill()
        self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()


def _escaped(entry: dict[str, Any]) -> str:
    """The message as /dev/kmsg shows it: control characters and bytes beyond ASCII as `\\xNN`."""
    message = entry.get("MESSAGE", "")
    if isinstance(message, list):  # journald gives bytes that are no UTF-8 as numbers
        data = bytes(number & 0xFF for number in message if isinstance(number, int))
    else:
        data = str(message).encode("utf-8", "surrogateescape")
    return "".join(chr(b) if 0x20 <= b < 0x7F and b != 0x5C else f"\\x{b:02x}" for b in data)


def open_kernel_log(path: Path) -> Source:
    """/dev/kmsg, or the journal where that is refused and journalctl is here. Raises as `open_source` does."""
    try:
        return open_source(path)
    except SourceRefused:
        program = find_program(COMMAND[0], SYSTEM_PATH)
        if program is None:
            raise
        return Journal((program, *COMMAND[1:]))
