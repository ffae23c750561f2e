"""Statements over many rows at once, their arrays sent in binary: text arrays cost more CPU than the fold itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import psycopg
from django.db import connection


def execute(statement: str, parameters: Sequence[Any] | Mapping[str, Any]) -> list[tuple[Any, ...]]:
    """Run a statement (placeholders `%b`) in the current org; its rows, none for a write."""
    _enter_org()
    with psycopg.Cursor(connection.connection) as cursor:
        cursor.execute(statement, parameters, binary=True)
        return cursor.fetchall() if cursor.description else []


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
