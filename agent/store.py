"""Where samples go: the outbox on disk, or a small one in memory while the disk takes nothing.

Samples are never refused: when the disk is full or the file is damaged the agent goes on and says so.
"""

from __future__ import annotations

import contextlib
import logging
import sqlite3
import threading
from pathlib import Path
from typing import Any, Callable, Optional

from agent.outbox import LIMIT_BYTES, Batch, Outbox
from agent.outbox_file import (
    OutboxDamaged,
    OutboxFull,
    keep_reserve,
    last_known_seq,
    salvage,
    salvage_samples,
    set_aside,
    spend_reserve,
)

log = logging.getLogger("goodput.store")

VOLATILE_BYTES = 4_000_000


class Store:
    """The outbox of one node. `trouble` is empty, or says in a few words why it is not as it should be."""

    def __init__(
        self,
        directory: Path,
        limit_bytes: int = LIMIT_BYTES,
        hw_id: Optional[str] = None,
        on_other_machine: Callable[[], None] = lambda: None,
    ) -> None:
        """`on_other_machine` is called before a new outbox begins because this one was another machine's."""
        self.path = directory / "outbox.sqlite"
        self._hw_id = hw_id
        self._on_other_machine = on_other_machine
        self._reserve = directory / "reserve.bin"
        self._limit = limit_bytes
        self._lock = threading.RLock()
        self._volatile: Optional[Outbox] = None
        self.trouble = ""
        self.resets: list[dict[str, Any]] = []
        self._disk = self._open()
        keep_reserve(self._reserve)

    def _open(self) -> Optional[Outbox]:
        try:
            return self._claimed(Outbox(self.path, self._limit))
        except OutboxDamaged as damage:
            return self._replaced(str(damage))
        except OutboxFull as full:
            self._complain(str(full))
            return None

    def _claimed(self, outbox: Outbox) -> Optional[Outbox]:
        """The outbox if this machine made it, else a new one: a copied disk must not give a seq twice."""
        if self._hw_id is None:
            return outbox
        maker = outbox.get("hw_id")
        if maker is None:
            outbox.put("hw_id", self._hw_id)
        elif maker != self._hw_id:
            outbox.close()
            self._on_other_machine()
            return self._replaced("it was made on another machine")
        return outbox

    def _replaced(self, why: str) -> Optional[Outbox]:
        """A new outbox in place of a damaged one; None, and memory is used, while the disk allows not even that."""
        try:
            self._begin_anew(why)
            return Outbox(self.path, self._limit)
        except (OutboxFull, OutboxDamaged, OSError, sqlite3.Error) as error:
            self._complain(f"{type(error).__name__}: {error}")
            return None

    def _begin_anew(self, why: str) -> None:
        aside = set_aside(self.path)
        seq = last_known_seq(aside)
        log.error(
            "the outbox cannot be used (%s): set aside as %s, last known seq %s; a new one begins", why, aside, seq
        )
        self.resets.append({"file": aside.name, "last_seq": seq, "why": why})
        fresh = Outbox(self.path, self._limit)
        saved = fresh.adopt(salvage(aside))
        fresh.adopt_samples(list(salvage_samples(aside)))
        fresh.put("outbox_reset", {"file": aside.name, "last_seq": seq, "salvaged": saved, "why": why[:200]})
        if self._hw_id is not None:
            fresh.put("hw_id", self._hw_id)
        fresh.close()

    def _complain(self, why: str) -> None:
        if not self.trouble:
            log.error("the outbox takes nothing (%s): going on in memory; free some disk space", why)
        self.trouble = "the disk is full or cannot be written"

    @property
    def outbox(self) -> Outbox:
        """The outbox in use now."""
        with self._lock:
            if self._volatile is not None:
                return self._volatile
            if self._disk is None:
                self._volatile = Outbox(self.path, VOLATILE_BYTES, volatile=True)
                return self._volatile
            return self._disk

    @property
    def healthy(self) -> bool:
        """Whether what is committed now survives a power cut."""
        return self._volatile is None and self._disk is not None

    def _guarded(self, action: Callable[[Outbox], Any]) -> Any:
        """Runs `action` on the disk's outbox; on damage on a new one; without disk on one in memory."""
        with self._lock:
            if self._volatile is not None:
                self._return_to_disk()
            try:
                return action(self.outbox)
            except OutboxFull as full:
                spend_reserve(self._reserve)
                with contextlib.suppress(OutboxFull, OutboxDamaged):
                    return action(self.outbox)
                self._complain(str(full))
            except OutboxDamaged as damage:
                if self._disk is not None:
                    self._disk.close()
                self._disk = self._replaced(str(damage))
                with contextlib.suppress(OutboxFull, OutboxDamaged):
                    return action(self.outbox)
                self._complain(str(damage))
            if self._volatile is None:
                self._volatile = Outbox(self.path, VOLATILE_BYTES, volatile=True)
            return action(self._volatile)

    def _return_to_disk(self) -> None:
        """Moves what memory holds to the disk once it takes data again."""
        volatile = self._volatile
        if volatile is None:
            return
        try:
            if self._disk is None:
                self._disk = self._open()
                if self._disk is None:
                    return
            self._disk.put("probe", 1)
        except OutboxDamaged as damage:
            if self._disk is not None:
                self._disk.close()
            self._disk = self._replaced(str(damage))
            if self._disk is None:
                return
        except (OutboxFull, sqlite3.Error):
            return
        try:
            volatile.assemble(0)
            self._disk.adopt(("", *row[1:]) for row in volatile.queued())
        except (OutboxFull, OutboxDamaged):
            return  # memory keeps it; a damaged file is replaced at the next look
        volatile.close()
        self._volatile = None
        self.trouble = ""
        keep_reserve(self._reserve)
        log.warning("the outbox is on disk again")

    def add_sample(self, interval: dict[str, Any], head: dict[str, Any], memory: dict[str, Any]) -> None:
        """Keeps one sample; on disk if at all possible."""
        if not self.healthy:
            interval = {**interval, "sources": {**interval.get("sources", {}), "outbox": "error"}}
        self._guarded(lambda outbox: outbox.add_sample(interval, head, memory))

    def assemble(self, now_ms: int) -> int:
        """Makes batches of the waiting samples."""
        return int(self._guarded(lambda outbox: outbox.assemble(now_ms)))

    def memory(self, source: str) -> dict[str, Any]:
        """What a collector committed with its last sample."""
        value = self._guarded(lambda outbox: outbox.get(f"memory.{source}", {}))
        return value if isinstance(value, dict) else {}

    def is_new_boot(self, boot_id: str) -> bool:
        """Whether no sample of this boot was kept yet."""
        return bool(self._guarded(lambda outbox: outbox.is_new_boot(boot_id)))

    def note_last_alive(self, ts: int, boot_id: str) -> None:
        """Takes another witness of how long the boot before `boot_id` lived."""
        self._guarded(lambda outbox: outbox.note_last_alive(ts, boot_id))

    def keep_memory(self, source: str, value: dict[str, Any]) -> None:
        """Keeps a value for `memory`, outside a sample."""
        self._guarded(lambda outbox: outbox.put(f"memory.{source}", value))

    def lease(self, live_after_ms: int, live_only: bool = False) -> Optional[tuple[Outbox, Batch]]:
        """The next batch to send, a live one or none with `live_only`, and the outbox that holds it."""
        outbox = self.outbox
        batch = outbox.lease(live_after_ms, live_only=live_only)
        if batch is None and self._volatile is not None and self._disk is not None:
            outbox = self._disk
            batch = outbox.lease(live_after_ms, live_only=live_only)
        return None if batch is None else (outbox, batch)

    def close(self) -> None:
        """Closes the files; what only memory holds is tried on the disk once more."""
        with self._lock:
            if self._volatile is not None:
                self._return_to_disk()
                self._volatile = None
            if self._disk is not None:
                self._disk.close()
