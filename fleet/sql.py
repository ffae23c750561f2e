"""Statements over many rows at once, their arrays sent in binary: text arrays cost more CPU than the fold itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import psycopg
from django.db import connection


def execute(statement: str, parameters: Sequence[Any] | Mapping[str, Any]) -> list[tuple[Any, ...]]:
    """Run a statement (placeholders `%b`) in the current org; its rows, none for a write."""
    # Django's cursor sets the org's search_path; its connection's own cursor can send binary.
    with connection.cursor() as django_cursor, psycopg.Cursor(django_cursor.connection) as cursor:
        cursor.execute(statement, parameters, binary=True)
        return cursor.fetchall() if cursor.description else []


def columns(rows: Sequence[Sequence[Any]]) -> list[list[Any]]:
    """Rows as columns, for `unnest`."""
    return [list(column) for column in zip(*rows, strict=True)]
