"""Reading /dev/kmsg: one record per read, never blocking, going on where an earlier process stopped.

A real kernel log is character device 1:11. A regular file or a FIFO (tests, `replay`) is read line by line; a line
that begins with a blank belongs to the record before it.
"""

from __future__ import annotations

import errno
import os
import select
import stat
from pathlib import Path
from typing import Iterator, Optional, Protocol

KMSG_DEVICE = (1, 11)
FIRST_BUFFER = 8192
LARGEST_BUFFER = 1 << 20


class SourceAbsent(Exception):
    """There is no kernel log here (no such file, or a stand-in such as /dev/null)."""


class SourceRefused(Exception):
    """The kernel log is there but may not be read."""


class Lost:
    """The ring was overwritten before it was read: records are missing from here on."""


class Source(Protocol):
    """Gives what one read gives: a record's text, Lost, or None when nothing waits."""

    def read(self) -> object:
        """One record as text, a Lost, or None. Raises SourceAbsent or OSError."""
        ...

    def wait(self, timeout_s: float) -> bool:
        """Whether something can be read within the time."""
        ...

    def close(self) -> None:
        """Lets go of the file."""
        ...


class Device:
    """The kernel's own device, or any descriptor that gives one record per read. `read_call` is os.read."""

    def __init__(self, descriptor: int, read_call: object = None) -> None:
        self._descriptor = descriptor
        self._read = read_call if callable(read_call) else os.read
        self._size = FIRST_BUFFER

    def read(self) -> object:
        """One record. EPIPE (overwritten) is Lost, EINVAL asks for a larger buffer, EAGAIN is None."""
        while True:
            try:
                data = self._read(self._descriptor, self._size)
            except BlockingIOError:
                return None
            except OSError as error:
                if error.errno == errno.EPIPE:
                    return Lost()
                if error.errno == errno.EINVAL and self._size < LARGEST_BUFFER:
                    self._size *= 4
                    continue
                if error.errno in (errno.EAGAIN, errno.EINTR):
                    return None
                raise
            if not data:
                raise SourceAbsent("the device ends: this is no kernel log")
            return data.decode("ascii", "backslashreplace")

    def wait(self, timeout_s: float) -> bool:
        """Waits with poll()."""
        poller = select.poll()
        poller.register(self._descriptor, select.POLLIN | select.POLLERR)
        return bool(poller.poll(int(timeout_s * 1000)))

    def close(self) -> None:
        """Closes the descriptor."""
        os.close(self._descriptor)


class LineFile:
    """A file or FIFO with a record per line, read as it grows."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._buffer = b""
        self._pending: Optional[str] = None
        self._ended = False

    def read(self) -> object:
        """The next record with its dictionary lines; a file that does not grow ends the last record."""
        while True:
            line = self._line()
            if line is None:
                record, self._pending = self._pending, None
                return record
            if line.startswith(" "):
                if self._pending is not None:
                    self._pending += "\n" + line
                continue
            record, self._pending = self._pending, line
            if record is not None:
                return record

    def _line(self) -> Optional[str]:
        while b"\n" not in self._buffer:
            try:
                chunk = os.read(self._descriptor, 65536)
            except BlockingIOError:
                return None
            if not chunk:
                line, self._buffer = self._buffer, b""
                return line.decode("ascii", "backslashreplace") if line else None
            self._buffer += chunk
        line, self._buffer = self._buffer.split(b"\n", 1)
        return line.decode("ascii", "backslashreplace")

    def wait(self, timeout_s: float) -> bool:
        """A FIFO is polled; a file is looked at again after the time."""
        poller = select.poll()
        if stat.S_ISFIFO(os.fstat(self._descriptor).st_mode):
            poller.register(self._descriptor, select.POLLIN)
            states = poller.poll(int(timeout_s * 1000))
            if any(state & select.POLLIN for _descriptor, state in states):
                return True
            if not states:
                return False
            poller.unregister(self._descriptor)  # no writer: its hang-up would wake us without end
        poller.poll(int(timeout_s * 1000))
        return True

    def close(self) -> None:
        """Closes the descriptor."""
        os.close(self._descriptor)


def open_source(path: Path) -> Source:
    """Opens the kernel log at its oldest record. Raises SourceAbsent or SourceRefused."""
    try:
        descriptor = os.open(str(path), os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except PermissionError:
        raise SourceRefused(f"{path} may not be read: CAP_SYSLOG is missing") from None
    except OSError as error:
        raise SourceAbsent(f"{path}: {os.strerror(error.errno or 0)}") from None
    info = os.fstat(descriptor)
    if stat.S_ISCHR(info.st_mode):
        if (os.major(info.st_rdev), os.minor(info.st_rdev)) != KMSG_DEVICE:
            os.close(descriptor)
            raise SourceAbsent(f"{path} is no kernel log but device {os.major(info.st_rdev)}:{os.minor(info.st_rdev)}")
        return Device(descriptor)
    if stat.S_ISREG(info.st_mode) or stat.S_ISFIFO(info.st_mode):
        return LineFile(descriptor)
    os.close(descriptor)
    raise SourceAbsent(f"{path} is no kernel log")


def drain(source: Source, most: int) -> Iterator[object]:
    """Everything that waits now, at most `most` items."""
    for _ in range(most):
        item = source.read()
        if item is None:
            return
        yield item
