"""Liveness and readiness, for load balancers and the launcher."""

from __future__ import annotations

from typing import Any

import redis
from django.conf import settings
from django.db import DatabaseError, connection
from django.db.migrations.executor import MigrationExecutor
from django.http import HttpRequest, HttpResponse, JsonResponse

from fleet.selectors_waiting import oldest_waiting
from orgs.models import Org

MAX_WAITING_SECONDS = 300  # a fold further behind than this is not ready to be believed


def healthz(request: HttpRequest) -> HttpResponse:
    """`ok` while this process answers; touches no database."""
    return HttpResponse("ok\n", content_type="text/plain")


def readyz(request: HttpRequest) -> JsonResponse:
    """200 when database, broker and migrations are in order and the fold keeps up, else 503, each part named."""
    parts: dict[str, Any] = {"database": "ok", "broker": "ok", "migrations": "ok", "oldest_unfolded_seconds": None}
    ready = True
    try:
        executor = MigrationExecutor(connection)
        if executor.migration_plan(executor.loader.graph.leaf_nodes()):
            parts["migrations"], ready = "pending", False
        waiting = oldest_waiting(Org.objects.filter(status=Org.Status.ACTIVE))
        parts["oldest_unfolded_seconds"] = waiting
        if waiting is not None and waiting > MAX_WAITING_SECONDS:
            ready = False
    except DatabaseError:
        parts["database"], ready = "error", False
    try:
        with redis.Redis.from_url(settings.REDIS_URL, socket_timeout=2, socket_connect_timeout=2) as broker:
            broker.ping()
    except redis.RedisError:
        parts["broker"], ready = "error", False
    return JsonResponse({"status": "ready" if ready else "not ready", **parts}, status=200 if ready else 503)
