"""`/metrics` for Prometheus: a key with the scope `read` as bearer token."""

from __future__ import annotations

from typing import Any

from django.http import HttpResponse
from django.utils import timezone
from drf_spectacular.utils import extend_schema
from rest_framework.request import Request

from fleet import api_params as ask
from fleet.api import OrgView
from fleet.api_formats import PlainRenderer
from fleet.metrics_text import CONTENT_TYPE, as_text
from fleet.selectors_api import Wanted
from fleet.selectors_api_metrics import read_metrics


class TextRenderer(PlainRenderer):
    """Lets a scraper ask for text; the page itself never passes through it, errors do."""

    media_type = "text/plain"
    format = "txt"

    def body(self, data: Any, view: Any) -> bytes:
        """Nothing but errors comes here."""
        return str(data).encode()


class Metrics(OrgView):
    """The fleet in Prometheus' text format."""

    renderer_classes = [TextRenderer]

    @extend_schema(exclude=True)
    def get(self, request: Request) -> HttpResponse:
        """All nodes that the key may see, or those of one cluster."""
        params = request.query_params
        ask.allow(params, ("cluster", "node"))
        wanted = Wanted(self.cluster, ask.text(params, "cluster"), ask.text(params, "node"))
        return HttpResponse(as_text(*read_metrics(timezone.now(), wanted)), content_type=CONTENT_TYPE)
