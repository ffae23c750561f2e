"""What can happen to the outbox file: a full disk, damage, and how both are told apart and survived."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import time
from pathlib import Path
from typing import Iterator, Optional

RESERVE_BYTES = 2 << 20
_SIDE_FILES = ("-wal", "-shm", "-journal")


class OutboxFull(Exception):
    """The disk or the quota has no room; nothing was written."""


class OutboxDamaged(Exception):
    """The file cannot be used as it is."""


@contextlib.contextmanager
def translated() -> Iterator[None]:
    """Turns SQLite's errors into OutboxFull and OutboxDamaged; others pass as they are."""
    try:
        yield
    except sqlite3.OperationalError as error:
        text = str(error)
        # "locked": another process holds a transaction open; the sample must not wait for it
        if any(word in text for word in ("full", "disk I/O", "readonly", "unable to open", "locked")):
            raise OutboxFull(text) from error
        if "malformed" in text:
            raise OutboxDamaged(text) from error
        raise
    except sqlite3.DatabaseError as error:
        if isinstance(error, (sqlite3.IntegrityError, sqlite3.ProgrammingError)):
            raise
        raise OutboxDamaged(str(error)) from error


def set_aside(path: Path) -> Path:
    """Renames a damaged outbox (and its side files) so that a new one can begin; the new name of the main file."""
    stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
    target = path.with_name(f"{path.name}.damaged-{stamp}")
    number = 1
    while target.exists():
        number += 1
        target = path.with_name(f"{path.name}.damaged-{stamp}-{number}")
    os.replace(path, target)
    for suffix in _SIDE_FILES:
        side = path.with_name(path.name + suffix)
        with contextlib.suppress(FileNotFoundError):
            os.replace(side, target.with_name(target.name + suffix))
    return target


def last_known_seq(path: Path) -> Optional[int]:
    """The newest seq that a damaged file still shows, None if it shows nothing."""
    for query in ("SELECT value FROM meta WHERE key='seq'", "SELECT max(seq) FROM batches"):
        with (
            contextlib.suppress(sqlite3.Error, ValueError, TypeError),
            contextlib.closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as db,
        ):
            row = db.execute(query).fetchone()
            if row is not None and row[0] is not None:
                return int(row[0])
    return None


def is_whole(body: object, sha256: object) -> bool:
    """Whether a stored gzip member still holds exactly the bytes that its hash names."""
    import gzip
    import hashlib
    import zlib

    try:
        return hashlib.sha256(gzip.decompress(body)).hexdigest() == sha256  # type: ignore[arg-type]
    except (OSError, EOFError, ValueError, TypeError, zlib.error):
        return False


def salvage(path: Path) -> Iterator[tuple[str, Optional[int], str, bytes, int]]:
    """(agent_id, seq, sha256, body, made_at) of each waiting batch that a damaged file still gives, oldest first."""
    with (
        contextlib.suppress(sqlite3.Error),
        contextlib.closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as db,
    ):
        ids = [row[0] for row in db.execute("SELECT id FROM batches WHERE state=0 ORDER BY id")]
        for row_id in ids:
            with contextlib.suppress(sqlite3.Error):
                row = db.execute(
                    "SELECT agent_id, seq, sha256, body, made_at FROM batches WHERE id=?", (row_id,)
                ).fetchone()
                if row is not None and is_whole(row[3], row[2]):
                    yield row


def salvage_samples(path: Path) -> Iterator[tuple[int, str, bytes]]:
    """(ts, head, body) of each sample in no batch yet that a damaged file still gives, oldest first."""
    import json

    import msgpack

    with (
        contextlib.suppress(sqlite3.Error),
        contextlib.closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as db,
    ):
        for row in db.execute("SELECT ts, head, body FROM samples ORDER BY id"):
            with contextlib.suppress(ValueError, TypeError, msgpack.UnpackException):
                head, interval = json.loads(row[1]), msgpack.unpackb(row[2], raw=False)
                if isinstance(head, dict) and isinstance(interval, dict) and interval.get("ts") == row[0]:
                    yield row


def keep_reserve(path: Path) -> None:
    """Holds 2 MiB of disk that `spend_reserve` gives back, so that a full disk can still record a delivery."""
    if path.exists():
        return
    try:
        with open(os.open(str(path), os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_NOFOLLOW, 0o600), "wb") as file:
            file.write(b"\0" * RESERVE_BYTES)
    except OSError:
        spend_reserve(path)


def spend_reserve(path: Path) -> None:
    """Frees the reserved disk space."""
    with contextlib.suppress(OSError):
        path.unlink()
