"""The fleet of the API: its totals as the Fleet page shows them, and its nodes by pages."""

from __future__ import annotations

from collections.abc import Mapping

from django.utils import timezone
from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from fleet import api_params as ask
from fleet import api_schemas as schema
from fleet import api_schemas_fleet as shapes
from fleet.api import PAGE_PARAMS, ListView, OrgView
from fleet.fleet_json import node_json, when
from fleet.reading import NodeRow, Period
from fleet.selectors import fleet_summary, list_fleet_nodes

PERIOD = schema.param("period", "24 h unless said.", enum=[period.key for period in Period])


def period_of(params: Mapping[str, str]) -> Period:
    """The period that is asked for. Raises Unprocessable → 422 for another word."""
    return Period.of(ask.choice(params, "period", [period.key for period in Period]) or None)


class Fleet(OrgView):
    """The fleet as the Fleet page shows it."""

    @extend_schema(operation_id="get_fleet", parameters=[PERIOD], responses=schema.answers(shapes.WholeFleet, 422))
    def get(self, request: Request) -> Response:
        """Availability with its bounds, GPUs per state, clusters; up to 500 nodes, these too; weights 0..100."""
        ask.allow(request.query_params, ("period",))
        period = period_of(request.query_params)
        return Response(fleet_summary(timezone.now(), period, within=self.key.cluster or None))


class FleetNodes(ListView):
    """The nodes of a fleet of any size, over a period."""

    columns = shapes.FLEET_COLUMNS

    @extend_schema(
        operation_id="list_fleet_nodes",
        parameters=[PERIOD, schema.param("cluster", "Only this cluster, by name."), *schema.PAGING],
        responses=schema.answers(schema.listing(shapes.FleetNode, period=shapes.Shown()), 422, csv=True),
    )
    def get(self, request: Request, format: str | None = None) -> Response:
        """Nodes by id, as `/v1/fleet` lists them: state and GPUs now, availability with its bounds over the period."""
        params = request.query_params
        ask.allow(params, ("period", "cluster", *PAGE_PARAMS))
        period, cluster, now = period_of(params), ask.text(params, "cluster"), timezone.now()
        after, size = self.paging(request, 1)
        window = period.window(now)
        rows: list[NodeRow] = []
        following = None
        if not (cluster and self.cluster and cluster != self.cluster):
            within = cluster or self.cluster or None
            rows, following = list_fleet_nodes(now, period, within, after[0] if after else 0, size)
        shown = {"from": when(window.first_slot * 15_000), "to": when(window.now_slot * 15_000), "name": period.key}
        next_cursor = None if following is None else ask.cursor_for(following)
        return self.page(request, [node_json(row) for row in rows], next_cursor, period=shown)
