"""The outbox: samples and batches on disk until a server has receipted them.

A batch leaves only with a receipt, or as a tombstone when the cap is reached.
"""

from __future__ import annotations

from typing import Any, Iterable, Iterator, NamedTuple, Optional

from agent import failpoints, wire
from agent.outbox_base import LIMIT_BYTES
from agent.outbox_file import is_whole, translated
from agent.outbox_room import QUARANTINED, QUEUED, SENT
from agent.outbox_samples import OutboxSamples

__all__ = ["LIMIT_BYTES", "Batch", "Outbox"]

SENT_KEPT_MS = 48 * 3_600_000  # for a server that is restored from a backup
QUARANTINE_MOST = 500  # batches; older ones become tombstones


class Batch(NamedTuple):
    """A batch as it will be sent: `body` is the gzip member, `sha256` the lower-case hex of the bytes inside it."""

    id: int
    seq: Optional[int]
    sha256: str
    body: bytes
    made_at: int
    attempts: int


class Outbox(OutboxSamples):
    """One outbox file: samples go in, batches go out; safe to use from several threads."""

    def queued_count(self) -> int:
        """Batches that wait for a receipt."""
        with self._lock, translated():
            return int(self._db.execute("SELECT count(*) FROM batches WHERE state=?", (QUEUED,)).fetchone()[0])

    def lease(self, live_after_ms: int, skip: Optional[set[int]] = None, live_only: bool = False) -> Optional[Batch]:
        """The next batch to send: the newest if made after `live_after_ms`, else the least tried, oldest first.

        With `live_only` the former or none. The batch cannot be evicted until `release` or one of the outcomes below is
        called.
        """
        columns = "SELECT id, seq, sha256, body, made_at, attempts FROM batches WHERE state=0"
        avoid = skip or set()
        with self._lock, translated():
            row = self._db.execute(f"{columns} ORDER BY id DESC LIMIT 1").fetchone()
            if row is None:
                return None
            if row[4] < live_after_ms or row[5] > 0 or row[0] in avoid:
                if live_only:
                    return None
                rows = self._db.execute(f"{columns} ORDER BY attempts, id LIMIT ?", (len(avoid) + 1,))
                row = next((r for r in rows if r[0] not in avoid), None)
                if row is None:
                    return None
            self._leased.add(row[0])
        return Batch(*row)

    def release(self, batch: Batch, now_ms: int, note: str = "", count: bool = True) -> None:
        """Puts a batch back after a failed attempt. `count` makes those not yet tried go before it."""
        with self._lock:
            self._leased.discard(batch.id)
            if count:
                with self.transaction():
                    self._db.execute(
                        "UPDATE batches SET attempts=attempts+1, changed_at=?, note=? WHERE id=?",
                        (now_ms, note[:200], batch.id),
                    )

    def delivered(self, batch: Batch, now_ms: int, sync: Optional[dict[str, Any]]) -> None:
        """Ends a batch that was receipted; the body stays for 48 h in case that the server goes back in time."""
        failpoints.reach("before_receipt_commit")
        with self.transaction():
            self._db.execute("UPDATE batches SET state=?, changed_at=?, note='' WHERE id=?", (SENT, now_ms, batch.id))
            if sync is not None:
                self._put("sync", sync)
            self._put("delivered", int(self.get("delivered", 0)) + 1)
            self._db.execute("DELETE FROM batches WHERE state=? AND changed_at<?", (SENT, now_ms - SENT_KEPT_MS))
        self._leased.discard(batch.id)
        failpoints.reach("after_receipt_commit")

    def quarantine(self, batch: Batch, now_ms: int, why: str) -> None:
        """Sets a batch aside that the server will never take; the oldest beyond the cap become tombstones."""
        with self.transaction():
            self._db.execute(
                "UPDATE batches SET state=?, changed_at=?, note=? WHERE id=?",
                (QUARANTINED, now_ms, why[:200], batch.id),
            )
            rows = self._db.execute(
                "SELECT id FROM batches WHERE state=? ORDER BY id DESC LIMIT -1 OFFSET ?",
                (QUARANTINED, QUARANTINE_MOST),
            ).fetchall()
            for (row_id,) in rows:
                self._room.bury(row_id, now_ms, "quarantine is full")
        self._leased.discard(batch.id)

    def split(self, batch: Batch, now_ms: int) -> bool:
        """Makes two batches of one that is too large; the first keeps the seq. False if it holds a single sample."""
        import gzip

        import msgpack

        whole = msgpack.unpackb(gzip.decompress(batch.body), raw=False)
        intervals = whole["intervals"]
        if len(intervals) < 2:
            return False
        half = len(intervals) // 2
        with self.transaction():
            body, sha256 = wire.pack({**whole, "intervals": intervals[:half]})
            self._db.execute("UPDATE batches SET body=?, sha256=? WHERE id=?", (body, sha256, batch.id))
            rest = {**whole, "intervals": intervals[half:]}
            if not self.volatile:
                rest["agent_id"], rest["seq"] = self.agent_id, int(self.get("seq")) + 1
                self._put("seq", rest["seq"])
            body, sha256 = wire.pack(rest)
            self._db.execute(
                "INSERT INTO batches (agent_id, seq, sha256, body, made_at) VALUES (?, ?, ?, ?, ?)",
                (self.agent_id, rest.get("seq"), sha256, body, batch.made_at),
            )
        self._leased.discard(batch.id)
        return True

    def adopt(self, rows: Iterable[tuple[str, Optional[int], str, bytes, int]]) -> int:
        """Takes over batches of another incarnation, byte for byte, in one transaction; their number."""
        count = 0
        with self.transaction():
            for row in rows:
                self._room.make(len(row[3]), row[4])
                self._db.execute(
                    "INSERT INTO batches (agent_id, seq, sha256, body, made_at) VALUES (?, ?, ?, ?, ?)", row
                )
                count += 1
        return count

    def adopt_samples(self, rows: Iterable[tuple[int, str, bytes]]) -> int:
        """Takes over samples (ts, head, body) of another incarnation that were in no batch yet; their number."""
        with self.transaction():
            cursor = self._db.executemany("INSERT INTO samples (ts, head, body) VALUES (?, ?, ?)", rows)
        return max(0, cursor.rowcount)

    def resend(self, since_ms: int) -> int:
        """Puts the kept copies of batches delivered since then back into the queue; their number."""
        with self.transaction():
            cursor = self._db.execute(
                "UPDATE batches SET state=?, attempts=1 WHERE state=? AND changed_at>=?", (QUEUED, SENT, since_ms)
            )
        return cursor.rowcount

    def queued(self) -> Iterator[tuple[str, Optional[int], str, bytes, int]]:
        """(agent_id, seq, sha256, body, made_at) of every waiting batch whose bytes are whole, oldest first."""
        last = 0
        while True:
            with self._lock, translated():
                row = self._db.execute(
                    "SELECT id, agent_id, seq, sha256, body, made_at FROM batches WHERE state=0 AND id>?"
                    " ORDER BY id LIMIT 1",
                    (last,),
                ).fetchone()
            if row is None:
                return
            last = row[0]
            if is_whole(row[4], row[3]):
                yield row[1:]

    def counts(self) -> dict[str, int]:
        """Figures for `status`: samples and batches by state, tombstones, seq, bytes."""
        with self._lock, translated():
            by_state = dict(self._db.execute("SELECT state, count(*) FROM batches GROUP BY state").fetchall())
            tombstones = self._db.execute("SELECT count(*) FROM tombstones").fetchone()[0]
            samples = self._db.execute("SELECT count(*) FROM samples").fetchone()[0]
        return {
            "samples_waiting": samples,
            "batches_queued": by_state.get(QUEUED, 0),
            "batches_kept": by_state.get(SENT, 0),
            "batches_quarantined": by_state.get(QUARANTINED, 0),
            "tombstones": tombstones,
            "seq": int(self.get("seq", 0)),
            "delivered": int(self.get("delivered", 0)),
            "dropped": self.dropped,
            "used_bytes": self.used_bytes(),
            "limit_bytes": self.limit_bytes,
        }
