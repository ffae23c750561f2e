"""NVLink domains under /v1/."""

from __future__ import annotations

from typing import Any

from django.utils import timezone
from drf_spectacular.utils import extend_schema
from rest_framework import serializers as s
from rest_framework.request import Request
from rest_framework.response import Response

from fleet import api_params as ask
from fleet import api_schemas as schema
from fleet.api import ListView
from fleet.fleet_json import figures
from fleet.reading import Period
from fleet.selectors_domains import Domain, list_domains
from fleet.selectors_live import WORDS

PERIODS = tuple(period.key for period in Period)
LINE = schema.shape(
    "Domain",
    domain=s.CharField(help_text="d:<hashed NVLink cluster>/<clique>, as NVML's fabric information names it."),
    cluster=s.CharField(),
    nodes=schema.whole(),
    nodes_not_available=s.ListField(child=s.CharField(), help_text="Nodes with a GPU that is not available."),
    gpus=schema.whole(),
    **{word: schema.whole(help_text=f"GPUs that are {word} now.") for word in WORDS},
    availability_percent=schema.text(),
    availability_lower_loss_percent=schema.text(),
    availability_higher_loss_percent=schema.text(),
    coverage_percent=schema.text(),
)


class Domains(ListView):
    """Domains."""

    columns = tuple(LINE().fields)

    @extend_schema(
        operation_id="list_domains",
        parameters=[schema.param("period", "Up to now.", enum=PERIODS, default=Period.DAY.key)],
        responses=schema.answers(schema.listing(LINE), 422, csv=True),
    )
    def get(self, request: Request, format: str | None = None) -> Response:
        """NVLink domains, worst first: each domain's GPUs over all its nodes, added up."""
        params = request.query_params
        ask.allow(params, ("period",))
        period = Period.of(ask.choice(params, "period", PERIODS, Period.DAY.key))
        return self.page(request, [_line(one) for one in list_domains(timezone.now(), period, self.cluster)])


def _line(one: Domain) -> dict[str, Any]:
    sums = figures(one.sums)
    del sums["sums"]
    return {
        "domain": one.key,
        "cluster": one.cluster,
        "nodes": len(one.nodes),
        "nodes_not_available": [row.name for row in one.away],
        "gpus": one.gpus,
        **one.counts,
        **sums,
    }
