"""Schemas of orgs: which version each has, and new ones made from a recipe.

A recipe is the list of statements that the migrations sent when they made a schema for the first time, kept in the
public schema under the digest of the migrations' files. Sending it again takes a third of the time, because nothing is
worked out twice. A test compares a schema made by recipe with a migrated one, catalogue and rows.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import Any

from django.apps import apps
from django.conf import settings
from django.db import connection as _connection
from django.db.migrations.loader import MigrationLoader
from django.utils import timezone
from psycopg import ClientCursor, sql

from orgs.models import Org, SchemaRecipe

connection: Any = _connection  # django-tenants' backend, which has no types
ORGS_PER_STATEMENT = 1 if settings.GOODPUT_CITUS else 200  # there an org may be on another server
HERE = "\N{MATHEMATICAL LEFT WHITE SQUARE BRACKET}schema\N{MATHEMATICAL RIGHT WHITE SQUARE BRACKET}"
READS_OR_FRAMES = re.compile(r"\s*(select|show|savepoint|release|rollback|set search_path)\b", re.IGNORECASE)
MOMENT = re.compile(r"'(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?:\.\d+)?\+00:00)'::timestamptz")
OF_PUBLIC = re.compile(r'"(django_content_type|auth_permission)"')  # made once, for every org


def org_apps() -> list[str]:
    """Labels of the apps whose tables are an org's."""
    return [config.label for config in apps.get_app_configs() if config.name in settings.TENANT_APPS]


@cache
def code_version() -> dict[str, str]:
    """App → its newest migration in the code that runs here."""
    leaves = MigrationLoader(None).graph.leaf_nodes()
    return {app: name for app, name in leaves if app in org_apps()}


@dataclass(frozen=True)
class SchemaVersion:
    """App → the newest migration that an org's schema has."""

    org: Org
    newest: dict[str, str]

    @property
    def is_behind(self) -> bool:
        """Whether it lacks a migration of the code that runs here."""
        return any(self.newest.get(app, "") < name for app, name in code_version().items())

    @property
    def is_ahead(self) -> bool:
        """Whether a newer version migrated it: the tables are those of the next release."""
        return not self.is_behind and any(self.newest.get(app, "") > name for app, name in code_version().items())

    def __str__(self) -> str:
        return ", ".join(f"{app} {name[:4]}" for app, name in sorted(self.newest.items())) or "empty"


def versions_of(orgs: Iterable[Org]) -> list[SchemaVersion]:
    """The version of each org's schema; one statement for 200 orgs."""
    listed = list(orgs)
    by_id = {org.pk: org for org in listed}
    found: dict[int, dict[str, str]] = {org.pk: {} for org in listed}
    for start in range(0, len(listed), ORGS_PER_STATEMENT):
        branches = [
            sql.SQL("(select {}::bigint, app, max(name) from {} where app = any(%(apps)s) group by app)").format(
                org.pk, sql.Identifier(org.schema_name, "django_migrations")
            )
            for org in listed[start : start + ORGS_PER_STATEMENT]
        ]
        with connection.cursor() as cursor:
            cursor.execute(sql.SQL(" union all ").join(branches).as_string(cursor.connection), {"apps": org_apps()})
            for org_id, app, name in cursor.fetchall():
                found[org_id][app] = name
    return [SchemaVersion(by_id[org_id], newest) for org_id, newest in found.items()]


@cache
def migrations_digest() -> str:
    """SHA-256 over the files of every migration of an org's apps, and the names of all others."""
    names = sorted(MigrationLoader(None).disk_migrations)
    digest = hashlib.sha256(repr(names).encode())
    for label in sorted(org_apps()):
        for path in sorted(Path(apps.get_app_config(label).path).joinpath("migrations").glob("[0-9]*.py")):
            text = path.read_bytes()
            digest.update(f"{label}/{path.name}\0{len(text)}\0".encode() + text)
    return digest.hexdigest()


def make_schema(org: Org) -> None:
    """Create and fill the schema of a new org, inside the caller's transaction and from the public schema."""
    recipe = SchemaRecipe.objects.filter(digest=migrations_digest()).first()
    if recipe is not None:
        _follow(recipe.statements, org.schema_name)
        return
    with _written_down(org.schema_name) as statements:
        org.create_schema(check_if_exists=False, verbosity=0)
    SchemaRecipe.objects.exclude(digest=migrations_digest()).delete()
    SchemaRecipe.objects.get_or_create(digest=migrations_digest(), defaults={"statements": statements})


def _follow(statements: list[str], schema: str) -> None:
    """Send a recipe's statements, one by one (Citus takes no two at once), inside the new schema."""
    with connection.cursor() as cursor:
        cursor.execute(sql.SQL("create schema {}").format(sql.Identifier(schema)).as_string(cursor.connection))
    try:
        connection.set_schema(schema)
        with connection.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement.replace(HERE, schema))
    finally:
        connection.set_schema_to_public()


@contextmanager
def _written_down(schema: str) -> Iterator[list[str]]:
    """What is sent to the database meanwhile, as plain SQL, without what only reads or frames."""
    statements: list[str] = []
    name, began = re.compile(rf"\b{re.escape(schema)}\b"), timezone.now()

    def moment(match: re.Match[str]) -> str:
        """An instant of this minute is the one of the sending, whenever that is."""
        return "now()" if began <= datetime.fromisoformat(match[1]) <= timezone.now() else match[0]

    def note(execute: Callable[..., Any], text: str, params: Any, many: bool, context: dict[str, Any]) -> Any:
        result = execute(text, params, many, context)
        if not READS_OR_FRAMES.match(text) and not OF_PUBLIC.search(text) and not text.startswith("CREATE SCHEMA"):
            for values in params if many else [params]:
                full = ClientCursor(connection.connection).mogrify(text, values) if values else text
                statements.append(MOMENT.sub(moment, name.sub(HERE, full)))
        return result

    with connection.execute_wrapper(note):
        yield statements
