"""Everything of an org as one archive: its tables as JSON lines, its facts as the exact bytes that came.

    manifest.json               what is in here: rows per table, files with their SHA-256
    org.json, members.jsonl, keys.jsonl, invitations.jsonl, audit.jsonl     of the public schema; no secret, no hash
    tables/<table>.jsonl        every table of the org's schema, a row a line; bytes as hexadecimal text (`\\x…`)
    facts/<sha256>.msgpack.gz   each batch as it was received (gzip of MessagePack); the name is the hash of the inside

Tables are read in one transaction that sees one instant. Nothing is held in memory but a few thousand rows.
"""

from __future__ import annotations

import hashlib
import json
import os
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from django.db import connection, transaction
from django.utils import timezone
from psycopg import sql

from fleet import packs
from fleet.summary.models import Export
from fleet.summary.services import export_folder
from orgs.models import Org

ROWS_AT_ONCE = 500
FACTS, PACKS = "fleet_inbox", "fleet_pack"
PUBLIC = {
    "org.json": ("select to_jsonb(o) from public.orgs_org o where id = {id}"),
    "members.jsonl": (
        "select jsonb_build_object('email', u.email, 'name', u.name, 'role', m.role, 'clusters', m.clusters,"
        " 'since', m.created_at) from public.orgs_membership m join public.orgs_user u on u.id = m.user_id"
        " where m.org_id = {id} order by m.id"
    ),
    "keys.jsonl": "select to_jsonb(k) - 'secret_hash' from public.orgs_apikey k where org_id = {id} order by id",
    "invitations.jsonl": "select to_jsonb(i) - 'nonce' from public.orgs_invitation i where org_id = {id} order by id",
    "audit.jsonl": "select to_jsonb(a) from public.orgs_auditentry a where org_id = {id} order by id",
}


def run_export(export_id: int) -> Export | None:
    """Write the archive of a waiting export; None when another worker has it or it is gone."""
    waiting = Export.objects.filter(pk=export_id, state=Export.State.QUEUED)
    if not waiting.update(state=Export.State.RUNNING, started_at=timezone.now()):
        return None
    export = Export.objects.get(pk=export_id)
    path = export_folder() / export.file_name
    partial = path.with_suffix(".part")
    try:
        org = Org.objects.get(pk=export.org_id)
        export.facts = write_archive(org, partial)
        partial.replace(path)
        export.size_bytes, export.sha256 = path.stat().st_size, _sha256(path)
        export.state = Export.State.DONE
    except Exception as error:
        partial.unlink(missing_ok=True)
        export.state, export.error = Export.State.FAILED, f"{type(error).__name__}: {error}"[:300]
        raise
    finally:
        export.finished_at = timezone.now()
        export.save()
    return export


def write_archive(org: Org, path: Path) -> int:
    """Write everything of `org` to a ZIP at `path` (mode 0600); the number of facts."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    manifest: dict[str, Any] = {"org": org.slug, "name": org.name, "id": org.pk, "schema": org.schema_name}
    manifest |= {"written_at": timezone.now().isoformat(), "format": 1, "rows": {}, "sha256": {}}
    with os.fdopen(descriptor, "wb") as file, zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        with _one_instant():
            for name, statement in PUBLIC.items():
                _write_lines(archive, manifest, name, sql.SQL(statement).format(id=org.pk))
            for table in _tables(org.schema_name):
                qualified = sql.Identifier(org.schema_name, table)
                row = sql.SQL("to_jsonb(t) - 'body'" if table in (FACTS, PACKS) else "to_jsonb(t)")
                query = sql.SQL("select {row} from {table} t").format(row=row, table=qualified)
                _write_lines(archive, manifest, f"tables/{table}.jsonl", query)
            facts = _write_facts(archive, org.schema_name)
        manifest["rows"]["facts"] = facts
        archive.writestr("manifest.json", json.dumps(manifest, indent=1, ensure_ascii=False))
    return facts


@contextmanager
def _one_instant() -> Iterator[None]:
    """A transaction that sees one instant; inside another transaction it is that one's view."""
    outermost = not connection.in_atomic_block
    with transaction.atomic():
        if outermost:
            with connection.cursor() as cursor:
                cursor.execute("set transaction isolation level repeatable read, read only")
        yield


def _tables(schema: str) -> list[str]:
    """The tables of a schema, partitions left out: their parent has the rows."""
    with connection.cursor() as cursor:
        cursor.execute(
            "select relname from pg_class where relnamespace = %s::regnamespace and relkind in ('r', 'p')"
            " and not relispartition order by relname",
            [schema],
        )
        return [row[0] for row in cursor.fetchall()]


def _rows(statement: sql.Composed) -> Iterator[tuple[Any, ...]]:
    """Rows of a statement, some at a time, by a cursor of the server."""
    with connection.cursor() as cursor:
        text = statement.as_string(cursor.connection)
        cursor.execute(f"declare goodput_export no scroll cursor for {text}")
        try:
            while True:
                cursor.execute(f"fetch {ROWS_AT_ONCE} from goodput_export")
                rows = cursor.fetchall()
                if not rows:
                    return
                yield from rows
        finally:
            cursor.execute("close goodput_export")


def _write_lines(archive: zipfile.ZipFile, manifest: dict[str, Any], name: str, statement: sql.Composed) -> None:
    digest, count = hashlib.sha256(), 0
    with archive.open(name, "w", force_zip64=True) as out:
        for (row,) in _rows(statement):
            line = (row if isinstance(row, str) else json.dumps(row, ensure_ascii=False)).encode() + b"\n"
            digest.update(line)
            out.write(line)
            count += 1
    manifest["rows"][name], manifest["sha256"][name] = count, digest.hexdigest()


def _write_facts(archive: zipfile.ZipFile, schema: str) -> int:
    """Each batch as it came, uncompressed in the archive because it is compressed already; the number of them."""
    count = 0
    statement = sql.SQL("select encode(sha256, 'hex'), body from {table} order by sample_day, sha256")
    for digest, body in _rows(statement.format(table=sql.Identifier(schema, FACTS))):
        archive.writestr(zipfile.ZipInfo(f"facts/{digest}.msgpack.gz"), bytes(body), zipfile.ZIP_STORED)
        count += 1
    packed = sql.SQL("select skeleton, body from {table} where body is not null order by id")
    for skeleton, body in _rows(packed.format(table=sql.Identifier(schema, PACKS))):
        entries = packs.read_skeleton(bytes(skeleton))
        for entry, part in zip(entries, packs.read_parts(entries, bytes(body)), strict=True):
            name = f"facts/{entry.row.sha256.hex()}.msgpack.gz"
            if name not in archive.NameToInfo:  # its week may lie in both while it is being packed
                archive.writestr(zipfile.ZipInfo(name), packs.member_of(entry, part), zipfile.ZIP_STORED)
                count += 1
    return count


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
