"""What asks for a person's look, and who looked at it (under a session of whoever may write it), under /v1/."""

from __future__ import annotations

from typing import Any

from drf_spectacular.utils import extend_schema
from rest_framework import serializers as s
from rest_framework.exceptions import NotFound
from rest_framework.request import Request
from rest_framework.response import Response

from fleet import api_params as ask
from fleet import api_schemas as schema
from fleet.api import ListView
from fleet.api_incidents import WritingView, body_of
from fleet.api_nodes import NONE_SUCH
from fleet.domain.slots import SLOT_MS
from fleet.fleet_json import when
from fleet.models import ReviewLook
from fleet.selectors_live import to_ms
from fleet.selectors_reviews import ReviewFilter, ReviewLine, find_look, page_of_reviews, sees_nodes
from fleet.services_reviews import About, LookInvalid, look_at, look_over, take_back_look

PARAMS = ("since", "until", "code", "node_id", "cluster", "looked_at", "cursor", "page_size")
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
    look_id=s.IntegerField(allow_null=True, help_text="That somebody looked at it; null: nobody did."),
    looked_at=schema.at(),
    looked_by=schema.text(),
    look_note=schema.text(),
    **{"from": s.DateTimeField(), "to": s.DateTimeField()},
)
LOOK = schema.shape(
    "ReviewLook",
    id=s.IntegerField(),
    node_id=s.IntegerField(),
    node=s.CharField(),
    subject=s.CharField(),
    code=s.CharField(),
    uuid=schema.text(),
    looked_at=s.DateTimeField(),
    looked_by=s.CharField(),
    note=s.CharField(allow_blank=True),
    taken_back_at=schema.at(),
    taken_back_by=schema.text(),
    **{"from": s.DateTimeField(), "to": s.DateTimeField()},
)
NEW_LOOK = schema.shape(
    "NewReviewLook",
    node_id=s.IntegerField(),
    subject=s.CharField(max_length=300, help_text="As the review says it."),
    code=s.CharField(max_length=64),
    at=s.DateTimeField(help_text="Any instant within it, such as its `from`."),
    note=s.CharField(required=False, max_length=1000),
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
            schema.param("looked_at", "true: only what somebody looked at; false: only what nobody did.", bool),
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
            is_looked_at=ask.flag(params, "looked_at"),
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
        "look_id": one.look and one.look.pk,
        "looked_at": one.look and when(to_ms(one.look.at)),
        "looked_by": one.look and one.look.by,
        "look_note": one.look and one.look.note,
        "from": when(one.from_ms),
        "to": when(one.to_ms),
    }


class Looks(WritingView):
    """Marking."""

    @extend_schema(
        operation_id="look_at_review", request=NEW_LOOK, responses=schema.answers(LOOK, 400, 404, 415, 422, status=201)
    )
    def post(self, request: Request) -> Response:
        """Say that somebody looked at a review. The first mark stays, and again changes nothing. Audited."""
        ask.allow(request.query_params, ())
        actor, about, note = self.actor(request), *_about(body_of(request))
        if not sees_nodes({about.node_id}, self.cluster):
            raise NotFound(NONE_SUCH)
        try:
            look_at([about], note, actor)
        except LookInvalid as error:
            ask.refuse(error.field, error.detail)
        mark = look_over(about)
        if mark is None:
            raise NotFound("There is no such review.")
        return Response(_look(mark), status=201)


class TakeBack(WritingView):
    """Taking back."""

    @extend_schema(operation_id="take_back_look", request=None, responses=schema.answers(LOOK, 404, 422))
    def post(self, request: Request, look_id: int) -> Response:
        """Have the review ask again; the mark stays in the record. Again changes nothing. Audited."""
        ask.allow(request.query_params, ())
        actor = self.actor(request)
        if find_look(look_id, self.cluster) is None:
            raise NotFound(NONE_SUCH)
        take_back_look(look_id, actor)
        mark = find_look(look_id, self.cluster)
        assert mark is not None
        return Response(_look(mark))


def _about(body: dict[str, Any]) -> tuple[About, str]:
    """(what is looked at, the note). Raises → 422."""
    for name in body:
        if name not in NEW_LOOK().fields:
            ask.refuse(str(name)[:64], "There is no such field.")
    node_id = body.get("node_id")
    if not isinstance(node_id, int) or isinstance(node_id, bool) or not 0 <= node_id < 2**63:
        ask.refuse("node_id", "A node's number.")
    for name in ("subject", "code", "at"):
        if not isinstance(body.get(name), str) or not body[name] or "\x00" in body[name]:
            ask.refuse(name, "A text.")
    if not isinstance(body.get("note", ""), str):
        ask.refuse("note", "A text.")
    ms = ask.instant(body, "at")
    assert ms is not None
    return About(node_id, ms // SLOT_MS, body["code"], body["subject"]), body.get("note", "")


def _look(mark: ReviewLook) -> dict[str, Any]:
    return {
        "id": mark.pk,
        "node_id": mark.node_id,
        "node": mark.node.name,
        "subject": mark.subject,
        "code": mark.code,
        "uuid": mark.uuid or None,
        "looked_at": when(to_ms(mark.at)),
        "looked_by": mark.by,
        "note": mark.note,
        "taken_back_at": when(to_ms(mark.taken_back_at)) if mark.taken_back_at else None,
        "taken_back_by": mark.taken_back_by or None,
        "from": when(mark.first_slot * SLOT_MS),
        "to": when(mark.end_slot * SLOT_MS),
    }
