"""The application with a header that kills the process at a moment of an upload. For tests of crashes only."""

from __future__ import annotations

import os
import signal
from typing import Any

# First, because it sets Django up.
from goodput_site.wsgi import application as whole

from fleet import ingest  # isort: skip

_moment = [""]
_insert = ingest._insert


def _die_at(moment: str) -> None:
    if _moment[0] == moment:
        os.kill(os.getpid(), signal.SIGKILL)


def _insert_or_die(schema: str, values: dict[str, Any]) -> Any:
    _die_at("before-commit")
    row = _insert(schema, values)
    _die_at("after-commit")
    return row


ingest._insert = _insert_or_die


def application(environ: dict[str, Any], start_response: Any) -> Any:
    """The application, noting the moment at which it is to die."""
    _moment[0] = environ.get("HTTP_X_DIE", "")
    return whole(environ, start_response)
