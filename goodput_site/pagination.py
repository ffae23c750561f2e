"""Cursor pagination of the API: opaque cursors, stable while rows arrive."""

from __future__ import annotations

from rest_framework.pagination import CursorPagination


class CursorPages(CursorPagination):
    """`?cursor=…&page_size=…`; the newest first unless a view says otherwise."""

    ordering = "-pk"
    page_size = 100
    max_page_size = 1000
    page_size_query_param = "page_size"
