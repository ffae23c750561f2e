"""The outbox file itself: its tables, its limits, durable transactions, small facts kept beside the batches.

SQLite in WAL mode with `synchronous=FULL`. `outbox_samples` and `outbox` build on it.
"""

from __future__ import annotations

import contextlib
import json
import os
import sqlite3
import threading
from pathlib import Path
from typing import Any, Iterator

from agent.outbox_file import OutboxDamaged, translated
from agent.outbox_room import Room

FORMAT = 1
LIMIT_BYTES = 500_000_000  # with the WAL file: the product guide's promise
WAL_RESERVE_BYTES = 16 << 20  # the WAL grows beyond its checkpoint size while a transaction runs
CHECKED_BYTES = 64_000_000  # a larger file would delay the start; its damage shows when it is used
_LOCK_WAIT_S = 2.0  # for another process's transaction, such as that of `resend`

_SCHEMA = """
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE samples (
    id INTEGER PRIMARY KEY AUTOINCREMENT, ts INTEGER NOT NULL, head TEXT NOT NULL, body BLOB NOT NULL);
CREATE TABLE batches (
    id INTEGER PRIMARY KEY AUTOINCREMENT, agent_id TEXT, seq INTEGER, sha256 TEXT NOT NULL, body BLOB NOT NULL,
    made_at INTEGER NOT NULL, state INTEGER NOT NULL DEFAULT 0, attempts INTEGER NOT NULL DEFAULT 0,
    changed_at INTEGER NOT NULL DEFAULT 0, note TEXT NOT NULL DEFAULT '');
CREATE INDEX batches_by_state ON batches (state, attempts, id);
CREATE TABLE tombstones (
    id INTEGER PRIMARY KEY AUTOINCREMENT, agent_id TEXT, seq INTEGER, sha256 TEXT NOT NULL, made_at INTEGER NOT NULL,
    evicted_at INTEGER NOT NULL, why TEXT NOT NULL);
"""


class OutboxBase:
    """One outbox file; safe to use from several threads. `volatile` gives a small one in memory, without seq."""

    def __init__(self, path: Path, limit_bytes: int = LIMIT_BYTES, volatile: bool = False) -> None:
        self.path = path
        self.volatile = volatile
        self._lock = threading.RLock()
        self._leased: set[int] = set()
        self._db = sqlite3.connect(
            ":memory:" if volatile else str(path), timeout=_LOCK_WAIT_S, isolation_level=None, check_same_thread=False
        )
        try:
            with translated():
                self._prepare(limit_bytes)
        except BaseException:
            self._db.close()
            raise

    def _prepare(self, limit_bytes: int) -> None:
        self._db.execute("PRAGMA journal_mode=WAL")
        self._db.execute("PRAGMA synchronous=FULL")
        self._db.execute("PRAGMA journal_size_limit=2097152")
        self._db.execute("PRAGMA cache_size=-512")
        self._db.execute("PRAGMA temp_store=MEMORY")
        page = int(self._db.execute("PRAGMA page_size").fetchone()[0])
        self.limit_bytes = limit_bytes
        reserve = min(WAL_RESERVE_BYTES, limit_bytes // 4)
        main_limit = max(64 * page, limit_bytes - reserve)
        self._room = Room(self._db, page, main_limit, self._leased)
        self._db.execute(f"PRAGMA wal_autocheckpoint={max(16, min(500, reserve // page // 4))}")
        self._db.execute(f"PRAGMA max_page_count={main_limit // page}")
        version = int(self._db.execute("PRAGMA user_version").fetchone()[0])
        if version > FORMAT:
            raise OutboxDamaged(f"the outbox has format {version}, newer than this agent's {FORMAT}")
        if version == 0:
            with self.transaction():
                for statement in _SCHEMA.split(";\n"):
                    if statement.strip():
                        self._db.execute(statement)
                self._put("agent_id", os.urandom(16).hex())
                self._put("seq", 0)
                self._put("dropped", 0)
                self._db.execute(f"PRAGMA user_version={FORMAT}")
        elif (
            self._room.used_bytes() <= CHECKED_BYTES and self._db.execute("PRAGMA quick_check(1)").fetchone()[0] != "ok"
        ):
            raise OutboxDamaged("the outbox fails its integrity check")
        self.agent_id: str = self.get("agent_id")

    @contextlib.contextmanager
    def transaction(self) -> Iterator[None]:
        """One durable transaction. Raises OutboxFull or OutboxDamaged; nothing of it stands then."""
        with self._lock, translated():
            self._db.execute("BEGIN IMMEDIATE")
            try:
                yield
                self._db.execute("COMMIT")
            except BaseException:
                with contextlib.suppress(sqlite3.Error):
                    self._db.execute("ROLLBACK")
                raise

    def get(self, key: str, default: Any = None) -> Any:
        """A JSON value kept under `key`."""
        with self._lock, translated():
            row = self._db.execute("SELECT value FROM meta WHERE key=?", (key,)).fetchone()
        try:
            return default if row is None else json.loads(row[0])
        except ValueError:
            raise OutboxDamaged(f"the value of {key} cannot be read") from None

    def _put(self, key: str, value: Any) -> None:
        self._db.execute("INSERT OR REPLACE INTO meta (key, value) VALUES (?, ?)", (key, json.dumps(value)))

    def put(self, key: str, value: Any) -> None:
        """Keeps a JSON value, in a transaction of its own."""
        with self.transaction():
            self._put(key, value)

    @property
    def dropped(self) -> int:
        """Batches ever evicted without a receipt: the header X-Goodput-Dropped-Batches."""
        return int(self.get("dropped", 0))

    def used_bytes(self) -> int:
        """Bytes of the main file in use; freed pages do not count."""
        with self._lock, translated():
            return self._room.used_bytes()

    def close(self) -> None:
        """Closes the file; safe to call twice."""
        with self._lock, contextlib.suppress(sqlite3.Error):
            self._db.close()
