"""Dated rows in the API: read by keys and sessions, written under a session of an owner or admin.

Six kinds under /v1/settings/, all alike: GET lists them, the newest first; POST enters one; `/{id}/withdraw` takes one
back; `/{id}/end` ends one that has no end. Each change stands in the audit trail.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from django.db.models import QuerySet
from django.utils import timezone
from drf_spectacular.utils import extend_schema
from rest_framework.exceptions import NotFound
from rest_framework.request import Request
from rest_framework.response import Response

from fleet import api_dated_shapes as shapes
from fleet import api_params as ask
from fleet import api_schemas as schema
from fleet import services_dated, services_rules, services_windows
from fleet.api import ListView, OrgView
from fleet.api_dated_json import amendment
from fleet.api_nodes import NONE_SUCH
from fleet.models import (
    Amendment,
    Cluster,
    DeviceAssignment,
    ExpectedHardware,
    MaintenanceWindow,
    Node,
    ProbeTarget,
    RuleAdoption,
)
from fleet.services_dated import DatedInvalid
from fleet.services_incidents import Actor
from orgs.access import get_access
from orgs.addresses import client_address
from orgs.authentication import Refused
from orgs.errors import KeyRefused
from orgs.models import Membership, Org

WRITERS = (Membership.Role.OWNER, Membership.Role.ADMIN)


class Body:
    """A JSON object read strictly: an unknown key, a wrong type or a missing value is a 422 that names it."""

    def __init__(self, data: Any, known: Any) -> None:
        if not isinstance(data, dict):
            ask.refuse("body", "A JSON object.")
        names = set(known().fields)
        for name in data:
            if name not in names:
                ask.refuse(str(name)[:64], f"There is no such field here. Known: {', '.join(sorted(names))}.")
        self.data: dict[str, Any] = data

    def get(self, name: str, kind: type | tuple[type, ...], default: Any = None) -> Any:
        """A value of this kind; the default where it is absent or null."""
        value = self.data.get(name)
        if value is None:
            return default
        if not isinstance(value, kind) or (isinstance(value, bool) and bool not in _kinds(kind)):
            ask.refuse(name, "Of another type than that.")
        if isinstance(value, int) and abs(value) > ask.MAX_ID:
            ask.refuse(name, "Too great a number.")
        return value

    def text(self, name: str, default: str = "") -> str:
        """A text."""
        found: str = self.get(name, str, default)
        return found

    def at(self, name: str, *, is_needed: bool = True) -> Any:
        """An instant."""
        ms = ask.instant({name: self.get(name, str, "")}, name) if self.data.get(name) is not None else None
        if ms is None:
            return ask.refuse(name, "An instant, in RFC 3339 with its offset.") if is_needed else None
        return datetime.fromtimestamp(ms / 1000, UTC)


def _kinds(kind: type | tuple[type, ...]) -> tuple[type, ...]:
    return kind if isinstance(kind, tuple) else (kind,)


def _node(body: Body, scope: str) -> Node:
    """The node that `node_id` names. Raises Unprocessable."""
    rows = Node.objects.filter(pk=body.get("node_id", int, -1), merged_into=None, cluster__removed_at=None)
    found = (rows.filter(cluster__name=scope) if scope else rows).first()
    return found if found is not None else ask.refuse("node_id", "There is no such node.")


def _new_hardware(body: Body, actor: Actor, scope: str) -> ExpectedHardware:
    devices, ports = body.get("devices", list, []), body.get("ports", list)
    if any(not isinstance(one, str) for one in devices):
        ask.refuse("devices", "UUIDs or bus ids.")
    if any(not isinstance(one, dict) or set(one) - {"key", "gpu", "rate_gbps"} for one in ports or ()):
        ask.refuse("ports", "Each a map of key, gpu and rate_gbps.")
    return services_dated.expect_hardware(
        _node(body, scope),
        actor,
        gpus=body.get("gpus", int),
        devices=devices,
        ports=ports,
        owns_driver=body.get("owns_driver", bool, False),
        owns_fabric=body.get("owns_fabric", bool, False),
        from_at=body.at("from"),
        until_at=body.at("until", is_needed=False),
        reason=body.text("reason"),
    )


def _new_assignment(body: Body, actor: Actor, scope: str) -> DeviceAssignment:
    given = {"place": body.get("gpu", int, -1), "device": body.text("device"), "at": body.at("at")}
    return services_dated.assign_device(_node(body, scope), actor, **given, reason=body.text("reason"))


def _new_probe(body: Body, actor: Actor, scope: str) -> ProbeTarget:
    given = {"kind": body.text("kind"), "address": body.text("address"), "port": body.get("port", int)}
    return services_dated.add_probe(_node(body, scope), actor, **given, reason=body.text("reason"))


def _new_window(body: Body, actor: Actor, scope: str) -> MaintenanceWindow:
    name = body.text("cluster")
    cluster = Cluster.objects.filter(name=name, removed_at=None).first()
    if cluster is None or (scope and name != scope):
        ask.refuse("cluster", "There is no such cluster.")
    return services_windows.add_window(
        actor,
        cluster=cluster,
        node=None if body.data.get("node_id") is None else _node(body, scope),
        place=body.get("gpu", int),
        starts_at=body.at("starts"),
        ends_at=body.at("ends"),
        source=body.text("source", MaintenanceWindow.Source.PROVIDER),
        noticed_at=body.at("noticed", is_needed=False),
        reference=body.text("reference"),
        reason=body.text("reason"),
    )


def _new_amendment(body: Body, actor: Actor, scope: str) -> Amendment:
    return services_rules.amend_rule(
        actor,
        code=body.text("code"),
        changes=body.get("changes", dict, {}),
        reason=body.text("reason"),
        from_at=body.at("from"),
        until_at=body.at("until", is_needed=False),
    )


def _new_adoption(body: Body, actor: Actor, scope: str) -> RuleAdoption:
    given = {"version": body.text("version"), "reason": body.text("reason"), "from_at": body.at("from")}
    return services_rules.adopt_rules(actor, **given)


@dataclass(frozen=True)
class Kind:
    """One kind of dated row: how it is read, shown, entered, ended and withdrawn. `scope` names its cluster's field."""

    path: str
    title: str
    table: Any
    shown: Any
    new: Any
    as_json: Callable[[Any], dict[str, Any]]
    enter: Callable[[Body, Actor, str], Any]
    withdraw: Callable[[Any, Actor], bool] | None
    end: Callable[[Any, Actor], bool] | None = None
    scope: str = ""
    related: tuple[str, ...] = ()

    def rows(self, scope: str) -> QuerySet[Any]:
        """Those that the key may see."""
        rows: QuerySet[Any] = self.table.objects.select_related(*self.related) if self.related else self.table.objects
        return rows.filter(**{self.scope: scope}) if scope and self.scope else rows.all()


