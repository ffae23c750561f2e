"""The forms of an answer: JSON or CSV, with an ETag; CSV cells that a spreadsheet would run are made inert."""

from __future__ import annotations

import csv
import hashlib
import io
import json
from collections.abc import Mapping
from typing import Any

from django.http import HttpRequest
from django.utils.cache import get_conditional_response, patch_vary_headers
from rest_framework.renderers import BaseRenderer, JSONRenderer
from rest_framework.response import Response

from orgs.sheets import cell


class PlainRenderer(BaseRenderer):
    """A renderer of something else than JSON, under which errors stay problem documents."""

    def render(self, data: Any, accepted_media_type: str | None = None, renderer_context: Any = None) -> bytes:
        """The bytes of `data`; JSON for an error."""
        if renderer_context["response"].exception:
            return json.dumps(data).encode()
        return self.body(data, renderer_context["view"])

    def body(self, data: Any, view: Any) -> bytes:
        """The bytes of what is no error."""
        raise NotImplementedError


class CsvRenderer(PlainRenderer):
    """`results` with the view's `columns`, one line each; a cell of several values holds them with blanks between."""

    media_type = "text/csv"
    format = "csv"
    charset = "utf-8"

    def body(self, data: Any, view: Any) -> bytes:
        """RFC 4180, lines end with CR LF."""
        out = io.StringIO()
        writer = csv.writer(out, lineterminator="\r\n")
        writer.writerow(view.columns)
        for row in data["results"]:
            cells = flat(row)
            writer.writerow([cell(_printable(cells.get(name))) for name in view.columns])
        return out.getvalue().encode()


def flat(row: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """A result as one line: inner maps become `outer_inner` and JSON, lists their codes with blanks."""
    cells: dict[str, Any] = {}
    for name, value in row.items():
        if isinstance(value, Mapping):
            cells.update(flat(value, f"{prefix}{name}_"))
            cells[prefix + name] = json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=str)
        elif isinstance(value, (list, tuple)):
            cells[prefix + name] = " ".join(_word(each) for each in value)
        elif isinstance(value, bool):
            cells[prefix + name] = "true" if value else "false"
        else:
            cells[prefix + name] = value
    return cells


def _word(each: Any) -> str:
    """One of several values: a map by its code or key, where it has one."""
    return str(each.get("code", each.get("key", "")) if isinstance(each, Mapping) else each)


def _printable(value: Any) -> Any:
    """Text without NUL and line ends, which tear lines apart in many readers."""
    return value.replace("\x00", "").replace("\r", " ").replace("\n", " ") if isinstance(value, str) else value


def finish(response: Any, request: HttpRequest) -> Any:
    """The answer: caches of others keep nothing, a 200 has its ETag, a matching If-None-Match makes it a 304."""
    patch_vary_headers(response, ("Accept", "Authorization", "Cookie"))
    if not response.has_header("Cache-Control"):
        response["Cache-Control"] = "private, no-cache"
    if request.method in ("GET", "HEAD") and response.status_code == 200:
        if isinstance(response, Response):
            response.add_post_render_callback(lambda done: conditional(done, request))
        else:
            return conditional(response, request)
    return response


def conditional(response: Any, request: HttpRequest) -> Any:
    """The answer with the hash of its bytes as ETag, or 304."""
    if not response.has_header("ETag"):
        response["ETag"] = f'"{hashlib.sha256(response.content).hexdigest()[:32]}"'
    answer: Any = get_conditional_response(request, etag=response["ETag"], response=response)
    if answer is not response:
        for name in ("Vary", "RateLimit-Limit", "RateLimit-Remaining", "RateLimit-Reset"):
            if response.has_header(name):
                answer[name] = response[name]
    return answer


JSON_OR_CSV: list[type[BaseRenderer]] = [JSONRenderer, CsvRenderer]
