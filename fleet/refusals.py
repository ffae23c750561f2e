"""Uploads that were refused after a valid key: their hash, the code and the time are kept, so that the log holds them.

"The server refused my evidence" can then be decided by both sides. The bytes themselves are not kept.
"""

from __future__ import annotations

import hashlib
import logging
from contextlib import suppress

import psycopg
from django import db
from django.db import connection
from psycopg import sql

from fleet import decode
from fleet.errors import FleetError, NotStored
from orgs.keys import KeyInfo

log = logging.getLogger(__name__)

_KEEP = """
insert into {table} (sha256, code, refused_at, key_id)
values (%(sha256)b, %(code)s, date_trunc('milliseconds', clock_timestamp()), %(key_id)s)
on conflict (sha256, code) do nothing
"""


def keep_refusal(key: KeyInfo, body: bytes, error: FleetError) -> None:
    """Keep one refusal, once for the same bytes and code. A database that can't take it must not change the answer."""
    if isinstance(error, NotStored):  # no judgement about the batch: the agent sends it again
        return
    statement = sql.SQL(_KEEP).format(table=sql.Identifier(key.schema_name, "fleet_refusal"))
    try:
        connection.ensure_connection()
        with psycopg.Cursor(connection.connection) as cursor:
            values = {"sha256": hash_of(body), "code": error.code[:40], "key_id": key.id or None}
            cursor.execute(statement.as_string(None), values)
    except (psycopg.Error, db.Error) as failure:
        log.warning("org %s: a refusal (%s) could not be kept: %s", key.org_slug, error.code, failure)


def hash_of(body: bytes) -> bytes:
    """SHA-256 of the batch's MessagePack bytes, as its agent names it; of the upload where it is no gzip member."""
    with suppress(FleetError):
        return hashlib.sha256(decode.gunzip(body)).digest()
    return hashlib.sha256(body).digest()
