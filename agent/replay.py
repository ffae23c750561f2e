"""`replay`: a recording goes through the real readers, and what they make of it comes out as JSON lines.

The formats are those of the field cases: kernel log records one per line with `READ ->`, `STAT`, `BOOT` and
`RESTART AGENT` for what the system did; `path:content` lines of a sysfs with `# +30s` between samples; one JSON object
per NVML call. A bug report can carry its own reproduction that way.
"""

from __future__ import annotations

import errno
import json
import os
import re
import shutil
import tempfile
from pathlib import Path
from typing import Any, Callable, Iterator

from agent.clock import Instant, hash_boot_id
from agent.collect.ib import IbCollector
from agent.collect.kmsg import KmsgCollector
from agent.collect.kmsg_read import Device, SourceAbsent
from agent.errors import UsageError

KINDS = ("kmsg", "nvml", "ib")
REPLAY_AT_MS = 1_796_000_407_500  # replays need a wall clock; any will do
_RECORD_TIME = re.compile(r"\d+,\d+,(\d+),")
_NOT_RECORDS = ("NVML ", "NVML:", "EXPECTED ", "SERVER ")

Line = dict[str, Any]


class ReplayClock:
    """A clock that stands one second behind the newest record of a recording."""

    def __init__(self, newest_usec: int) -> None:
        self._mono = newest_usec // 1000 + 1000
        self.boot_id = hash_boot_id("replay")

    def now(self) -> Instant:
        """The same instant always, on the boot that the recording is in."""
        return Instant(REPLAY_AT_MS, self._mono, self._mono, self.boot_id, REPLAY_AT_MS - self._mono)


def replay(kind: str, text: str) -> Iterator[Line]:
    """What the readers of `kind` make of a recording."""
    if kind == "kmsg":
        return replay_kmsg(text)
    if kind == "ib":
        return replay_ib(text)
    if kind == "nvml":
        from agent.replay_nvml import replay_nvml

        lines: Iterator[Line] = replay_nvml(text)
        return lines
    raise UsageError(f"--kind must be one of {', '.join(KINDS)}")


# -- kernel log ------------------------------------------------------------------------------------------------------


def replay_kmsg(text: str) -> Iterator[Line]:
    """Events, gaps and source states of a recorded kernel log."""
    newest = max((int(m.group(1)) for m in map(_RECORD_TIME.match, text.splitlines()) if m), default=0)
    clock = ReplayClock(newest)
    memory: dict[str, Any] = {}
    for segment in _segments(text.splitlines()):
        if segment[0].startswith("BOOT "):
            clock.boot_id = hash_boot_id(segment[0][5:])
            segment = segment[1:]
        collector, cleanup = _kmsg_collector(segment, clock)
        collector.restore(memory)
        try:
            yield from _read_out(collector, clock)
            memory = collector.collect(clock.now()).memory or memory
        finally:
            collector.close()
            cleanup()


def _segments(lines: list[str]) -> Iterator[list[str]]:
    """The recording cut where the agent or the machine starts anew."""
    current: list[str] = []
    for line in lines:
        if line.strip() == "RESTART AGENT" or line.startswith("BOOT "):
            if current:
                yield current
            current = [line] if line.startswith("BOOT ") else []
        elif line.strip():
            current.append(line)
    if current:
        yield current


def _kmsg_collector(lines: list[str], clock: ReplayClock) -> tuple[KmsgCollector, Callable[[], None]]:
    """A collector that will read these lines: through a file, or call by call where the recording scripts calls."""
    lines = [line for line in lines if not line.startswith(_NOT_RECORDS)]
    if any(line.startswith(("READ ->", "STAT ", "OPEN")) for line in lines):
        script = [line for line in lines if not line.startswith("OPEN")]
        return KmsgCollector(Path("/dev/kmsg"), clock, start=False, opener=lambda _p: _scripted(script)), lambda: None
    directory = tempfile.mkdtemp(prefix="goodput-replay-")
    path = Path(directory) / "kmsg"
    path.write_text("\n".join(lines) + "\n")
    return KmsgCollector(path, clock, start=False), lambda: shutil.rmtree(directory, ignore_errors=True)


