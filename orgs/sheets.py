"""CSV for people who open it in a spreadsheet: what somebody typed is never taken for a formula."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence
from typing import Any

from django.http import HttpResponse

DANGEROUS = tuple("=+-@\t\r\n\x00|%＝＋－＠")


def cell(value: Any) -> Any:
    """A value for a sheet: numbers stay numbers, text that a spreadsheet would compute gets a quote in front."""
    if value is None:
        return ""
    if isinstance(value, int | float):
        return value
    text = str(value).replace("\x00", "")
    return f"'{text}" if text.lstrip(" ").startswith(DANGEROUS) else text


def as_csv(head: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """Lines with CRLF (RFC 4180)."""
    out = io.StringIO()
    writer = csv.writer(out)
    writer.writerow(head)
    writer.writerows([cell(value) for value in row] for row in rows)
    return out.getvalue()


def csv_response(file_name: str, head: Sequence[str], rows: Iterable[Sequence[Any]]) -> HttpResponse:
    """A download. `file_name` is ours, never typed by somebody."""
    response = HttpResponse(as_csv(head, rows), content_type="text/csv; charset=utf-8")
    response["Content-Disposition"] = f'attachment; filename="{file_name}"'
    response["Cache-Control"] = "private, no-store"
    return response