OF_NODE: dict[str, Any] = {"scope": "node__cluster__name", "related": ("node__cluster",)}
KINDS = (
    Kind(
        "hardware",
        "expected hardware",
        ExpectedHardware,
        shapes.Hardware,
        shapes.NewHardware,
        shapes.hardware,
        _new_hardware,
        services_dated.withdraw,
        lambda row, actor: services_dated.end_expected(row, timezone.now(), actor),
        **OF_NODE,
    ),
    Kind(
        "assignments",
        "device assignments",
        DeviceAssignment,
        shapes.Assignment,
        shapes.NewAssignment,
        shapes.assignment,
        _new_assignment,
        services_dated.withdraw,
        **OF_NODE,
    ),
    Kind(
        "probes",
        "probes",
        ProbeTarget,
        shapes.Probe,
        shapes.NewProbe,
        shapes.probe,
        _new_probe,
        None,
        services_dated.end_probe,
        **OF_NODE,
    ),
    Kind(
        "windows",
        "maintenance windows",
        MaintenanceWindow,
        shapes.Window,
        shapes.NewWindow,
        shapes.window,
        _new_window,
        services_windows.withdraw_window,
        scope="cluster__name",
        related=("cluster", "node"),
    ),
    Kind(
        "amendments",
        "amendments of rules",
        Amendment,
        schema.Amendment,
        shapes.NewAmendment,
        amendment,
        _new_amendment,
        services_rules.withdraw_amendment,
        lambda row, actor: services_rules.end_amendment(row, timezone.now(), actor),
    ),
    Kind(
        "adoptions",
        "adoptions of rule sets",
        RuleAdoption,
        shapes.Adoption,
        shapes.NewAdoption,
        shapes.adoption,
        _new_adoption,
        services_rules.withdraw_adoption,
    ),
)


