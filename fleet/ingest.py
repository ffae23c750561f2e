"""From an upload to a receipt: verify, commit the exact bytes, answer. Nothing is classified here.

One autocommit INSERT per batch: a single statement is as durable as a transaction and costs half. It also puts the
batch into the fold's queue. A lost connection is tried once more, which is safe because the same bytes meet the same
row. Only a batch of a week that may be packed already takes a transaction, in which the packs are asked first.
"""

from __future__ import annotations

import hashlib
import logging
import re
import time
from base64 import b64decode, b64encode
from binascii import Error as Base64Error
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import psycopg
from django import db
from django.db import connection
from psycopg import sql

from agent import wire
from fleet import decode, packs
from fleet.domain.slots import HOUR_MS
from fleet.errors import BatchRejected, NotStored, SeqConflict, WrongCluster, WrongNode
from fleet.log_key import load_key
from fleet.node_keys import NodeKey
from fleet.partitions import ensure_partition, may_be_packed, sample_day, week_lock, week_of
from orgs.keys import KeyInfo

log = logging.getLogger(__name__)

AHEAD_MS = 10 * 60 * 1000  # a sample further in the future than this has a suspect clock
MAX_DROPPED = 2**63 - 1
MAX_HOUR = 2**31 - 1  # a column's
SIGNATURE_BYTES = 64

# Two installations with one identity send the same seq within days of each other, so the check looks at the partitions
# around the batch's own day; it costs 0.04 ms for each, and a year has 52.
_INSERT = """
with fact as (
insert into {inbox} (sample_day, sha256, body, cluster, node, hw_id, agent_id, seq, boot_id, received_at, key_id,
    signature, dropped_total, has_suspect_clock, is_seq_conflict, node_key, first_hour, last_hour)
select %(sample_day)s::date, %(sha256)b::bytea, %(body)b::bytea, %(cluster)s::text, %(node)s::text, %(hw_id)s::text,
    %(agent_id)s::text, %(seq)s::bigint, %(boot_id)s::text, date_trunc('milliseconds', clock_timestamp()),
    %(key_id)s::bigint, %(signature)b::bytea, %(dropped)s::bigint, %(suspect)s::boolean,
    exists (select 1 from {inbox} where agent_id = %(agent_id)s::text and seq = %(seq)s::bigint
            and sha256 <> %(sha256)b::bytea
            and sample_day between %(sample_day)s::date - 14 and %(sample_day)s::date + 14),
    %(node_key)s::bigint, %(first_hour)s::integer, %(last_hour)s::integer
on conflict (sample_day, sha256) do nothing
returning received_at, is_seq_conflict
), queued as (
insert into {waiting} (sample_day, sha256, received_at, node_key, cluster, node, hw_id, first_hour, last_hour,
    is_seq_conflict)
select %(sample_day)s::date, %(sha256)b::bytea, received_at, %(node_key)s::bigint, %(cluster)s::text, %(node)s::text,
    %(hw_id)s::text, %(first_hour)s::integer, %(last_hour)s::integer, is_seq_conflict from fact
)
select received_at, is_seq_conflict from fact
"""
_LOCK_WEEK = "select pg_advisory_xact_lock_shared(hashtext(%s), %s)"
_PACKED = "select skeleton from {pack} where prefixes && array[%s::integer]"
_READ_BACK = "select received_at, is_seq_conflict from {inbox} where sample_day = %s::date and sha256 = %b::bytea"
# psycopg's own come from the raw cursor, Django's from connecting and from making a partition.
_LOST = (psycopg.OperationalError, psycopg.InterfaceError, db.OperationalError, db.InterfaceError)
_OTHERS = """select encode(sha256, 'hex') from {inbox}
where agent_id = %(agent_id)s::text and seq = %(seq)s::bigint and sha256 <> %(sha256)b::bytea
    and sample_day between %(sample_day)s::date - 14 and %(sample_day)s::date + 14 order by received_at limit 3"""
_TEMPLATES = {"insert": _INSERT, "read_back": _READ_BACK, "others": _OTHERS, "packed": _PACKED}
_statements: dict[tuple[str, str], str] = {}
_known_partitions: set[tuple[str, Any]] = set()


@dataclass(frozen=True)
class Receipt:
    """The server's word that these bytes are on disk. Only it lets an agent delete a batch."""

    batch_sha256: str
    node: str
    seq: int | None
    received_at: datetime
    duplicate: bool

    def as_json(self) -> dict[str, Any]:
        """The receipt as it travels, signed; `received_at` is RFC 3339 UTC in ms."""
        instant = self.received_at.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        signed = load_key().private.sign(wire.receipt_message(self.batch_sha256, self.node, self.seq, instant))
        return {
            "batch_sha256": self.batch_sha256,
            "node": self.node,
            "seq": self.seq,
            "received_at": instant,
            "duplicate": self.duplicate,
            "signature": b64encode(signed).decode(),
        }


