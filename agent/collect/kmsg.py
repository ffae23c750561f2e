"""Kernel events: a thread reads the log without pause, a sample takes what has come since the one before.

An event keeps its own time. What was in the log before this process looked is marked backlog. Equal lines of one
slot are one event with a count. The position (boot, sequence) is committed with the sample that carries the events,
so a restart neither repeats nor loses one.
"""

from __future__ import annotations

import logging
import threading
import time
from pathlib import Path
from typing import Any, Callable, Optional

from agent.clock import Clock, Instant
from agent.collect.base import ABSENT, ERROR, LOST, OK, Memory, Reading
from agent.collect.journal_read import open_kernel_log
from agent.collect.kmsg_parse import Record, parse_event, parse_record
from agent.collect.kmsg_read import Lost, Source, SourceAbsent, SourceRefused, drain
from agent.schedule import SLOT_MS

log = logging.getLogger("goodput.kmsg")

EVENTS_MOST = 240  # per sample; the rest follow in the next ones
PENDING_MOST = 20_000
REOPEN_S = 60.0
_READ_AT_ONCE = 4096
_IDLE_S = 1.0
_LATE_MS = 1000  # a record this much older than the freshest was not read at once


class PrintkClock:
    """Turns a record's microseconds into CLOCK_MONOTONIC.

    The kernel stamps records with a clock of its own that drifts from CLOCK_MONOTONIC over weeks. The smallest
    difference seen in the last hour or two of live reading is the drift; a record read late differs by more and is
    put back by it.
    """

    def __init__(self) -> None:
        self._least: dict[int, int] = {}  # hour of CLOCK_MONOTONIC -> smallest difference in ms

    def live(self, usec: int, mono_ms: int) -> int:
        """Monotonic ms of a record that was just read."""
        difference = mono_ms - usec // 1000
        hour = mono_ms // 3_600_000
        recent = {h: least for h, least in self._least.items() if h >= hour - 1}
        drift = min(recent.values()) if recent else difference
        self._least = {**recent, hour: min(recent.get(hour, difference), difference)}
        return mono_ms if difference - drift <= _LATE_MS else usec // 1000 + drift

    @staticmethod
    def backlog(usec: int) -> int:
        """Monotonic ms of a record that waited in the ring when this process began."""
        return usec // 1000


