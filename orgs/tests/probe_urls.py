"""Routes that answer with what the database says of the org in which they run."""

from __future__ import annotations

from django.db import connection
from django.http import HttpRequest, HttpResponse, JsonResponse, StreamingHttpResponse
from django.urls import include, path


def ask() -> dict[str, str]:
    """The schema and the search path, as PostgreSQL has them."""
    with connection.cursor() as cursor:
        cursor.execute("select current_schema(), current_setting('search_path')")
        schema, search_path = cursor.fetchone()
    return {"schema": schema, "search_path": search_path}


def where(request: HttpRequest) -> JsonResponse:
    """Where this request runs."""
    return JsonResponse(ask())


def boom(request: HttpRequest) -> HttpResponse:
    """Fail inside the org, in a broken transaction."""
    with connection.cursor() as cursor:
        cursor.execute("select 1/0")
    raise AssertionError("not reached")


def stream(request: HttpRequest) -> StreamingHttpResponse:
    """Rows that would be read after the org is left."""
    return StreamingHttpResponse(str(ask()) for _ in range(1))


urlpatterns = [
    path("where", where),
    path("o/<slug:org_slug>/where", where),
    path("o/<slug:org_slug>/boom", boom),
    path("o/<slug:org_slug>/stream", stream),
    path("", include("goodput_site.urls")),
]
