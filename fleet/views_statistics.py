"""The page of fleet statistics, and the same as CSV and JSON."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import render
from django.utils import timezone
from django.views.decorators.http import require_safe

from fleet.reading import Filter, Period, period_of
from fleet.selectors_api import Span, Wanted
from fleet.selectors_statistics import BY, COLUMNS, FleetStatistics, get_statistics
from fleet.views import periods, shows_period
from orgs.middleware import honours_clusters
from orgs.sheets import csv_response

ON_PAGE = 25  # lines of a table; the downloads have all
HEADS = {
    "reason": ("By reason", "the reason that leads"),
    "model": ("By model", "of the GPUs as they are now"),
    "node": ("By node", "what lost most first"),
    "device": ("By device", "by UUID, wherever it sat; those that had a fault"),
}


def read(request: HttpRequest) -> tuple[Any, FleetStatistics]:
    """(period, statistics) that this URL names; 30 days unless it says otherwise. Raises BadPeriod → 422."""
    now = timezone.now()
    period = period_of(request.GET.get("period") or Period.MONTH.key, now)
    window = period.window(now)
    cluster = request.GET.get("cluster", "").replace("\x00", "")[:256]
    span = Span(window.first_slot, window.now_slot)
    return period, get_statistics(now, span, Wanted(cluster=cluster), request.access.clusters)  # type: ignore[attr-defined]


@honours_clusters
@require_safe
@shows_period
def statistics(request: HttpRequest) -> HttpResponse:
    """Time between interruptions, time to repair, what was lost and by what, repeat offenders."""
    period, found = read(request)
    cluster = request.GET.get("cluster", "")[:256]
    context = {
        "found": found,
        "fleet": {"period": period, "filter": Filter(cluster=cluster)},
        "periods": periods(period),
        "tables": [(by, *HEADS[by], found.tables[by][:ON_PAGE], len(found.tables[by])) for by in BY],
        "first_ms": found.span.first_slot * 15_000,
        "end_ms": found.span.end_slot * 15_000,
    }
    return render(request, "fleet/statistics.html", context)


@honours_clusters
@require_safe
@shows_period
def statistics_csv(request: HttpRequest) -> HttpResponse:
    """All tables in one, one line per reason, model, node and device."""
    _, found = read(request)
    rows = [list(row.values().values()) for by in BY for row in found.tables[by]]
    return csv_response("goodput-statistics.csv", COLUMNS, rows)


@honours_clusters
@require_safe
@shows_period
def statistics_json(request: HttpRequest) -> HttpResponse:
    """The same as JSON."""
    _, found = read(request)
    body = {**totals(found), "tables": {by: [row.values() for row in found.tables[by]] for by in BY}}
    response = JsonResponse(body, json_dumps_params={"ensure_ascii": False})
    response["Cache-Control"] = "private, no-store"
    return response


def totals(found: FleetStatistics) -> dict[str, Any]:
    """The figures of the whole span as JSON."""
    whole = found.figures.whole
    return {
        **found.span.as_json(),
        "gpus": found.gpus,
        "counted_gpu_seconds": found.tally.counted,
        "known_gpu_seconds": found.tally.known,
        "faults": len(whole.faults),
        "interruptions": whole.interruptions,
        "degradations": whole.degradations,
        "gpu_seconds_between_interruptions": whole.between_s,
        "repaired": len(whole.repairs),
        "mean_repair_s": whole.mean_repair_s,
        "median_repair_s": whole.median_repair_s,
        "open": whole.open,
        "lost_gpu_seconds": whole.lost_s,
        "lost_gpu_seconds_by_rollup": found.rolled_up_lost_s,
        "incidents_left_out": found.left_out,
    }