def receive(body: bytes, key: KeyInfo, headers: Mapping[str, str]) -> Receipt:
    """Verify and commit one upload (the gzip member as received); the receipt of the row that holds it.

    Raises BatchRejected → 400, 413, 422; WrongCluster, WrongNode → 403; SeqConflict → 409; NotStored → 503.
    """
    raw = decode.gunzip(body)
    batch = decode.decode(raw)
    if key.cluster and batch.cluster_id != key.cluster:
        raise WrongCluster("This key is good for another cluster.")
    if key.node and batch.node_id != key.node:
        raise WrongNode("This key is the own key of another node.")
    digest = hashlib.sha256(raw).digest()
    times = [interval.ts for interval in batch.intervals]
    values = {
        "sample_day": sample_day(times[0]),
        "sha256": digest,
        "body": body,
        "cluster": batch.cluster_id,
        "node": batch.node_id,
        "hw_id": batch.hw_id,
        "agent_id": batch.agent_id,
        "seq": batch.seq,
        "boot_id": batch.boot_id,
        "key_id": key.id or None,
        "signature": _signature(headers.get(wire.HEADER_SIGNATURE)),
        "dropped": _dropped(headers.get(wire.HEADER_DROPPED)),
        # A wall clock that was set back between two samples is no reason to lose them: the fold orders by boot time.
        "suspect": max(times) > time.time() * 1000 + AHEAD_MS or times != sorted(times),
        "node_key": NodeKey(batch.cluster_id, batch.node_id, batch.hw_id).number,
        "first_hour": min(times[0] // HOUR_MS, MAX_HOUR),
        "last_hour": min(max(times) // HOUR_MS, MAX_HOUR),
    }
    received_at, is_conflict, duplicate = _commit(key.schema_name, values)
    if is_conflict:
        _log_conflict(key, values)
        raise SeqConflict("This installation sent other bytes under the same seq before. Both are kept.")
    return Receipt(digest.hex(), batch.node_id, batch.seq, received_at, duplicate)


def _commit(schema: str, values: dict[str, Any]) -> tuple[datetime, bool, bool]:
    """(received_at, seq conflict, was there already) of the row that holds these bytes, committed."""
    for attempt in (1, 2):
        try:
            return _insert(schema, values)
        except psycopg.errors.CheckViolation:  # no partition of this week (any more)
            _known_partitions.clear()
        except _LOST as error:
            connection.close()
            if attempt == 2:
                raise NotStored("The database can't take batches right now. Keep this one and try again.") from error
        except (psycopg.Error, db.Error) as error:
            raise NotStored("The batch could not be stored. Keep it and try again.") from error
    raise NotStored("The batch could not be stored. Keep it and try again.")


def _insert(schema: str, values: dict[str, Any]) -> tuple[datetime, bool, bool]:
    """One INSERT on the raw connection; the row that was there already when the bytes are known."""
    connection.ensure_connection()
    raw_connection: psycopg.Connection[Any] = connection.connection
    week = (schema, week_of(values["sample_day"]))
    if week not in _known_partitions:
        ensure_partition(schema, values["sample_day"])
        _known_partitions.add(week)
    with psycopg.Cursor(raw_connection) as cursor:
        if not may_be_packed(week[1]):
            return _insert_with(cursor, schema, values)
        with raw_connection.transaction():  # what is packed meanwhile must not be stored a second time
            cursor.execute(_LOCK_WEEK, week_lock(schema, week[1]))
            return _from_pack(cursor, schema, values["sha256"]) or _insert_with(cursor, schema, values)


def _insert_with(cursor: psycopg.Cursor[Any], schema: str, values: dict[str, Any]) -> tuple[datetime, bool, bool]:
    cursor.execute(_statement(schema, "insert"), values, prepare=True)
    row = cursor.fetchone()
    if row is not None:
        return row[0], row[1], False
    cursor.execute(_statement(schema, "read_back"), (values["sample_day"], values["sha256"]))
    row = cursor.fetchone()
    if row is None:
        raise psycopg.OperationalError("the row vanished between INSERT and SELECT")
    return row[0], row[1], True


def _from_pack(cursor: psycopg.Cursor[Any], schema: str, sha256: bytes) -> tuple[datetime, bool, bool] | None:
    """What a pack says of these bytes; None if none holds them."""
    cursor.execute(_statement(schema, "packed"), [packs.prefix_of(sha256)], binary=True)
    for (skeleton,) in cursor.fetchall():
        for entry in packs.read_skeleton(skeleton):
            if entry.row.sha256 == sha256:
                return packs.instant(entry.row.received_us), entry.row.is_seq_conflict, True
    return None


def _log_conflict(key: KeyInfo, values: dict[str, Any]) -> None:
    """One line for the operator: which bytes stand against which. Strings were checked to be printable."""
    others: list[Any] = []
    with suppress(*_LOST), psycopg.Cursor(connection.connection) as cursor:
        cursor.execute(_statement(key.schema_name, "others"), values)
        others = [row[0] for row in cursor.fetchall()]
    log.warning(
        "seq_conflict org=%s key=%s agent=%r seq=%d sha256=%s stored_before=%s",
        *(key.org_slug, key.prefix, values["agent_id"], values["seq"], values["sha256"].hex(), ",".join(others)),
    )


def _statement(schema: str, name: str) -> str:
    """The statement for an org's inbox, built once."""
    known = _statements.get((schema, name))
    if known is None:
        tables = {table: sql.Identifier(schema, f"fleet_{table}") for table in ("inbox", "waiting", "pack")}
        known = sql.SQL(_TEMPLATES[name]).format(**tables).as_string(None)
        _statements[(schema, name)] = known
    return known


def _dropped(header: str | None) -> int | None:
    """The eviction count of the agent; None when the header is absent or no count. Never a reason to refuse a batch."""
    if header is None or not re.fullmatch(r"[0-9]{1,19}", header.strip()):
        return None
    return min(int(header), MAX_DROPPED)


def _signature(header: str | None) -> bytes | None:
    """The signature's bytes as sent (the fold checks it); None when absent or not base64 of 64 bytes."""
    if header is None or len(header) > 128:
        return None
    try:
        signature = b64decode(header.strip(), validate=True)
    except (Base64Error, ValueError):
        return None
    return signature if len(signature) == SIGNATURE_BYTES else None


__all__ = ["BatchRejected", "Receipt", "receive"]
