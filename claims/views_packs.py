"""Downloads that are made when they are asked for: PDF and pack."""

from __future__ import annotations

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.views.decorators.http import require_safe

from claims.downloads import file_response, pack_response
from claims.errors import ClaimsError
from claims.selectors import get_report
from claims.services_claims import get_claim
from claims.views import access_of, not_there_is_404, seen
from orgs.middleware import honours_clusters


@honours_clusters
@require_safe
@not_there_is_404
def report_pdf(request: HttpRequest, report_id: int) -> HttpResponse:
    """The report as PDF; where this machine can't make one, the page says what to install."""
    from claims.pdf import report_as_pdf

    report = get_report(report_id)
    seen(request, report.contract)
    try:
        body = report_as_pdf(report, access_of(request).org)
    except ClaimsError as error:
        messages.error(request, str(error))
        return redirect("report", org_slug=access_of(request).org.slug, report_id=report.pk)
    return file_response(body, "application/pdf", f"goodput-{report.month}-v{report.number}.pdf")


@honours_clusters
@require_safe
@not_there_is_404
def pack_zip(request: HttpRequest, claim_id: int) -> HttpResponse:
    """The claim's pack."""
    from claims.pack import make_pack

    claim = get_claim(claim_id)
    seen(request, claim.report.contract)
    try:
        body = make_pack(claim, access_of(request).org, with_pdf=True)
    except ClaimsError as error:
        messages.error(request, str(error))
        return redirect("claim", org_slug=access_of(request).org.slug, claim_id=claim.pk)
    return pack_response(body, claim.label)
