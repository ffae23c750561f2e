"""Bringing the schemas of many orgs to the version of the code: several at once, each by itself, resumable.

Only schemas that are behind are touched, so a run that was interrupted goes on where it stopped. One that fails leaves
the others alone. Locks are waited for briefly, so that a migration never stands behind a long reader and all uploads
behind the migration.
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from django.core.management.commands.migrate import Command as Migrate
from django.db import connection as _connection
from django.db import connections
from django_tenants.migration_executors.base import run_migrations

from orgs.models import Org
from orgs.schemas import code_version, versions_of

connection: Any = _connection
LOCK_PATIENCE = "10s"
TRIES = 3


@dataclass(frozen=True)
class Outcome:
    """What came of one org's schema; `error` is empty where it is up to date now."""

    slug: str
    schema: str
    error: str = ""


def behind() -> list[Org]:
    """Orgs, suspended ones too, whose schema lacks a migration of this code."""
    return [version.org for version in versions_of(Org.objects.all()) if version.is_behind]


def migrate(orgs: list[Org], jobs: int) -> Iterator[Outcome]:
    """Migrate these schemas with so many processes; an outcome each, as they come."""
    code_version()  # worked out once, before the processes part
    asked = [(org.slug, org.schema_name) for org in orgs]
    if jobs <= 1 or len(asked) <= 1:
        yield from map(_one, asked)
        return
    connections.close_all()  # a connection must not be shared between processes
    with multiprocessing.get_context("fork").Pool(min(jobs, len(asked))) as pool:
        yield from pool.imap_unordered(_one, asked)


def _options() -> dict[str, Any]:
    """What Django's `migrate` takes when it says nothing and asks nothing."""
    parser = Migrate().create_parser("manage.py", "migrate")
    options = vars(parser.parse_args(["--noinput", "--skip-checks", "--verbosity", "0"]))
    return {key: value for key, value in options.items() if key != "args"}


def _one(asked: tuple[str, str]) -> Outcome:
    """Migrate one schema; a lock that can't be had is waited for a few times."""
    slug, schema = asked
    for left in reversed(range(TRIES)):
        try:
            with connection.cursor() as cursor:
                cursor.execute(f"set lock_timeout = '{LOCK_PATIENCE}'")
            run_migrations([], _options(), "goodput", schema, allow_atomic=True)
            return Outcome(slug, schema)
        except Exception as error:  # whatever it is, it is told, and the other orgs go on
            connection.close()
            if left == 0 or "lock timeout" not in str(error):
                return Outcome(slug, schema, f"{type(error).__name__}: {error}".strip())
        finally:
            connection.close()
    raise AssertionError("unreachable")
