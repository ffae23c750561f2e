"""Backup and restore with a real database each: what comes back is what went in, row by row."""

from __future__ import annotations

import hashlib
import json
import os
import stat
import subprocess
import sys
import tarfile
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from django.core.management import CommandError, call_command
from django.test import Client
from psycopg import sql

from claims.services_reports import draft_report, issue_report
from claims.tests.conftest import NOW, actor, contract  # noqa: F401  # fixtures
from goodput_site import backups

# Of every report of every org: [org, status, digest kept, digest of what is kept, digest of it computed again].
REPORTS = """
import datetime, json, sys
import django; django.setup()
from django_tenants.utils import tenant_context
from claims.models import Report
from claims.services_reports import digest_of, draft_report
from orgs.models import Org
found = []
for org in Org.objects.order_by("slug"):
    with tenant_context(org):
        for one in list(Report.objects.order_by("pk")):
            again = draft_report(one.contract, one.month, datetime.datetime.fromisoformat(sys.argv[1]))
            found.append([org.slug, one.status, one.digest, digest_of(one.inputs, one.result), again.digest])
print(json.dumps(found))
"""


def contents(url: str) -> dict[str, tuple[int, str]]:
    """Per table of every schema: how many rows, and a hash of them all."""
    found = {}
    with psycopg.connect(url) as connection:
        tables = connection.execute(
            "select schemaname, tablename from pg_tables"
            " where schemaname !~ '^pg_' and schemaname <> 'information_schema' order by 1, 2"
        ).fetchall()
        for schema, table in tables:
            rows = connection.execute(
                sql.SQL("select t::text from {} t order by 1").format(sql.Identifier(schema, table))
            ).fetchall()
            found[f"{schema}.{table}"] = (len(rows), hashlib.sha256(repr(rows).encode()).hexdigest())
    return found


@pytest.fixture
def empty(database_url: str) -> Iterator[str]:
    """The URL of a new database."""
    name = f"restored_{uuid.uuid4().hex[:8]}"
    with psycopg.connect(database_url, autocommit=True) as connection:
        connection.execute(sql.SQL("create database {}").format(sql.Identifier(name)))
        yield f"{database_url.rpartition('/')[0]}/{name}"
        connection.execute(sql.SQL("drop database {} with (force)").format(sql.Identifier(name)))


@pytest.fixture
def filled(database_url: str, alpha: Any, key_of: Any, settings: Any, lan: Any) -> str:
    """A database in which alpha has a batch; the commands are pointed at it."""
    from fleet.tests.bodies import packed

    headers = {"authorization": f"Bearer {key_of(alpha)}", "content-encoding": "gzip"}
    sent = Client(HTTP_HOST="localhost").post("/v1/batches", packed()[0], "application/msgpack", headers=headers)
    assert sent.status_code == 202
    settings.DATABASE_URL = database_url
    return database_url


@pytest.mark.django_db(transaction=True)
def test_what_comes_back_is_what_went_in(filled: str, empty: str, settings: Any, tmp_path: Path) -> None:
    backup = tmp_path / "b.tar"
    call_command("backup", out=backup)
    assert stat.S_IMODE(backup.stat().st_mode) == 0o600
    settings.DATABASE_URL = empty
    call_command("restore", str(backup), no_prepare=True)
    before, after = contents(filled), contents(empty)
    assert sum(count for name, (count, _) in before.items() if "inbox" in name) > 0
    assert after == before


