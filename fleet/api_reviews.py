"""What asks for a person's look, under /v1/."""

from __future__ import annotations

from typing import Any

from drf_spectacular.utils import extend_schema
from rest_framework import serializers as s
from rest_framework.request import Request
from rest_framework.response import Response

from fleet import api_params as ask
from fleet import api_schemas as schema
from fleet.api import ListView
from fleet.fleet_json import when
from fleet.selectors_reviews import ReviewFilter, ReviewLine, page_of_reviews

PARAMS = ("since", "until", "code", "node_id", "cluster", "cursor", "page_size")
LINE = schema.shape(
    "Review",
    node_id=s.IntegerField(),
    node=s.CharField(),
    cluster=s.CharField(),
    subject=s.CharField(help_text="g<place>, p:<port> or n for the node."),
    gpu_index=s.IntegerField(allow_null=True, min_value=0),
    uuid=schema.text(help_text="Of the GPU that sat there as the hour ended."),
    code=s.CharField(),
    title=s.CharField(),
    explanation=s.CharField(allow_blank=True),
    **{"from": s.DateTimeField(), "to": s.DateTimeField()},
)


class Reviews(ListView):
    """Reviews."""

    columns = tuple(LINE().fields)

    @extend_schema(
        operation_id="list_reviews",
        parameters=[
            schema.param("since", "Only what lasted beyond this instant, RFC 3339 with an offset."),
            schema.param("until", "Only what began before this instant."),
            schema.param("code", "Only this reason."),
            schema.param("node_id", "Only this node.", int),
            schema.param("cluster", "Only this cluster, by name."),
            *schema.PAGING,
        ],
        responses=schema.answers(schema.listing(LINE), 422, csv=True),
    )
    def get(self, request: Request, format: str | None = None) -> Response:
        """What asks for a look, the newest beginning first, each within its hour."""
        params = request.query_params
        ask.allow(params, PARAMS)
        since, until = ask.slots(params)
        wanted = ReviewFilter(
            scope=self.cluster,
            cluster=ask.text(params, "cluster"),
            node_id=ask.number(params, "node_id"),
            code=ask.text(params, "code"),
            since_slot=since,
            until_slot=until,
        )
        after, size = self.paging(request, 2)
        found, following = page_of_reviews(wanted, after, size)
        return self.page(request, list(map(_line, found)), None if following is None else ask.cursor_for(*following))


def _line(one: ReviewLine) -> dict[str, Any]:
    return {
        "node_id": one.node_id,
        "node": one.node,
        "cluster": one.cluster,
        "subject": one.subject,
        "gpu_index": one.place,
        "uuid": one.uuid or None,
        "code": one.code,
        "title": one.title,
        "explanation": one.explanation,
        "from": when(one.from_ms),
        "to": when(one.to_ms),
    }
