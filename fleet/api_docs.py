"""`/v1/openapi.json`, and `/v1/docs`: Swagger UI from this server alone, under the strict content policy.

Both say nothing of any org, so they need no key.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from csp.decorators import csp_update
from django.http import HttpResponse
from django.utils.decorators import method_decorator
from drf_spectacular.generators import SchemaGenerator
from drf_spectacular.renderers import OpenApiJsonRenderer
from drf_spectacular.utils import extend_schema
from drf_spectacular.views import SpectacularJSONAPIView, SpectacularSwaggerSplitView

from fleet.api_formats import finish

# Its own icons are data: images in its style sheet. Its page has an inline style, ours has none.
PICTURES: dict[str, Any] = {"img-src": ["data:"]}


class Schema(SpectacularJSONAPIView):
    """The OpenAPI document. It is the same for everybody and costs a tenth of a second, so it is made once."""

    permission_classes: list[Any] = []
    authentication_classes: list[Any] = []

    @extend_schema(exclude=True)
    def get(self, request: Any, *args: Any, **kwargs: Any) -> Any:
        """Its bytes, in the media type that was asked for."""
        media_type = request.accepted_renderer.media_type
        return finish(HttpResponse(_document(), content_type=media_type), request)


@cache
def _document() -> bytes:
    document = SchemaGenerator().get_schema(request=None, public=True)  # type: ignore[no-untyped-call]
    rendered: bytes = OpenApiJsonRenderer().render(document)
    return rendered


@method_decorator(csp_update(PICTURES), name="dispatch")
class Docs(SpectacularSwaggerSplitView):
    """The API's documentation, made of the schema."""

    permission_classes: list[Any] = []
    authentication_classes: list[Any] = []
    template_name = "fleet/api_docs.html"
    url_name = "api-schema"
    title = "Goodput API"
