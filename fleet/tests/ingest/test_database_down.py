"""I38: the database goes away between parse and commit, at the look-up of a key, or for good. No receipt, no 500."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import psycopg
import pytest
from django import db
from django.db import connection

from fleet import ingest
from fleet.tests.bodies import packed
from fleet.tests.ingest.server import ROOT, Server, free_port, request
from fleet.tests.ingest.uploads import count, post
from orgs import keys


@pytest.fixture
def at_insert(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[int], None]], None]:
    """A function: have this called with the number of the attempt right before each INSERT of this test."""
    insert = ingest._insert
    attempts = [0]

    def register(hook: Callable[[int], None]) -> None:
        def hooked(schema: str, values: dict[str, Any]) -> Any:
            attempts[0] += 1
            connection.ensure_connection()
            hook(attempts[0])
            return insert(schema, values)

        monkeypatch.setattr(ingest, "_insert", hooked)

    return register


def terminate_own_backend(database_url: str) -> None:
    """End this thread's database session from another one, as a failing server does."""
    pid = connection.connection.info.backend_pid
    with psycopg.connect(database_url, autocommit=True) as other:
        assert other.execute("select pg_terminate_backend(%s, 2000)", [pid]).fetchone() == (True,)


@pytest.mark.django_db(transaction=True)
def test_i38_a_connection_lost_between_parse_and_commit_is_tried_once_more(
    alpha: Any, token: str, database_url: str, at_insert: Any
) -> None:
    at_insert(lambda attempt: terminate_own_backend(database_url) if attempt == 1 else None)
    answer = post(packed()[0], token)
    assert (answer.status, answer.json()["duplicate"]) == (202, False)
    assert count(alpha) == 1


@pytest.mark.django_db(transaction=True)
def test_i38_lost_twice_is_a_503_without_a_receipt(alpha: Any, token: str, database_url: str, at_insert: Any) -> None:
    at_insert(lambda attempt: terminate_own_backend(database_url) if attempt <= 2 else None)
    body = packed()[0]
    answer = post(body, token)
    assert (answer.status, answer.code) == (503, "not_stored")
    assert int(answer.headers["retry-after"]) > 0
    assert b"batch_sha256" not in answer.body
    assert count(alpha) == 0
    assert post(body, token).status == 202, "the next request has a connection of its own"
    assert count(alpha) == 1


@pytest.mark.django_db(transaction=True)
def test_i38_ended_while_the_insert_waits_it_stores_once(alpha: Any, token: str, database_url: str) -> None:
    """The unknown outcome: the statement was on its way when the session ended. The same bytes meet the same row."""
    import threading

    body, _ = packed()
    answers: list[Any] = []

    def upload() -> None:
        try:
            answers.append(post(body, token))
        finally:
            connection.close()

    assert post(packed(node_id="warm")[0], token).status == 202
    with psycopg.connect(database_url) as blocker:
        blocker.execute(f'lock table "{alpha.schema_name}".fleet_inbox in share mode')  # lets read, not write
        thread = threading.Thread(target=upload)
        thread.start()
        waiting = "select pid from pg_stat_activity where wait_event_type = 'Lock' and datname = current_database()"
        with psycopg.connect(database_url, autocommit=True) as other:
            deadline = time.monotonic() + 10
            while not (row := other.execute(waiting).fetchone()) and time.monotonic() < deadline:
                time.sleep(0.02)
            assert row is not None
            other.execute("select pg_terminate_backend(%s, 2000)", row)
        blocker.rollback()
    thread.join(timeout=20)
    assert answers[0].status == 202
    assert count(alpha) == 2


@pytest.mark.django_db(transaction=True)
def test_i38_a_read_only_database_is_a_503(alpha: Any, token: str, at_insert: Any) -> None:
    def make_read_only(_: int) -> None:
        connection.connection.execute("set default_transaction_read_only = on")

    at_insert(make_read_only)
    answer = post(packed()[0], token)
    connection.close()
    assert (answer.status, answer.code) == (503, "not_stored")
    assert answer.headers["retry-after"]
    assert count(alpha) == 0


@pytest.mark.django_db(transaction=True)
def test_i38_an_org_that_was_dropped_is_a_503_until_its_key_is_forgotten(
    alpha: Any, token: str, at_insert: Any
) -> None:
    """No tables: the key is still in the cache. Nothing is stored elsewhere instead."""
    assert post(packed()[0], token).status == 202
    with connection.cursor() as cursor:
        cursor.execute(f'alter schema "{alpha.schema_name}" rename to gone_for_now')
    try:
        answer = post(packed(node_id="n2")[0], token)
        far = post(packed(node_id="n2", first_ts=1_933_000_000_000)[0], token)
    finally:
        with connection.cursor() as cursor:
            cursor.execute(f'alter schema gone_for_now rename to "{alpha.schema_name}"')
    assert (answer.status, answer.code) == (503, "not_stored")
    assert (far.status, far.code) == (503, "not_stored")
    assert count(alpha) == 1


