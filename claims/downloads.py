"""What pages and the API give as files: results as JSON, what counted as CSV, documents and packs."""

from __future__ import annotations

import json
from typing import Any

from django.http import HttpResponse

from claims.selectors import Month
from orgs.sheets import csv_response

COUNTED_HEAD = ("unit", "start_utc", "end_utc", "counted_seconds", "reasons", "subjects")


def file_response(body: bytes | str, kind: str, name: str) -> HttpResponse:
    """A download under a name of ours."""
    response = HttpResponse(body, content_type=kind)
    response["Content-Disposition"] = f'attachment; filename="{name}"'
    return response


def month_json(found: Month) -> HttpResponse:
    """The result.json of a month."""
    text = json.dumps(found.document, indent=2, sort_keys=True, ensure_ascii=False) + "\n"
    return file_response(text, "application/json", f"goodput-{found.month}-result.json")


def month_csv(found: Month) -> HttpResponse:
    """What counted in a month, one line an incident."""
    rows: list[tuple[Any, ...]] = [
        (
            one["unit"],
            one["start_utc"],
            one["end_utc"],
            int(one["counted_seconds"]),
            "; ".join(f"{code} {seconds} s" for code, seconds in one["reasons"].items()),
            ", ".join(one["subjects"]),
        )
        for one in found.incidents
    ]
    return csv_response(f"goodput-{found.month}-counted.csv", COUNTED_HEAD, rows)


def pack_response(body: bytes, label: str) -> HttpResponse:
    """A claim's pack."""
    return file_response(body, "application/zip", f"{label}.zip")
