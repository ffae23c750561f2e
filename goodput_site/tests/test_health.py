"""`/healthz` and `/readyz`: alive is not ready, and what is not ready has a name."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from django.db import connection
from django.test import Client

from fleet.tests.bodies import packed
from orgs.models import Org
from orgs.services import create_org, set_org_status

ROOT = Path(__file__).resolve().parents[2]
ASK = """
import json, django
django.setup()
from django.test import Client
answers = {path: Client(HTTP_HOST="localhost").get(path) for path in ("/healthz", "/readyz", "/healthz")}
print(json.dumps({path: [answer.status_code, answer.content.decode()] for path, answer in answers.items()}))
"""


def ready() -> tuple[int, Any]:
    """Status and body of /readyz."""
    response = Client(HTTP_HOST="localhost").get("/readyz")
    assert response["Cache-Control"] == "no-store"
    return response.status_code, response.json()


def silent_port() -> int:
    """A port on which nobody listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.mark.django_db
def test_all_is_well() -> None:
    status, body = ready()
    assert status == 200
    assert body == {
        "status": "ready",
        "database": "ok",
        "broker": "ok",
        "migrations": "ok",
        "fold": "ok",
        "oldest_unfolded_seconds": None,
    }


def test_alive_asks_no_database() -> None:
    """This test has no database: asking one would fail it."""
    response = Client(HTTP_HOST="localhost").get("/healthz")
    assert (response.status_code, response.content) == (200, b"ok\n")


def test_a_lost_database_is_named_and_the_process_stays_alive() -> None:
    """A process of its own, pointed at a port where no database is."""
    env = {
        **os.environ,
        "DATABASE_URL": f"postgresql://goodput:x@127.0.0.1:{silent_port()}/goodput",
        "DJANGO_SETTINGS_MODULE": "goodput_site.settings_test",
    }
    made = subprocess.run([sys.executable, "-c", ASK], env=env, cwd=ROOT, capture_output=True, text=True, timeout=60)
    answers = json.loads(made.stdout.splitlines()[-1])
    assert answers["/healthz"] == [200, "ok\n"]
    status, body = answers["/readyz"][0], json.loads(answers["/readyz"][1])
    assert status == 503
    assert body["status"] == "not ready"
    assert (body["database"], body["broker"]) == ("error", "ok")
    assert (body["migrations"], body["fold"]) == ("unknown", "unknown")


@pytest.mark.django_db
def test_a_lost_broker_is_named(settings: Any) -> None:
    settings.REDIS_URL = f"redis://127.0.0.1:{silent_port()}/0"
    status, body = ready()
    assert status == 503
    assert (body["broker"], body["database"], body["migrations"], body["fold"]) == ("error", "ok", "ok", "ok")


@pytest.mark.django_db
def test_a_pending_shared_migration_is_named() -> None:
    with connection.cursor() as cursor:
        cursor.execute(
            "delete from public.django_migrations where app = 'orgs' and name ="
            " (select max(name) from public.django_migrations where app = 'orgs')"
        )
    status, body = ready()
    assert status == 503
    assert (body["migrations"], body["database"]) == ("pending", "ok")


@pytest.mark.django_db
@pytest.mark.parametrize("schema", ["alpha", "beta"])
def test_a_pending_migration_of_one_org_is_named(schema: str, request: pytest.FixtureRequest) -> None:
    org = request.getfixturevalue(schema)
    with connection.cursor() as cursor:
        cursor.execute(f'delete from "{org.schema_name}".django_migrations where app = %s', ["fleet"])
    status, body = ready()
    assert status == 503
    assert (body["migrations"], body["fold"]) == ("pending", "unknown")
    set_org_status(org, Org.Status.SUSPENDED, actor="test")  # nobody is served from it, nobody waits for it
    assert ready()[0] == 200


@pytest.mark.django_db
def test_a_lost_schema_is_named() -> None:
    org = create_org("gamma")
    with connection.cursor() as cursor:
        cursor.execute(f'drop schema "{org.schema_name}" cascade')
    status, body = ready()
    assert status == 503
    assert body["migrations"] == "error"


@pytest.mark.django_db
def test_a_fold_that_is_behind_is_named(beta: Any, key_of: Any) -> None:
    headers = {"authorization": f"Bearer {key_of(beta)}", "content-encoding": "gzip"}
    body, _ = packed()
    sent = Client(HTTP_HOST="localhost").post("/v1/batches", body, "application/msgpack", headers=headers)
    assert sent.status_code == 202
    status, told = ready()
    assert status == 200
    assert 0 <= told["oldest_unfolded_seconds"] < 60
    with connection.cursor() as cursor:
        cursor.execute(
            f"update \"{beta.schema_name}\".fleet_waiting set received_at = received_at - interval '10 minutes'"
        )
    status, told = ready()
    assert status == 503
    assert (told["fold"], told["database"], told["migrations"]) == ("behind", "ok", "ok")
    assert 600 <= told["oldest_unfolded_seconds"] < 700
    with connection.cursor() as cursor:
        cursor.execute(f'delete from "{beta.schema_name}".fleet_waiting')
    assert ready()[0] == 200
