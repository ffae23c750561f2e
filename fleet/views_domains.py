"""The page of NVLink domains."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils import timezone
from django.views.decorators.http import require_safe

from fleet.reading import Filter, period_of
from fleet.selectors_domains import MOST_STRIPS, list_domains
from fleet.views import periods, shows_period
from orgs.middleware import honours_clusters


@honours_clusters
@require_safe
@shows_period
def domains(request: HttpRequest) -> HttpResponse:
    """Every NVLink domain, worst first; with `only` one of them."""
    now = timezone.now()
    period = period_of(request.GET.get("period"), now)
    only = request.GET.get("only", "").replace("\x00", "")[:300]
    found = list_domains(now, period, request.access.clusters, strips=True, only=only)  # type: ignore[attr-defined]
    context = {
        "domains": found,
        "only": only,
        "most_strips": MOST_STRIPS,
        "fleet": {"period": period, "filter": Filter()},
        "periods": periods(period),
    }
    return render(request, "fleet/domains.html", context)
