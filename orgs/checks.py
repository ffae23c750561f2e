"""Start-up checks: a pooler that mixes orgs, a role that may do too much, what Citus would refuse."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.conf import settings
from django.core.checks import CheckMessage, Error, Tags, Warning, register
from django.db import DatabaseError, connection

from orgs.migration_rules import org_migrations, refused_by_citus

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


SUPERUSER = (
    "The server's role is a superuser of PostgreSQL. It needs no more than to own its database: name another role in "
    "DATABASE_URL, and `manage.py own_database --admin SUPERUSER` makes it and hands everything over."
)
NO_CITUS = "GOODPUT_CITUS is set, but the database has no extension citus: orgs would not be distributed."


def is_superuser() -> bool:
    """Whether the role of this connection may do everything on its server."""
    with connection.cursor() as cursor:
        cursor.execute("select rolsuper from pg_roles where rolname = current_user")
        return bool(cursor.fetchone()[0])


@register(Tags.database)
def role_is_no_superuser(
    app_configs: Any = None, databases: Sequence[str] | None = None, **_: Any
) -> list[CheckMessage]:
    """A superuser is an Error, in `local` a Warning; nothing where the database can't be asked."""
    try:
        if not databases or not is_superuser():
            return []
    except DatabaseError:
        return []
    if settings.GOODPUT_EXPOSE.is_open:
        return [Warning(SUPERUSER, id="orgs.W002")]
    return [Error(SUPERUSER, id="orgs.E002")]


@register(Tags.database)
def citus_is_there(app_configs: Any = None, databases: Sequence[str] | None = None, **_: Any) -> list[CheckMessage]:
    """An Error when Citus is asked for and missing; nothing where the database can't be asked."""
    if not databases or not settings.GOODPUT_CITUS:
        return []
    try:
        with connection.cursor() as cursor:
            cursor.execute("select count(*) from pg_extension where extname = 'citus'")
            is_there = bool(cursor.fetchone()[0])
    except DatabaseError:
        return []
    return [] if is_there else [Error(NO_CITUS, id="orgs.E003")]


@register(Tags.models)
def nothing_that_citus_refuses(app_configs: Any = None, **_: Any) -> list[CheckMessage]:
    """An Error for each migration of an org's app that Citus would refuse, where Citus is asked for."""
    if not settings.GOODPUT_CITUS:
        return []
    found = [finding for one in org_migrations() for finding in refused_by_citus(one)]
    return [Error(f"Citus refuses this: {finding}.", id="orgs.E004") for finding in found]