@pytest.mark.django_db(transaction=True)
def test_i38_a_session_that_ended_before_the_key_was_looked_up_is_no_500(
    alpha: Any, token: str, database_url: str
) -> None:
    body = packed()[0]
    assert post(body, token).status == 202
    for _ in range(2):
        keys.cache.clear()
        terminate_own_backend(database_url)
        assert post(body, token).status in (202, 503)
        assert post(body, token).status == 202
    connection.connection.close()  # an InterfaceError on the client's side of the wire
    keys.cache.clear()
    assert post(body, token).status in (202, 503)
    assert post(body, token).status == 202


@pytest.mark.django_db
@pytest.mark.parametrize("kind", [db.InterfaceError, db.OperationalError, db.InternalError, db.Error])
def test_i38_no_kind_of_database_error_at_the_look_up_is_a_500(
    kind: type[Exception], token: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any) -> Any:
        raise kind("it is gone")

    monkeypatch.setattr(keys, "_look_up", fail)
    monkeypatch.setattr(connection, "close", lambda: None)  # the test's own transaction
    answer = post(packed()[0], token)
    assert answer.status == 503
    assert answer.headers["retry-after"]


class OwnDatabase:
    """A PostgreSQL of this test alone, which it may kill."""

    def __init__(self, home: Path) -> None:
        from goodput_site.launcher.postgres import Postgres

        self.home = home
        self.postgres = Postgres(home, free_port(), "a-password-of-this-test")
        self.child: Any = None

    def start(self) -> None:
        """Start it and wait until it answers."""
        from goodput_site.launcher.processes import spawn, wait_until

        server = self.postgres
        server.prepare(initdb_options=("--no-sync",))
        self.child = spawn(
            server.command,
            env=server.env,
            log=self.home / "pg.log",
            death_signal=server.stop_signal,
            account=server.account,
        )
        assert wait_until(server.is_ready, lambda: self.child.poll() is None, timeout_seconds=30)

    def kill(self) -> None:
        """SIGKILL to the whole group: no checkpoint, no goodbye."""
        with suppress(ProcessLookupError):
            os.killpg(self.child.pid, signal.SIGKILL)
        self.child.wait()

    def rows(self) -> set[str]:
        """The hashes of the batches that are there."""
        with psycopg.connect(self.postgres.url) as session:
            found = session.execute("select schema_name from orgs_org where slug = 'local'").fetchone()
            assert found is not None
            rows = session.execute(f"select encode(sha256, 'hex') from {found[0]}.fleet_inbox").fetchall()
        return {row[0] for row in rows}


@pytest.fixture
def own_database(tmp_path: Path) -> Iterator[OwnDatabase]:
    """A fresh database with the org `local`, as `./goodput up` makes it."""
    from goodput_site.launcher.services import _folder

    with _folder() as home:
        database = OwnDatabase(home)
        database.start()
        try:
            env = {**os.environ, "DATABASE_URL": database.postgres.url, "GOODPUT_EXPOSE": "local"}
            env |= {"DJANGO_SETTINGS_MODULE": "goodput_site.settings", "GOODPUT_VAR": str(tmp_path)}
            prepare = [sys.executable, "manage.py", "prepare", "--agent-token-file", str(tmp_path / "token")]
            subprocess.run(prepare, cwd=ROOT, env=env, check=True, capture_output=True, timeout=120)
            yield database
        finally:
            database.kill()


def test_i38_postgres_killed_while_batches_arrive_loses_no_receipt_and_gives_no_500(
    own_database: OwnDatabase, tmp_path: Path
) -> None:
    """Killed, down for a while, started again: 202 or 503, and every receipt's row is there after the recovery."""
    receipts: set[str] = set()
    token = (tmp_path / "token").read_text().strip()
    env = {"DATABASE_URL": own_database.postgres.url, "GOODPUT_EXPOSE": "local", "GOODPUT_KEY_CACHE_SECONDS": "30"}

    def send(first: int, number: int, key: str | None = token) -> list[int]:
        statuses = []
        for seq in range(first, first + number):
            body, sha256 = packed(agent_id="a", seq=seq)
            answer = web.talk(request(body, key))[0]
            statuses.append(answer.status)
            if answer.status == 202:
                assert answer.json()["batch_sha256"] == sha256
                receipts.add(sha256)
            else:
                assert (answer.status, answer.code) in ((503, "not_stored"), (503, "unavailable"))
                assert int(answer.headers["retry-after"]) > 0
        return statuses

    with Server(tmp_path / "web.log", **env) as web:
        assert send(0, 20) == [202] * 20
        own_database.kill()
        assert send(20, 6) == [503] * 6, "the key is known, the INSERT fails"
        assert send(30, 2, "gp_never_seen_before") == [503] * 2, "the key must be looked up"
        assert send(40, 2, None) in ([503, 503],), "no key, in local mode"
        own_database.start()
        assert send(20, 6) == [202] * 6, "the agent's retry"
        assert own_database.rows() == receipts
        assert len(receipts) == 26
        own_database.kill()
        own_database.start()
        assert send(50, 1)[0] in (202, 503)
        assert send(51, 3) == [202] * 3
        assert own_database.rows() == receipts
    assert "Traceback" not in (tmp_path / "web.log").read_text()