class DatedView(OrgView):
    """A view of one kind of dated rows."""

    kind: Kind

    def actor(self, request: Request) -> Actor:
        """Who writes. Raises Refused → 403 for a key, and for a role that may not change settings."""
        if self.key.prefix != "session" or self.key.id:
            raise Refused(KeyRefused("Keys only read here: sign in as owner or admin.", "session_needed", 403))
        access = get_access(request.user, self.key.org_slug)
        if access.role not in WRITERS:
            raise Refused(KeyRefused("Only owner and admin write here.", "role_needed", 403))
        return Actor(request.user.get_username(), Org.objects.get(pk=self.key.org_id), client_address(request.META))

    def row(self, pk: int) -> Any:
        """A row that the key may see. Raises NotFound → 404."""
        found = self.kind.rows(self.cluster).filter(pk=pk).first() if pk < 2**63 else None
        if found is None:
            raise NotFound(NONE_SUCH)
        return found

    def done(self, pk: int, act: Callable[[Any, Actor], bool], actor: Actor) -> Response:
        """The row after `act`, which may find that it was done before."""
        row = self.row(pk)
        try:
            act(row, actor)
        except DatedInvalid as error:
            ask.refuse(error.field, error.detail)
        return Response(self.kind.as_json(self.row(pk)))


#: Names of the services' arguments as the API calls them.
FIELDS = {"from_at": "from", "until_at": "until", "starts_at": "starts", "ends_at": "ends", "noticed_at": "noticed"}


#: What stands first in a line of CSV.
ORDER = ("id", "cluster", "node_id", "node", "code", "version")


def list_view(one: Kind) -> type[ListView]:
    """GET lists a kind's rows, POST enters one."""
    has_node = bool(one.scope)
    names = ("node_id",) if has_node else ()

    class Rows(DatedView, ListView):
        kind = one
        columns = tuple(sorted(one.shown().fields, key=lambda name: ORDER.index(name) if name in ORDER else len(ORDER)))

        @extend_schema(
            operation_id=f"list_{one.path}",
            summary=f"The {one.title}, newest first, withdrawn ones too",
            parameters=[*([schema.param("node_id", "Only this node's.", int)] if has_node else []), *schema.PAGING],
            responses=schema.answers(schema.listing(one.shown), 422, csv=True),
        )
        def get(self, request: Request, format: str | None = None) -> Response:
            ask.allow(request.query_params, (*names, "cursor", "page_size"))
            node_id = ask.number(request.query_params, "node_id") if has_node else None
            after, size = self.paging(request, 1)
            rows = one.rows(self.cluster).order_by("-pk")
            if node_id is not None:
                rows = rows.filter(node_id=node_id)
            if after is not None:
                rows = rows.filter(pk__lt=after[0])
            found = list(rows[: size + 1])
            following = ask.cursor_for(found[size - 1].pk) if len(found) > size else None
            return self.page(request, [one.as_json(row) for row in found[:size]], following)

        @extend_schema(
            operation_id=f"enter_{one.path}",
            summary=f"Enter one of the {one.title}. Audited",
            request=one.new,
            responses=schema.answers(one.shown, 400, 415, 422, status=201),
        )
        def post(self, request: Request, format: str | None = None) -> Response:
            ask.allow(request.query_params, ())
            actor = self.actor(request)
            try:
                made = one.enter(Body(request.data, one.new), actor, self.cluster)
            except DatedInvalid as error:
                name = FIELDS.get(error.field, "gpu" if error.field == "place" else error.field)
                ask.refuse(name, error.detail)
            return Response(one.as_json(self.row(made.pk)), status=201)

    Rows.__name__ = Rows.__qualname__ = f"{one.path.title()}View"
    return Rows


def act_view(one: Kind, verb: str, act: Callable[[Any, Actor], bool]) -> type[OrgView]:
    """POST ends or withdraws a row."""

    class Act(DatedView):
        kind = one

        @extend_schema(
            operation_id=f"{verb}_{one.path}",
            summary=f"{verb.title()} one of the {one.title}; again changes nothing. Audited",
            request=None,
            responses=schema.answers(one.shown, 404, 422),
        )
        def post(self, request: Request, row_id: int) -> Response:
            ask.allow(request.query_params, ())
            actor = self.actor(request)
            return self.done(row_id, act, actor)

    Act.__name__ = Act.__qualname__ = f"{verb.title()}{one.path.title()}"
    return Act
