"""One version of skew: while schemas are being migrated, code and tables of an org may be a version apart.

Then a page answers "in a moment" instead of an error, a task waits for its next turn, and other orgs notice nothing.
"""

from __future__ import annotations

from typing import Any

from django.db import DatabaseError, ProgrammingError
from django.db import connection as _connection
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django_tenants.utils import schema_context
from psycopg import errors

from orgs.models import Org
from orgs.schemas import versions_of

connection: Any = _connection
RETRY_AFTER_SECONDS = 15
MISSING = (errors.UndefinedTable, errors.UndefinedColumn, errors.UndefinedFunction)


def is_skew(error: BaseException, schema: str) -> bool:
    """Whether an error is a missing table or column of an org whose schema is not at this code's version."""
    if not isinstance(error, ProgrammingError) or not isinstance(error.__cause__, MISSING):
        return False
    try:
        with schema_context("public"):
            org = Org.objects.filter(schema_name=schema).first()
            version = versions_of([org])[0] if org else None
    except DatabaseError:  # inside a transaction that has failed: nothing can be asked any more
        return False
    return version is not None and (version.is_behind or version.is_ahead)


def upgrading(request: HttpRequest) -> HttpResponse:
    """503 with a sentence and a time, as a problem document for programs."""
    if request.path.startswith("/v1/") or request.path == "/metrics":
        body = (
            '{"type":"about:blank","title":"Service Unavailable","status":503,"code":"upgrading",'
            '"detail":"This org is being upgraded. Try again in a moment."}'
        )
        response = HttpResponse(body, status=503, content_type="application/problem+json")
    else:
        response = render(request, "upgrading.html", status=503)
    response["Retry-After"] = str(RETRY_AFTER_SECONDS)
    return response