def _scripted(lines: list[str]) -> Device:
    """The real device reader over scripted results of its system calls."""
    results: list[object] = []
    for line in lines:
        stat_match = re.fullmatch(r"STAT \S+ -> char (\d+):(\d+)", line.strip())
        if stat_match is not None and (stat_match.group(1), stat_match.group(2)) != ("1", "11"):
            raise SourceAbsent(f"device {stat_match.group(1)}:{stat_match.group(2)}")
        answer = re.match(r"READ -> (.*)", line)
        if answer is None:
            continue
        if answer.group(1) == "EOF":
            results.append(b"")
        elif answer.group(1).startswith("errno="):
            number = getattr(errno, answer.group(1)[6:].strip(), errno.EIO)
            results.append(OSError(number, os.strerror(number)))
        else:
            results.append(answer.group(1).encode() + b"\n")

    def read(_descriptor: int, _size: int) -> bytes:
        if not results:
            raise BlockingIOError(errno.EAGAIN, "nothing waits")
        result = results.pop(0)
        if isinstance(result, OSError):
            raise result
        assert isinstance(result, bytes)
        return result

    return Device(os.open("/dev/null", os.O_RDONLY), read)


def _read_out(collector: KmsgCollector, clock: ReplayClock) -> Iterator[Line]:
    reading = collector.collect(clock.now())
    while True:
        for event in reading.facts["events"]:
            yield {"event": event}
        status = reading.status
        if not reading.facts["events"]:
            break
        reading = collector.collect(clock.now())
        reading.status = status if status != "ok" else reading.status
    for gap in collector.gaps:
        yield {"gap": gap}
    yield {"source": "kmsg", "status": reading.status, "spoofed": collector.spoofed}


# -- InfiniBand ------------------------------------------------------------------------------------------------------


def replay_ib(text: str) -> Iterator[Line]:
    """The ports of each sample of a recorded sysfs."""
    with tempfile.TemporaryDirectory(prefix="goodput-replay-") as directory:
        root = Path(directory)
        collector = IbCollector(root / "sys", lambda _kind, value: value)
        for number, lines in enumerate(re.split(r"^# \+\d+s *\n", text, flags=re.MULTILINE)):
            build_tree(root, lines.splitlines())
            at = Instant(REPLAY_AT_MS + 15_000 * number, 15_000 * number, 15_000 * number, "replay", REPLAY_AT_MS)
            reading = collector.collect(at)
            yield {"sample": number, "ports": reading.facts["ib_ports"]}
            yield {"source": "ib", "status": reading.status}


def build_tree(root: Path, lines: list[str]) -> None:
    """Writes `path:content` lines below `root`; `path!ERRNO` makes reading fail, `readlink A -> B` a link."""
    for line in lines:
        match = re.fullmatch(r"readlink (/sys/\S+) -> (\S+)", line)
        if match is not None:
            _link(_inside(root, match.group(1)), match.group(2), root)
    for line in lines:
        failing = re.fullmatch(r"(/sys/[^:!]+)!([A-Z0-9]+)", line)
        if failing is not None:
            _remove(_inside(root, failing.group(1)))
            if failing.group(2) != "ENOENT":
                _inside(root, failing.group(1)).mkdir(parents=True)  # reading a folder fails, too
            continue
        path, found, content = _split(line)
        if found:
            target = _inside(root, path)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(content + "\n")


def _split(line: str) -> tuple[str, bool, str]:
    """(path, whether this is a content line, content): split at the first colon behind the file's name."""
    match = re.match(r"(/sys/(?:[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]|[^:/]+|/)+):(.*)", line)
    return (match.group(1), True, match.group(2)) if match else ("", False, "")


def _inside(root: Path, path: str) -> Path:
    """The path below `root`. Raises UsageError if it leads out of it."""
    parts = Path(path).parts[1:]
    if ".." in parts:
        raise UsageError(f"a recording may not leave its folder: {path[:100]}")
    return root.joinpath(*parts)


def _link(link: Path, target: str, root: Path) -> None:
    destination = Path(os.path.normpath(link.parent / target))
    if root not in destination.parents:
        raise UsageError("a recording may not link out of its folder")
    link.parent.mkdir(parents=True, exist_ok=True)
    destination.mkdir(parents=True, exist_ok=True)
    if not link.exists():
        os.symlink(destination, link)


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    elif path.exists() or path.is_symlink():
        path.unlink()


def to_json_lines(lines: Iterator[Line]) -> Iterator[str]:
    """One JSON text per line."""
    return (json.dumps(line, sort_keys=True) for line in lines)
