"""From samples to batches: each sample is committed as it is taken, batches of up to four are made of committed ones.

`seq` counts the batches of one incarnation of the file (named by `agent_id`) without gaps.
"""

from __future__ import annotations

import json
import logging
from typing import Any, Optional, Sequence

from agent import failpoints, wire
from agent.outbox_base import OutboxBase
from agent.outbox_file import translated

log = logging.getLogger("goodput.outbox")

FIRST_BATCHES = 10  # of a boot, which carry `last_alive`

# WireError and what json, msgpack and gzip say of bytes that a disk has changed are all of these
_UNUSABLE = (ValueError, TypeError, OverflowError, AttributeError, RecursionError)


class OutboxSamples(OutboxBase):
    """The part of an outbox that takes samples in."""

    def add_sample(self, interval: dict[str, Any], head: dict[str, Any], memory: dict[str, Any]) -> None:
        """Commits one sample, the batch keys that hold for it, and the collectors' memory, in one transaction."""
        import msgpack

        body = msgpack.packb(interval, use_bin_type=True)
        ts, boot_id = interval["ts"], head.get("boot_id")
        failpoints.reach("before_sample_commit")
        with self.transaction():
            self._room.make(len(body), ts)
            alive = self.get("alive")
            if alive is not None and alive["boot_id"] != boot_id:
                known = self.get("boot_before") or {}
                earlier = known["last_alive"] if known.get("boot_id") == boot_id else 0
                self._note_boot(max(alive["ts"], earlier), boot_id)
            self._put("alive", {"boot_id": boot_id, "ts": ts})
            for source, value in memory.items():
                self._put(f"memory.{source}", value)
            self._db.execute(
                "INSERT INTO samples (ts, head, body) VALUES (?, ?, ?)",
                (ts, json.dumps(head, sort_keys=True), body),
            )
        failpoints.reach("after_sample_commit")

    def is_new_boot(self, boot_id: str) -> bool:
        """Whether no sample of this boot was committed yet."""
        alive = self.get("alive")
        return alive is None or alive["boot_id"] != boot_id

    def note_last_alive(self, ts: int, boot_id: str) -> None:
        """Takes another witness of how long the boot before `boot_id` lived; the newest of all witnesses counts."""
        with self.transaction():
            known = self.get("boot_before") or {}
            earlier = known["last_alive"] if known.get("boot_id") == boot_id else 0
            self._note_boot(max(ts, earlier), boot_id)

    def _note_boot(self, last_alive: int, boot_id: Optional[str]) -> None:
        self._put("boot_before", {"last_alive": last_alive, "boot_id": boot_id, "batches": 0})

    def sample_count(self) -> int:
        """Samples not yet in a batch."""
        with self._lock, translated():
            return int(self._db.execute("SELECT count(*) FROM samples").fetchone()[0])

    def assemble(self, now_ms: int) -> int:
        """Makes batches of all waiting samples, oldest first, at most four each and one boot each; their number."""
        made = 0
        while self._assemble_one(now_ms):
            made += 1
        return made

    def _assemble_one(self, now_ms: int) -> bool:
        with self._lock, translated():
            rows = self._db.execute(
                "SELECT id, head, body FROM samples ORDER BY id LIMIT ?", (wire.INTERVALS_PER_BATCH,)
            ).fetchall()
        rows = [row for row in rows if row[1] == rows[0][1]]
        if not rows:
            return False
        failpoints.reach("before_batch_commit")
        with self.transaction():
            try:
                batch, body, sha256 = self._packed(rows)
            except _UNUSABLE:
                # one sample that cannot be sent must stop neither those beside it nor those behind it
                rows = rows[:1]
                try:
                    batch, body, sha256 = self._packed(rows)
                except _UNUSABLE as error:
                    log.error("a sample cannot be sent and is given up: %s", error)
                    self._put("unencodable", int(self.get("unencodable", 0)) + 1)
                    self._db.execute("DELETE FROM samples WHERE id=?", (rows[0][0],))
                    return True
            self._room.make(len(body), now_ms)
            self._db.execute(
                "INSERT INTO batches (agent_id, seq, sha256, body, made_at) VALUES (?, ?, ?, ?, ?)",
                (self.agent_id, batch.get("seq"), sha256, body, now_ms),
            )
            self._db.executemany("DELETE FROM samples WHERE id=?", [(row[0],) for row in rows])
            if "seq" in batch:
                self._put("seq", batch["seq"])
        failpoints.reach("after_batch_commit")
        return True

    def _packed(self, rows: Sequence[tuple[int, str, bytes]]) -> tuple[dict[str, Any], bytes, str]:
        """(batch, gzip member, hash) of these samples. Raises one of _UNUSABLE if one of them cannot be sent."""
        import msgpack

        batch: dict[str, Any] = json.loads(rows[0][1])
        batch["intervals"] = [msgpack.unpackb(row[2], raw=False) for row in rows]
        self._add_batch_facts(batch)
        body, sha256 = wire.pack(batch)
        return batch, body, sha256

    def _add_batch_facts(self, batch: dict[str, Any]) -> None:
        batch["schema_version"] = wire.SCHEMA_VERSION
        if not self.volatile:  # a seq that no disk remembers could be given twice
            batch["agent_id"] = self.agent_id
            batch["seq"] = int(self.get("seq", 0)) + 1
        sync = self.get("sync")
        if sync is not None and sync["boot_id"] == batch.get("boot_id"):
            batch["sync"] = {"received_at": sync["received_at"], "boottime": sync["boottime"]}
        before = self.get("boot_before")
        if before is not None and before["boot_id"] == batch.get("boot_id") and before["batches"] < FIRST_BATCHES:
            batch["last_alive"] = before["last_alive"]
            before["batches"] += 1
            self._put("boot_before", before)
