"""Start-up check: a pooler that hands out connections per transaction would mix orgs.

The schema of an org is a setting of its connection.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.core.checks import CheckMessage, Error, Tags, register
from django.db import DatabaseError, connection

POOLED = (
    "The database is reached through a pooler that hands out connections per transaction. An org is a setting of its "
    "connection, so orgs would mix. Let it pool per session (PgBouncer: pool_mode = session), or connect directly."
)


def backends_of_two_connections() -> tuple[int, int]:
    """Process ids of the server behind two connections that are open at once; equal only behind such a pooler."""
    pids = []
    clients = [connection.copy(), connection.copy()]
    try:
        for client in clients:
            with client.cursor() as cursor:
                cursor.execute("select pg_backend_pid()")
                pids.append(cursor.fetchone()[0])
    finally:
        for client in clients:
            client.close()
    return pids[0], pids[1]


@register(Tags.database)
def pooling_is_per_session(
    app_configs: Any = None, databases: Sequence[str] | None = None, **_: Any
) -> list[CheckMessage]:
    """An Error when two open connections share one backend; nothing where the database can't be asked."""
    if not databases:
        return []
    try:
        first, second = backends_of_two_connections()
    except DatabaseError:
        return []
    return [Error(POOLED, id="orgs.E001")] if first == second else []
