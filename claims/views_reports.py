"""Pages of reports: the months, one report, and what came late for issued ones."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils import timezone
from django.views.decorators.http import require_safe

from claims import selectors
from claims.downloads import month_csv, month_json
from claims.late import late_of, list_late
from claims.selectors import Month
from claims.views import access_of, not_there_is_404, seen
from orgs.middleware import honours_clusters


@honours_clusters
@require_safe
def reports(request: HttpRequest) -> HttpResponse:
    """`reports/`: months, drafts, issued ones and restatements."""
    return render(request, "claims/reports.html", {"reports": selectors.list_reports(access_of(request).clusters)})


def month_of_report(request: HttpRequest, report_id: int) -> Month:
    """A report as a page shows it."""
    one = selectors.get_report(report_id)
    seen(request, one.contract)
    return Month(one.contract, one.version, one.month, one.result, one)


@honours_clusters
@require_safe
@not_there_is_404
def report(request: HttpRequest, report_id: int) -> HttpResponse:
    """`reports/<id>/`: the report, the same as its PDF."""
    found = month_of_report(request, report_id)
    claims = list(found.report.claims.all()) if found.report else []
    anchors = selectors.anchors_of_month(found.report) if found.report else []
    late = late_of(found.report, timezone.now()) if found.report else None
    context = {"m": found, "claims": claims, "anchors": anchors, "late": late}
    return render(request, "claims/report.html", context)


@honours_clusters
@require_safe
@not_there_is_404
def report_json(request: HttpRequest, report_id: int) -> HttpResponse:
    """The report's result.json."""
    return month_json(month_of_report(request, report_id))


@honours_clusters
@require_safe
@not_there_is_404
def report_csv(request: HttpRequest, report_id: int) -> HttpResponse:
    """What counted in the report."""
    return month_csv(month_of_report(request, report_id))


@honours_clusters
@require_safe
def late(request: HttpRequest) -> HttpResponse:
    """`reports/late/`: facts that came after a month was issued, and what a restatement would change."""
    found = list_late(timezone.now(), access_of(request).clusters)
    return render(request, "claims/late.html", {"lines": found, "may_write": access_of(request).may_write})
