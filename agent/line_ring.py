"""Lines kept on the node alone, in a file of its owner's that is bounded in days and size: the raw kernel lines of the
node's events, and the server's receipts.

They prove to the owner what an event was made from and what the server took. They never travel.
"""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path

from agent.identity import safe_file

DAYS = 120
MOST_BYTES = 8_000_000
LINE_MOST = 2048


class LineRing:
    """Appends lines to a file (0600), `events.log`; when it is half full the older half becomes `events.log.1`."""

    def __init__(self, directory: Path, most_bytes: int = MOST_BYTES, name: str = "events.log") -> None:
        self._path = directory / name
        self._old = directory / f"{name}.1"
        self._most = most_bytes
        for path in (self._path, self._old):
            safe_file(path)
        self._forget_old()

    def keep(self, at_ms: int, line: str) -> None:
        """Keeps one line with the instant of its coming. A full disk loses the line, never the event."""
        stamp = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(at_ms / 1000))
        data = f"{stamp} {line[:LINE_MOST]}\n".encode("ascii", "backslashreplace")
        with contextlib.suppress(OSError):
            descriptor = os.open(
                str(self._path), os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600
            )
            try:
                os.write(descriptor, data)
                size = os.fstat(descriptor).st_size
            finally:
                os.close(descriptor)
            if size > self._most // 2:
                os.replace(self._path, self._old)

    def _forget_old(self) -> None:
        with contextlib.suppress(OSError):
            if time.time() - self._old.stat().st_mtime > DAYS * 86_400:
                self._old.unlink()
        with contextlib.suppress(OSError):
            if time.time() - self._path.stat().st_mtime > DAYS * 86_400:
                self._path.unlink()
