"""The outbox: samples and batches on disk until a server has receipted them.

SQLite in WAL mode with `synchronous=FULL`. Every sample is committed as it is taken; batches of up to four are made
from committed samples; a batch leaves only with a receipt, or as a tombstone when the cap is reached. `seq` counts the
batches of one incarnation of this file (named by `agent_id`) without gaps.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import sqlite3
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Iterable, Iterator, Optional, Sequence

from agent import failpoints, wire
from agent.outbox_file import OutboxDamaged, is_whole, translated
from agent.outbox_room import QUARANTINED, QUEUED, SENT, Room

log = logging.getLogger("goodput.outbox")

FORMAT = 1
LIMIT_BYTES = 500_000_000  # with the WAL file: the product guide's promise
WAL_RESERVE_BYTES = 16 << 20  # the WAL grows beyond its checkpoint size while a transaction runs
CHECKED_BYTES = 64_000_000  # a larger file would delay the start; its damage shows when it is used
SENT_KEPT_MS = 48 * 3_600_000  # for a server that is restored from a backup
QUARANTINE_MOST = 500  # batches; older ones become tombstones
_LOCK_WAIT_S = 2.0  # for another process's transaction, such as that of `resend`
FIRST_BATCHES = 10  # of a boot, which carry `last_alive`

# WireError and what json, msgpack and gzip say of bytes that a disk has changed are all of these
_UNUSABLE = (ValueError, TypeError, OverflowError, AttributeError, RecursionError)

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


@dataclass(frozen=True)
class Batch:
    """A batch as it will be sent: `body` is the gzip member, `sha256` the lower-case hex of the bytes inside it."""

    id: int
    seq: Optional[int]
    sha256: str
    body: bytes
    made_at: int
    attempts: int


class Outbox:
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

    # -- small facts ---------------------------------------------------------------------------------------------

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

    # -- samples -------------------------------------------------------------------------------------------------

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

    # -- batches -------------------------------------------------------------------------------------------------

    def queued_count(self) -> int:
        """Batches that wait for a receipt."""
        with self._lock, translated():
            return int(self._db.execute("SELECT count(*) FROM batches WHERE state=?", (QUEUED,)).fetchone()[0])

    def lease(self, live_after_ms: int, skip: Optional[set[int]] = None) -> Optional[Batch]:
        """The next batch to send: the newest if made after `live_after_ms`, else the least tried, oldest first.

        The batch cannot be evicted until `release` or one of the outcomes below is called.
        """
        columns = "SELECT id, seq, sha256, body, made_at, attempts FROM batches WHERE state=0"
        avoid = skip or set()
        with self._lock, translated():
            row = self._db.execute(f"{columns} ORDER BY id DESC LIMIT 1").fetchone()
            if row is None:
                return None
            if row[4] < live_after_ms or row[5] > 0 or row[0] in avoid:
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

    # -- room ----------------------------------------------------------------------------------------------------

    def used_bytes(self) -> int:
        """Bytes of the main file in use; freed pages do not count."""
        with self._lock, translated():
            return self._room.used_bytes()

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

    def close(self) -> None:
        """Closes the file; safe to call twice."""
        with self._lock, contextlib.suppress(sqlite3.Error):
            self._db.close()
