"""Liveness and readiness, for load balancers and the launcher."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import redis
from django.conf import settings
from django.db import DatabaseError, connection
from django.db.migrations.executor import MigrationExecutor
from django.db.migrations.loader import MigrationLoader
from django.http import HttpRequest, HttpResponse, JsonResponse
from psycopg import sql

from fleet.selectors_waiting import ORGS_PER_STATEMENT, oldest_waiting
from orgs.models import Org

MAX_WAITING_SECONDS = 300  # a fold further behind than this is not ready to be believed


def healthz(request: HttpRequest) -> HttpResponse:
    """`ok` while this process answers; touches no database."""
    return HttpResponse("ok\n", content_type="text/plain")


def readyz(request: HttpRequest) -> JsonResponse:
    """200 when database, broker, migrations and fold are in order, else 503; each part says `ok` or what is wrong."""
    parts = {"database": _database(), "broker": _broker()}
    waiting = None
    if parts["database"] == "ok":
        parts["migrations"] = _asked(_migrations)
        parts["fold"] = "unknown"
        if parts["migrations"] == "ok":
            waiting = oldest_waiting(_active_orgs())
            parts["fold"] = "behind" if (waiting or 0) > MAX_WAITING_SECONDS else "ok"
    else:
        parts["migrations"] = parts["fold"] = "unknown"
    is_ready = all(answer == "ok" for answer in parts.values())
    body: dict[str, Any] = {"status": "ready" if is_ready else "not ready", **parts, "oldest_unfolded_seconds": waiting}
    response = JsonResponse(body, status=200 if is_ready else 503)
    response["Cache-Control"] = "no-store"
    if not is_ready:
        response["Retry-After"] = "5"
    return response


def _asked(question: Callable[[], str]) -> str:
    """The answer of a question to the database, `error` when it can't be had."""
    try:
        return question()
    except DatabaseError:
        return "error"


def _database() -> str:
    def answers() -> str:
        with connection.cursor() as cursor:
            cursor.execute("select 1")
        return "ok"

    return _asked(answers)


def _broker() -> str:
    try:
        with redis.Redis.from_url(settings.REDIS_URL, socket_timeout=2, socket_connect_timeout=2) as broker:
            broker.ping()
    except redis.RedisError:
        return "error"
    return "ok"


@cache
def _latest() -> tuple[tuple[str, str], ...]:
    """The newest migrations of the code that runs here, as (app, name)."""
    return tuple(MigrationLoader(None).graph.leaf_nodes())


def _migrations() -> str:
    """`ok` when the public schema and every active org's have the newest migrations."""
    executor = MigrationExecutor(connection)
    if executor.migration_plan(executor.loader.graph.leaf_nodes()):
        return "pending"
    return "pending" if _orgs_behind(_active_orgs()) else "ok"


def _orgs_behind(orgs: list[Org]) -> bool:
    """Whether an org lacks one of the newest migrations of its own apps: each schema migrates by itself."""
    chunks = (orgs[at : at + ORGS_PER_STATEMENT] for at in range(0, len(orgs), ORGS_PER_STATEMENT))
    return any(_is_one_behind(chunk) for chunk in chunks)


def _is_one_behind(orgs: list[Org]) -> bool:
    apps = {name.rpartition(".")[2] for name in settings.TENANT_APPS}
    wanted = sql.SQL(", ").join(sql.Literal(f"{app}.{name}") for app, name in _latest() if app in apps)
    branches = [
        sql.SQL("(select count(distinct app || '.' || name) from {} where app || '.' || name in ({}))").format(
            sql.Identifier(org.schema_name, "django_migrations"), wanted
        )
        for org in orgs
    ]
    with connection.cursor() as cursor:
        cursor.execute(sql.SQL(" union all ").join(branches).as_string(cursor.connection))
        return any(row[0] < len(apps) for row in cursor.fetchall())


def _active_orgs() -> list[Org]:
    return list(Org.objects.filter(status=Org.Status.ACTIVE))
