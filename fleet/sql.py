"""Statements over many rows at once, their arrays sent in binary: text arrays cost more CPU than the fold itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import psycopg
from django.db import connection
from psycopg import sql


def execute(statement: str, parameters: Sequence[Any] | Mapping[str, Any]) -> list[tuple[Any, ...]]:
    """Run a statement (placeholders `%b`) in the current org; its rows, none for a write. Raises Django's errors."""
    _enter_org()
    with connection.wrap_database_errors, psycopg.Cursor(connection.connection) as cursor:
        cursor.execute(statement, parameters, binary=True)
        return cursor.fetchall() if cursor.description else []


def ask_org(statement: str, *tables: str, **literals: int) -> list[tuple[Any, ...]]:
    """The rows of a statement in which `{name}` stands for the current org's table `fleet_name`, or for a literal.

    Tables are named with the org's schema, so it needs no SET before it: outside of a transaction one round trip, not
    two.
    """
    schema = connection.schema_name  # type: ignore[attr-defined]
    named: dict[str, sql.Composable] = {table: sql.Identifier(schema, f"fleet_{table}") for table in tables}
    text = sql.SQL(statement).format(**named, **{name: sql.Literal(value) for name, value in literals.items()})
    connection.ensure_connection()
    with connection.wrap_database_errors, psycopg.Cursor(connection.connection) as cursor:
        cursor.execute(text, binary=True, prepare=False)  # a text for each org: prepared they would push out all others
        return cursor.fetchall()


def _enter_org() -> None:
    """Have the connection's search_path be the org's. A Django cursor sets it; its connection's own can send binary.

    Within a transaction it is set once: a chunk of the fold is dozens of statements, and each SET costs as much as one.
    django-tenants (4.0) forgets that it was set at a change of org, a rollback (to a savepoint, too) and a reconnect.
    """
    if connection.in_atomic_block and connection.search_path_set_schemas:  # type: ignore[attr-defined]
        return
    with connection.cursor():
        pass


def columns(rows: Sequence[Sequence[Any]]) -> list[list[Any]]:
    """Rows as columns, for `unnest`."""
    return [list(column) for column in zip(*rows, strict=True)]
