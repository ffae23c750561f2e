"""Room in the outbox: what is evicted when the cap is reached, and the tombstones that tell of it.

All of it happens inside the caller's transaction, so an eviction, its tombstone and the raised counter stand or fall
together with what needed the room.
"""

from __future__ import annotations

import sqlite3

QUEUED, SENT, QUARANTINED = 0, 1, 2
TOMBSTONES_MOST = 50_000


class Room:
    """Keeps the main file of one outbox below `limit` bytes. Batches in `leased` are under way and stay."""

    def __init__(self, db: sqlite3.Connection, page_bytes: int, limit: int, leased: set[int]) -> None:
        self._db = db
        self._page = page_bytes
        self._limit = limit
        self._leased = leased

    def used_bytes(self) -> int:
        """Bytes of the main file in use; freed pages do not count."""
        pages = self._db.execute("PRAGMA page_count").fetchone()[0]
        free = self._db.execute("PRAGMA freelist_count").fetchone()[0]
        return int(pages - free) * self._page

    def make(self, body_bytes: int, now_ms: int) -> None:
        """Evicts until a body of that size fits: kept copies first, then quarantine, then the oldest waiting."""
        needed = body_bytes + 4 * self._page
        while self.used_bytes() + needed > self._limit:
            if not self._evict_one(now_ms):
                return

    def _evict_one(self, now_ms: int) -> bool:
        for state in (SENT, QUARANTINED, QUEUED):
            rows = self._db.execute(
                "SELECT id FROM batches WHERE state=? ORDER BY id LIMIT ?", (state, len(self._leased) + 1)
            ).fetchall()
            for (row_id,) in rows:
                if row_id in self._leased:
                    continue
                if state == SENT:
                    self._db.execute("DELETE FROM batches WHERE id=?", (row_id,))
                else:
                    self.bury(row_id, now_ms, "outbox is full")
                return True
        return False

    def bury(self, row_id: int, now_ms: int, why: str) -> None:
        """Turns a batch into a tombstone that keeps its seq and hash, and raises the counter of dropped batches."""
        self._db.execute(
            "INSERT INTO tombstones (agent_id, seq, sha256, made_at, evicted_at, why)"
            " SELECT agent_id, seq, sha256, made_at, ?, ? FROM batches WHERE id=?",
            (now_ms, why, row_id),
        )
        self._db.execute("DELETE FROM batches WHERE id=?", (row_id,))
        self._db.execute("UPDATE meta SET value = CAST(value AS INTEGER) + 1 WHERE key='dropped'")
        self._db.execute("DELETE FROM tombstones WHERE id <= (SELECT max(id) FROM tombstones) - ?", (TOMBSTONES_MOST,))
