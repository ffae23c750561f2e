"""Incidents of the API: lists, one in full, and their human layer (under a session of whoever may write it)."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from django.utils import timezone
from drf_spectacular.utils import extend_schema
from rest_framework.exceptions import NotFound
from rest_framework.request import Request
from rest_framework.response import Response

from fleet import api_params as ask
from fleet import api_schemas as schema
from fleet import api_shapes as shapes
from fleet import services_incidents as services
from fleet.api import ListView, OrgView
from fleet.api_nodes import NONE_SUCH
from fleet.domain.rules import load_rules
from fleet.domain.rules.model import PARTIES
from fleet.models import Incident
from fleet.selectors_api import get_node
from fleet.selectors_api_incidents import IncidentFilter, bad_runs, get_incident, list_incidents
from orgs.access import get_access
from orgs.addresses import client_address
from orgs.authentication import Refused
from orgs.errors import KeyRefused
from orgs.models import Membership, Org

WRITERS = (Membership.Role.OWNER, Membership.Role.ADMIN, Membership.Role.FINANCE)
PARAMS = ("open", "since", "until", "party", "code", "node", "node_id", "cluster", "withdrawn", "cursor", "page_size")
LIST_DOC = [
    schema.param("open", "true or false", bool),
    schema.param("since", "Only what lasted beyond this instant, RFC 3339 with an offset."),
    schema.param("until", "Only what began before this instant."),
    schema.param("party", "Whose fault.", enum=PARTIES),
    schema.param("code", "Only those in which this reason stands."),
    schema.param("node", "Only the node with this name."),
    schema.param("node_id", "Only this node.", int),
    schema.param("cluster", "Only this cluster, by name."),
    schema.param("withdrawn", "true: also those that a re-fold withdrew.", bool),
    *schema.PAGING,
]


class Incidents(ListView):
    """Incidents."""

    columns = tuple(schema.IncidentLine().fields)

    @extend_schema(
        operation_id="list_incidents",
        parameters=LIST_DOC,
        responses=schema.answers(schema.listing(schema.IncidentLine), 422, csv=True),
    )
    def get(self, request: Request, format: str | None = None) -> Response:
        """Incidents, the newest beginning first."""
        params = request.query_params
        ask.allow(params, PARAMS)
        since, until = ask.slots(params)
        wanted = IncidentFilter(
            scope=self.cluster,
            is_open=ask.flag(params, "open"),
            since_slot=since,
            until_slot=until,
            party=ask.choice(params, "party", PARTIES),
            code=ask.text(params, "code"),
            node=ask.text(params, "node"),
            node_id=ask.number(params, "node_id"),
            cluster=ask.text(params, "cluster"),
            with_withdrawn=bool(ask.flag(params, "withdrawn")),
        )
        after, size = self.paging(request, 2)
        found, following = list_incidents(wanted, after, size)
        return self.page(
            request, [shapes.incident(one) for one in found], None if following is None else ask.cursor_for(*following)
        )


class WritingView(OrgView):
    """What people write about what was found: under a session of whoever may write it."""

    def actor(self, request: Request) -> services.Actor:
        """Who writes. Raises Refused → 403 for a key, and for a role that only reads."""
        if self.key.prefix != "session" or self.key.id:
            raise Refused(KeyRefused("Keys only read here: sign in as owner, admin or finance.", "session_needed", 403))
        if get_access(request.user, self.key.org_slug).role not in WRITERS:
            raise Refused(KeyRefused("Only owner, admin and finance write here.", "role_needed", 403))
        org = Org.objects.get(pk=self.key.org_id)
        return services.Actor(request.user.get_username(), org, client_address(request.META))


class IncidentView(WritingView):
    """One incident that the key may see."""

    def incident(self, pk: int) -> Incident:
        """It. Raises NotFound → 404."""
        found = get_incident(pk, self.cluster)
        if found is None:
            raise NotFound(NONE_SUCH)
        return found

    def handle_exception(self, exc: Exception) -> Response:
        """A re-fold that removes an incident while somebody writes to it is a 404."""
        return super().handle_exception(NotFound(NONE_SUCH) if isinstance(exc, Incident.DoesNotExist) else exc)

    def answer(self, pk: int, status: int = 200) -> Response:
        """It in full."""
        one, rules = self.incident(pk), load_rules()
        slots_from, runs = bad_runs(one, rules)
        line = get_node(timezone.now(), one.node_id, self.cluster)
        return Response(shapes.incident_in_full(one, slots_from, runs, line, rules), status=status)


class OneIncident(IncidentView):
    """One incident."""

    @extend_schema(operation_id="get_incident", responses=schema.answers(schema.IncidentInFull, 404))
    def get(self, request: Request, incident_id: int) -> Response:
        """An incident with its parts, their exact slots, its reasons in words and its notes."""
        ask.allow(request.query_params, ())
        return self.answer(incident_id)

    @extend_schema(
        operation_id="set_ticket",
        request=schema.Ticket,
        responses=schema.answers(schema.IncidentInFull, 400, 404, 415, 422),
    )
    def patch(self, request: Request, incident_id: int) -> Response:
        """Set ticket number, its times, and whether it is excluded or disputed. Audited; never touches a fact."""
        ask.allow(request.query_params, ())
        self.incident(incident_id)
        actor = self.actor(request)
        try:
            services.set_ticket(incident_id, _changes(body_of(request)), actor)
        except services.IncidentInvalid as error:
            ask.refuse(error.field, error.detail)
        return self.answer(incident_id)


class Acknowledge(IncidentView):
    """Acknowledging."""

    @extend_schema(
        operation_id="acknowledge_incident",
        request=None,
        responses=schema.answers(schema.IncidentInFull, 404, 422),
    )
    def post(self, request: Request, incident_id: int) -> Response:
        """Say that somebody looks after it. The first one stays; again changes nothing. Audited."""
        ask.allow(request.query_params, ())
        self.incident(incident_id)
        services.acknowledge_incident(incident_id, self.actor(request))
        return self.answer(incident_id)


class Notes(IncidentView):
    """Notes."""

    @extend_schema(
        operation_id="add_note",
        request=schema.NewNote,
        responses=schema.answers(schema.Note, 400, 404, 415, 422, status=201),
    )
    def post(self, request: Request, incident_id: int) -> Response:
        """Append a note. Audited; notes are never changed or removed."""
        ask.allow(request.query_params, ())
        self.incident(incident_id)
        actor = self.actor(request)
        body = body_of(request)
        for name in body:
            if name != "text":
                ask.refuse(str(name)[:64], "There is only `text`.")
        if not isinstance(body.get("text"), str):
            ask.refuse("text", "A text.")
        try:
            note = services.add_note(incident_id, body["text"], actor)
        except services.IncidentInvalid as error:
            ask.refuse(error.field, error.detail)
        return Response(shapes.note(note), status=201)


def body_of(request: Request) -> dict[str, Any]:
    """The JSON object that was sent. Raises → 422."""
    body = request.data
    if not isinstance(body, dict):
        ask.refuse("body", "A JSON object.")
    return body


def _changes(body: dict[str, Any]) -> dict[str, Any]:
    """The body with its instants parsed; what is wrong with the rest the service says."""
    changes: dict[str, Any] = {}
    for name, value in body.items():
        if name in ("reported_at", "provider_ack_at") and isinstance(value, str):
            ms = ask.instant({name: value}, name)
            changes[name] = None if ms is None else datetime.fromtimestamp(ms / 1000, UTC)
        else:
            changes[name] = value
    return changes
