"""`/v1/docs`: Swagger UI from this server alone, under the strict content policy."""

from __future__ import annotations

from typing import Any

from csp.decorators import csp_update
from django.utils.decorators import method_decorator
from drf_spectacular.views import SpectacularSwaggerSplitView

# Its own icons are data: images in its style sheet. Its page has an inline style, ours has none.
PICTURES: dict[str, Any] = {"img-src": ["data:"]}


@method_decorator(csp_update(PICTURES), name="dispatch")
class Docs(SpectacularSwaggerSplitView):
    """The API's documentation, made of the schema; says nothing of any org, so it needs no key."""

    permission_classes: list[Any] = []
    authentication_classes: list[Any] = []
    template_name = "fleet/api_docs.html"
    url_name = "api-schema"
    title = "Goodput API"