@pytest.mark.django_db(transaction=True)
def test_another_installation_computes_every_report_as_the_first_did(
    database_url: str,
    contract: Any,  # noqa: F811
    actor: Any,  # noqa: F811
    empty: str,
    settings: Any,
    tmp_path: Path,
) -> None:
    issued = issue_report(contract, "2026-10", actor, now=NOW)
    draft = draft_report(contract, "2026-09", NOW)
    settings.DATABASE_URL, settings.GOODPUT_VAR = database_url, tmp_path / "old"
    (tmp_path / "old/secrets").mkdir(parents=True)
    (tmp_path / "old/secrets/secret_key").write_text("what second factors are encrypted under" * 2)
    call_command("backup", out=tmp_path / "b.tar", with_keys=True)
    there = {**os.environ, "DATABASE_URL": empty, "GOODPUT_VAR": str(tmp_path / "new")}
    there["DJANGO_SETTINGS_MODULE"] = "goodput_site.settings"
    there.pop("GOODPUT_SECRET_KEY", None)

    def run(*command: str) -> str:
        done = subprocess.run([sys.executable, *command], env=there, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done.stdout

    said = run("-m", "goodput_site.launcher", "restore", str(tmp_path / "b.tar"), "--no-prepare")
    assert "keys put back: secret_key" in said
    assert "stay" not in said
    assert (tmp_path / "new/secrets/secret_key").read_text() == "what second factors are encrypted under" * 2
    assert json.loads(run("-c", REPORTS, NOW.isoformat())) == [
        ["alpha", one.status, one.digest, one.digest, one.digest] for one in (issued, draft)
    ]


@pytest.mark.django_db(transaction=True)
def test_a_full_database_is_not_overwritten_unasked(filled: str, empty: str, settings: Any, tmp_path: Path) -> None:
    backup = tmp_path / "b.tar"
    call_command("backup", out=backup)
    settings.DATABASE_URL = empty
    with psycopg.connect(empty) as connection:
        connection.execute("create table precious (x int)")
    with pytest.raises(CommandError, match="--replace"):
        call_command("restore", str(backup), no_prepare=True)
    assert list(contents(empty)) == ["public.precious"]
    call_command("restore", str(backup), no_prepare=True, replace=True)
    assert contents(empty) == contents(filled)


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("spoilt", ["text", "cut", "empty tar"])
def test_what_is_no_backup_removes_nothing(spoilt: str, filled: str, empty: str, settings: Any, tmp_path: Path) -> None:
    backup = tmp_path / "b.tar"
    if spoilt == "text":
        backup.write_text("no backup")
    elif spoilt == "empty tar":
        tarfile.open(backup, "w").close()
    else:
        call_command("backup", out=backup)
        backup.write_bytes(backup.read_bytes()[:4096])
    settings.DATABASE_URL = empty
    with psycopg.connect(empty) as connection:
        connection.execute("create table precious (x int)")
    with pytest.raises(CommandError, match="Nothing was restored"):
        call_command("restore", str(backup), no_prepare=True, replace=True)
    assert list(contents(empty)) == ["public.precious"]


@pytest.mark.django_db(transaction=True)
def test_keys_go_along_on_request_and_replace_nothing(filled: str, empty: str, settings: Any, tmp_path: Path) -> None:
    settings.GOODPUT_VAR = tmp_path / "old"
    secrets = tmp_path / "old/secrets"
    secrets.mkdir(parents=True)
    for name in ("log-ed25519.key", "release.pem", "database_password"):
        (secrets / name).write_text(f"{name} of the old machine")
    call_command("backup", out=tmp_path / "without.tar")
    call_command("backup", out=tmp_path / "with.tar", with_keys=True)
    settings.DATABASE_URL, settings.GOODPUT_VAR = empty, tmp_path / "new"
    call_command("restore", str(tmp_path / "without.tar"), no_prepare=True)
    assert not (tmp_path / "new").exists()
    (tmp_path / "new/secrets").mkdir(parents=True)
    (tmp_path / "new/secrets/release.pem").write_text("of the new machine")
    call_command("restore", str(tmp_path / "with.tar"), no_prepare=True, replace=True)
    found = {file.name: file.read_text() for file in (tmp_path / "new/secrets").iterdir()}
    assert found == {"log-ed25519.key": "log-ed25519.key of the old machine", "release.pem": "of the new machine"}
    assert stat.S_IMODE((tmp_path / "new/secrets/log-ed25519.key").stat().st_mode) == 0o600


def test_without_a_database_there_is_no_backup(settings: Any, tmp_path: Path) -> None:
    settings.DATABASE_URL = "postgresql://nobody:secret-word@127.0.0.1:1/none"
    with pytest.raises(CommandError) as caught:
        call_command("backup", out=tmp_path / "b.tar", skip_checks=True)
    assert "secret-word" not in str(caught.value)
    assert list(tmp_path.iterdir()) == []


def test_the_tools_are_found() -> None:
    assert Path(backups.tool("pg_dump")).exists()