class KmsgCollector:
    """Kernel events of this machine. `start` false: no thread, `collect` itself reads what waits."""

    source = "kmsg"

    def __init__(
        self,
        path: Path,
        clock: Clock,
        start: bool = True,
        opener: Callable[[Path], Source] = open_kernel_log,
        keep_line: Callable[[int, str], None] = lambda at, line: None,
        slices: Callable[[str, int], Optional[int]] = lambda bus_id, instance: None,
    ) -> None:
        self._path = path
        self._clock = clock
        self._opener = opener
        self._keep_line = keep_line
        self._slices = slices
        self._lock = threading.Lock()
        self._events: list[tuple[int, dict[str, Any]]] = []  # (sequence of its last line, event)
        self._source: Optional[Source] = None
        self._status = ""
        self._printk = PrintkClock()
        self._position: Optional[tuple[str, int]] = None  # boot id, sequence of the newest record read
        self._check_gap = False  # the ring was overwritten, or this is the first look after a restart
        self._live = False
        self._threaded = start
        self._next_open = 0.0
        self._stop = threading.Event()
        self._thread: Optional[threading.Thread] = None
        self.spoofed = 0  # lines of a facility that userspace can write
        self.gaps: list[dict[str, int]] = []
        self._told_gaps = 0

    def restore(self, memory: Memory) -> None:
        """Goes on behind the record that was committed last, if this is still the same boot."""
        if isinstance(memory.get("seq"), int) and isinstance(memory.get("boot"), str):
            self._position = (memory["boot"], memory["seq"])

    # -- reading -------------------------------------------------------------------------------------------------

    def _open(self) -> None:
        if self._source is not None or time.monotonic() < self._next_open:
            return
        self._next_open = time.monotonic() + REOPEN_S
        try:
            self._source = self._opener(self._path)
        except SourceAbsent as error:
            self._fail(ABSENT, str(error))
        except SourceRefused as error:
            self._fail(ERROR, str(error))
        else:
            self._status, self._live, self._check_gap = OK, False, True

    def _fail(self, status: str, why: str) -> None:
        if self._status != status:
            log.warning("no kernel log: %s", why)
        self._status = status
        if self._source is not None:
            self._source.close()
            self._source = None

    def read_waiting(self) -> None:
        """Reads all records that wait now."""
        with self._lock:
            self._open()
            if self._source is None:
                return
            count = _READ_AT_ONCE
            while count == _READ_AT_ONCE:
                count = 0
                now = self._clock.now()  # once for all that waits: a storm has thousands of lines
                try:
                    for item in drain(self._source, _READ_AT_ONCE):
                        count += 1
                        self._take(item, now)
                except SourceAbsent as error:
                    self._fail(ABSENT, str(error))
                    return
                except OSError as error:
                    self._fail(ERROR, type(error).__name__)
                    return
            self._live = True

    def _take(self, item: object, now: Instant) -> None:
        if isinstance(item, Lost):
            self._check_gap = True
            return
        record = parse_record(str(item))
        if record is None:
            return
        if self._position is not None and self._position[0] == now.boot_id:
            if record.seq <= self._position[1]:
                return
            self._note_gap(record.seq)
        self._check_gap = False
        self._position = (now.boot_id, record.seq)
        if record.facility != 0:
            self.spoofed += record.text.startswith("NVRM: ")
            return
        if self._live:
            mono = self._printk.live(record.usec, now.mono)
        else:
            mono = self._printk.backlog(record.usec)
        event = parse_event(record.text)
        if event is not None:
            self._keep_line(now.ts, record.text)
            self._add(record, event, mono, now)

    def _note_gap(self, seq: int) -> None:
        """After an overwritten ring, or at the first record after a restart, missing numbers are lost records."""
        contiguous = getattr(self._source, "contiguous", True)
        if self._check_gap and contiguous and self._position is not None:
            last = self._position[1]
            lost = seq - last - 1
            if lost > 0:
                self.gaps.append({"after_seq": last, "before_seq": seq, "lost": lost})
                log.warning("%d kernel log records were overwritten before they were read", lost)

    def _add(self, record: Record, event: dict[str, Any], mono: int, now: Instant) -> None:
        # a time ahead of now cannot be: the record is of this boot and has been read
        mono = max(0, min(mono, now.mono))
        event["at"] = max(0, now.ts - (now.mono - mono))
        if not self._live:
            event["at"] = max(0, now.boot_at + mono + (now.boottime - now.mono))
            event["backlog"] = True
        event["mono"] = mono
        for index in range(len(self._events) - 1, max(-1, len(self._events) - 64), -1):
            _seq, earlier = self._events[index]
            if _same(earlier, event):
                earlier["count"] = earlier.get("count", 1) + 1
                self._events[index] = (record.seq, earlier)
                return
        if len(self._events) < PENDING_MOST:
            self._events.append((record.seq, event))

    def _loop(self) -> None:
        while not self._stop.is_set():
            try:
                self.read_waiting()
                source = self._source
                if source is None or not source.wait(_IDLE_S):
                    self._stop.wait(_IDLE_S if source is None else 0.0)
            except Exception:  # a thread that ended would be silence under the name of health
                log.exception("reading the kernel log failed; it is opened anew")
                with self._lock:
                    self._fail(ERROR, "unexpected")
                self._stop.wait(_IDLE_S)

    # -- sampling ------------------------------------------------------------------------------------------------

    def collect(self, at: Instant) -> Reading:
        """The events since the previous sample."""
        if self._threaded and self._thread is None:
            self.read_waiting()
            self._thread = threading.Thread(target=self._loop, name="kmsg", daemon=True)
            self._thread.start()
        if not self._threaded:
            self.read_waiting()
        with self._lock:
            taken, self._events = self._events[:EVENTS_MOST], self._events[EVENTS_MOST:]
            status = self._status
            if len(self.gaps) > self._told_gaps and status == OK:
                status = LOST
            self._told_gaps = len(self.gaps)
            memory: Memory = {}
            if self._position is not None:
                boot, seq = self._position
                if self._events:  # told later: a restart reads them again
                    seq = min(number for number, _event in self._events) - 1
                memory = {"boot": boot, "seq": seq}
        events = [event for _seq, event in taken]
        for event in events:
            if "instance" in event and "pci_bus_id" in event:
                slices = self._slices(event["pci_bus_id"], int(event["instance"].split("/")[0]))
                if slices is not None:
                    event["slices"] = slices
        return Reading(self.source, status, {"events": events}, memory)

    def close(self) -> None:
        """Stops the thread and closes the log."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join(2 * _IDLE_S)
        with self._lock:
            if self._source is not None:
                self._source.close()
                self._source = None


def _same(one: dict[str, Any], other: dict[str, Any]) -> bool:
    """Whether two events are one fault told twice: equal but for their time, and in one slot."""
    if one["at"] // SLOT_MS != other["at"] // SLOT_MS:
        return False
    ignored = ("at", "mono", "count")
    return {k: v for k, v in one.items() if k not in ignored} == {k: v for k, v in other.items() if k not in ignored}
