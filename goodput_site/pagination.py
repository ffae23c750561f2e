"""Cursor pagination of the API: opaque cursors, stable while rows arrive."""

from __future__ import annotations

from typing import Any

from django.core.exceptions import ValidationError
from rest_framework import exceptions
from rest_framework.pagination import CursorPagination


class BadCursor(exceptions.ValidationError):
    """A cursor that no page gave out."""

    status_code = 422


class CursorPages(CursorPagination):
    """`?cursor=…&page_size=…`; the newest first unless a view says otherwise."""

    ordering = "-pk"
    page_size = 100
    max_page_size = 1000
    page_size_query_param = "page_size"

    def paginate_queryset(self, queryset: Any, request: Any, view: Any = None) -> Any:
        """A page. Raises BadCursor → 422."""
        try:
            return super().paginate_queryset(queryset, request, view)
        except (exceptions.NotFound, ValidationError, ValueError) as error:
            raise BadCursor({"cursor": ["Take the cursor out of `next`, as it is."]}) from error

    def get_paginated_response_schema(self, schema: dict[str, Any]) -> dict[str, Any]:
        """As the page is: in OpenAPI 3.1 a link that may be null is a type, no attribute."""
        link = {"type": ["string", "null"], "format": "uri"}
        return {
            "type": "object",
            "required": ["next", "previous", "results"],
            "properties": {"next": link, "previous": link, "results": schema},
        }
