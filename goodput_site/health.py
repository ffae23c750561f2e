"""Liveness and readiness, for load balancers and the launcher."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import redis
from django.conf import settings
from django.db import DatabaseError, connection
from django.db.migrations.executor import MigrationExecutor
from django.http import HttpRequest, HttpResponse, JsonResponse

from fleet.selectors_waiting import oldest_waiting
from orgs.models import Org
from orgs.schemas import versions_of

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


def _migrations() -> str:
    """`ok` when the public schema and every active org's have the newest migrations."""
    executor = MigrationExecutor(connection)
    if executor.migration_plan(executor.loader.graph.leaf_nodes()):
        return "pending"
    return "pending" if any(version.is_behind for version in versions_of(_active_orgs())) else "ok"


def _active_orgs() -> list[Org]:
    return list(Org.objects.filter(status=Org.Status.ACTIVE))
