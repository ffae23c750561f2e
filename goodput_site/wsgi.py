"""The WSGI application: pages and API through Django's middleware, `POST /v1/batches` past it.

Middleware halves the rate of ingest and gives it nothing: a batch has no session, no form and no page. So it goes to a
second handler that has none, chosen by path.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable
from typing import Any

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "goodput_site.settings")

import django
from django.conf import settings
from django.core.handlers.wsgi import WSGIHandler

from goodput_site import counters
from goodput_site.exposure import Exposure, local_guard
from goodput_site.request_log import with_ids

INGEST_PATH = "/v1/batches"
QUIET = (INGEST_PATH, "/healthz", "/readyz", "/static/", "/metrics", "/provider/metrics")  # no line when all is well


class IngestHandler(WSGIHandler):
    """A WSGI handler without middleware and with one route."""

    def get_response(self, request: Any) -> Any:
        """Answer by the upload's own routes, and count what came of it."""
        request.urlconf = "fleet.ingest_urls"
        began = time.perf_counter()
        response = super().get_response(request)
        _count(response, time.perf_counter() - began)
        return response

    def load_middleware(self, is_async: bool = False) -> None:
        """Build the handler with an empty chain, whatever the settings say."""
        chain, settings.MIDDLEWARE = settings.MIDDLEWARE, []
        try:
            super().load_middleware(is_async)
        finally:
            settings.MIDDLEWARE = chain


def _count(response: Any, seconds: float) -> None:
    data = getattr(response, "data", None)
    data = data if isinstance(data, dict) else {}
    if response.status_code == 202:
        counters.count("goodput_ingest_batches_total", "duplicate" if data.get("duplicate") else "stored")
    else:
        counters.count("goodput_ingest_refusals_total", str(data.get("code") or response.status_code))
    counters.count("goodput_ingest_seconds_total", "", seconds)


def build() -> Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]:
    """The application for this process, behind the local guard when the server is in local mode."""
    django.setup(set_prefix=False)
    pages, ingest = WSGIHandler(), IngestHandler()

    def dispatch(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        # GET lists batches' evidence like any other page of the API; only the upload takes the short way.
        if environ.get("PATH_INFO") == INGEST_PATH and environ.get("REQUEST_METHOD") == "POST":
            return ingest(environ, start_response)
        return pages(environ, start_response)

    guarded = local_guard(dispatch, settings.ALLOWED_HOSTS) if settings.GOODPUT_EXPOSE is Exposure.LOCAL else dispatch
    return with_ids(guarded, QUIET)


application = build()
