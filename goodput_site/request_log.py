"""Which request a log line belongs to: an id per request, in every line that it causes and in the answer's header.

Lines are text, or JSON objects with `GOODPUT_LOG_FORMAT=json`. No line holds a query string, a body or a header.
"""

from __future__ import annotations

import json
import logging
import os
import re
import time
from collections.abc import Callable, Iterable
from contextvars import ContextVar
from typing import Any

HEADER = "X-Request-Id"
_GIVEN = re.compile(r"[A-Za-z0-9._-]{8,64}")
_current: ContextVar[str] = ContextVar("goodput_request_id", default="-")
log = logging.getLogger("goodput.request")

Wsgi = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]


def with_ids(application: Wsgi, quiet: tuple[str, ...]) -> Wsgi:
    """The application with an id for every request; one line per request but for those to `quiet` paths that went well.

    An id that the caller gives is taken when it is 8 to 64 plain characters, so that a proxy's log and ours meet.
    """

    def identified(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        given = environ.get("HTTP_X_REQUEST_ID", "")
        request_id = given if _GIVEN.fullmatch(given) else os.urandom(8).hex()
        _current.set(request_id)
        began = time.perf_counter()

        def start(status: str, headers: list[tuple[str, str]], *rest: Any) -> Any:
            headers.append((HEADER, request_id))
            path = environ.get("PATH_INFO", "")
            if status[0] not in "23" or not path.startswith(quiet):
                ms = (time.perf_counter() - began) * 1000
                log.info("%s %s %s %.0f ms", environ.get("REQUEST_METHOD"), _one_line(path), status[:3], ms)
            return start_response(status, headers, *rest)

        return application(environ, start)

    return identified


def _one_line(path: str) -> str:
    return "".join(letter if letter.isprintable() else "?" for letter in path[:200])


class AddRequestId(logging.Filter):
    """Gives each record the id of the request that caused it; `-` outside of one."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Always True."""
        record.request_id = _current.get()
        return True


class JsonLines(logging.Formatter):
    """One JSON object a line: at, level, logger, request, message, and the traceback where there is one."""

    def format(self, record: logging.LogRecord) -> str:
        """The line."""
        line = {
            "at": time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created)) + f".{int(record.msecs):03d}Z",
            "level": record.levelname,
            "logger": record.name,
            "request": getattr(record, "request_id", "-"),
            "message": record.getMessage(),
        }
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False)
