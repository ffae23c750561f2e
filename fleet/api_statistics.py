"""Fleet statistics under /v1/."""

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
from fleet.api_evidence import AVAILABILITY_LIMIT_HOURS
from fleet.selectors_api import Wanted
from fleet.selectors_live import to_ms
from fleet.selectors_statistics import BY, COLUMNS, get_statistics
from fleet.views_statistics import totals

DEFAULT_HOURS = 30 * 24


def _figures() -> dict[str, Any]:
    """What a line and the whole have alike."""
    return {
        "known_gpu_seconds": schema.whole(help_text="Time of which something is known; 0 for a reason."),
        "faults": schema.whole(help_text="Incidents that begin in the range; one of several nodes counts once."),
        "interruptions": schema.whole(help_text="GPUs that they took down."),
        "degradations": schema.whole(help_text="GPUs that they lowered."),
        "gpu_seconds_between_interruptions": schema.whole(allow_null=True),
        "repaired": schema.whole(help_text="Incidents that ended; the times to repair are theirs."),
        "mean_repair_s": schema.whole(allow_null=True),
        "median_repair_s": schema.whole(allow_null=True),
        "open": schema.whole(),
        "lost_gpu_seconds": schema.whole(),
    }


LINE = schema.shape(
    "StatisticsLine",
    by=s.ChoiceField(BY),
    key=s.CharField(),
    title=s.CharField(),
    party=schema.text(),
    cluster=schema.text(),
    places=s.CharField(allow_blank=True, help_text="Where a device sat when it failed, in order of time."),
    **_figures(),
    own_faults=schema.whole(help_text="Without faults of several nodes."),
    expected_faults=s.FloatField(help_text="At the rate of all the others, over its known time."),
    repeat_offender=s.BooleanField(),
)
TOTAL = schema.with_from(
    "StatisticsTotal",
    gpus=schema.whole(),
    counted_gpu_seconds=schema.whole(),
    **_figures(),
    lost_gpu_seconds_by_rollup=schema.whole(help_text="What the rollups of the range lost, whatever the cause."),
    incidents_left_out=schema.whole(help_text="Older ones beyond the 2000 newest, which are not counted."),
)


class Statistics(ListView):
    """Fleet statistics."""

    columns = COLUMNS

    @extend_schema(
        operation_id="get_statistics",
        parameters=[
            *schema.RANGE,
            schema.param("by", "One line per what.", enum=BY, default="reason"),
            schema.param("cluster", "Only this cluster, by name."),
        ],
        responses=schema.answers(schema.ranged(LINE, total=TOTAL()), 422, csv=True),
    )
    def get(self, request: Request, format: str | None = None) -> Response:
        """Time between interruptions, time to repair, lost GPU time, repeat offenders; 30 days unless said."""
        params = request.query_params
        ask.allow(params, ("from", "to", "by", "cluster"))
        by = ask.choice(params, "by", BY, "reason")
        now = timezone.now()
        span = ask.span(params, to_ms(now), limit_hours=AVAILABILITY_LIMIT_HOURS, default_hours=DEFAULT_HOURS)
        wanted = Wanted(self.cluster, ask.text(params, "cluster"))
        found = get_statistics(now, span, wanted, (self.cluster,) if self.cluster else None)
        return self.page(request, [row.values() for row in found.tables[by]], **span.as_json(), total=totals(found))
