"""The WSGI application: pages and API through Django, `POST /v1/batches` past it.

Django's handler, its middleware and DRF cost an upload CPU and give it nothing: a batch has no session, no form and no
page. So it goes to an application of its own, chosen by path (fleet/api_ingest.py).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from typing import Any

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "goodput_site.settings")

import django
from django.conf import settings
from django.core.handlers.wsgi import WSGIHandler

from goodput_site.exposure import Exposure, local_guard
from goodput_site.request_log import with_ids

INGEST_PATH = "/v1/batches"
QUIET = (INGEST_PATH, "/healthz", "/readyz", "/static/", "/metrics", "/provider/metrics")  # no line when all is well


def build() -> Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]:
    """The application for this process, behind the local guard when the server is in local mode."""
    django.setup(set_prefix=False)
    from fleet.api_ingest import Upload

    pages, upload = WSGIHandler(), Upload()

    def dispatch(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        # GET lists batches' evidence like any other page of the API; only the upload takes the short way.
        if environ.get("PATH_INFO") == INGEST_PATH and environ.get("REQUEST_METHOD") == "POST":
            return upload(environ, start_response)
        return pages(environ, start_response)

    guarded = local_guard(dispatch, settings.ALLOWED_HOSTS) if settings.GOODPUT_EXPOSE is Exposure.LOCAL else dispatch
    return with_ids(guarded, QUIET)


application = build()
