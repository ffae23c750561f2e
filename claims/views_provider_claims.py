"""What customers filed, in the provider's console: seen, answered, acknowledged or disputed in their own record."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_http_methods, require_safe
from django_tenants.utils import schema_context, tenant_context

from claims.downloads import pack_response
from claims.errors import ClaimsError, NotThere
from claims.models import Claim
from claims.pack import make_pack
from claims.selectors import STATES, Month
from claims.services import Actor
from claims.services_claims import WITH_PROVIDER, get_claim, provider_answers
from fleet.summary.views import org_of, staff_only, who
from orgs.models import Org

KINDS = ("answer", "acknowledge", "dispute")


@contextmanager
def filed(org_id: int, claim_id: int) -> Iterator[tuple[Org, Claim]]:
    """(org, claim) inside the org, for a claim that was filed with the provider. Raises Http404."""
    org = org_of(org_id)
    with tenant_context(org):
        try:
            claim = get_claim(claim_id)
        except NotThere as error:
            raise Http404(str(error)) from error
        if claim.status not in WITH_PROVIDER:
            raise Http404("This claim was not filed.")
        yield org, claim


@staff_only
@require_safe
def claims(request: HttpRequest) -> HttpResponse:
    """`provider/claims/`: what customers filed, what waits for an answer first."""
    with schema_context("public"):
        orgs = list(Org.objects.filter(status=Org.Status.ACTIVE).order_by("slug"))
    lines: list[dict[str, Any]] = []
    for org in orgs:
        with tenant_context(org):
            found = Claim.objects.select_related("report__contract").filter(status__in=WITH_PROVIDER)
            lines += [{"org": org, "claim": one, "glyph": STATES[one.status]} for one in found]
    order = [Claim.Status.FILED, Claim.Status.ACKNOWLEDGED, Claim.Status.REFUSED, Claim.Status.PAID]
    lines.sort(key=lambda line: (order.index(line["claim"].status), line["claim"].filed_at))
    return render(request, "provider/claims.html", {"lines": lines, "section": "claims"})


@staff_only
@require_http_methods(["GET", "HEAD", "POST"])
def claim(request: HttpRequest, org_id: int, claim_id: int) -> HttpResponse:
    """`provider/claims/<org>/<id>/`: one filed claim with its numbers; a POST writes into its history."""
    with filed(org_id, claim_id) as (org, one):
        if request.method == "POST":
            staff = who(request)
            actor = Actor(staff["actor"], org, staff["address"])
            kind, note = request.POST.get("kind", ""), request.POST.get("note", "")
            try:
                provider_answers(one, actor, note=note, kind=kind)
            except ClaimsError as error:
                messages.error(request, str(error))
            else:
                messages.success(request, "It stands in the customer's record, with your name.")
            return redirect("provider_claim", org_id=org.pk, claim_id=one.pk)
        month = Month(one.report.contract, one.report.version, one.report.month, one.report.result, one.report)
        context = {
            "customer": org,
            "claim": one,
            "m": month,
            "glyph": STATES[one.status],
            "events": list(one.events.all()),
            "kinds": [kind for kind in KINDS if kind != "acknowledge" or one.status == Claim.Status.FILED],
            "section": "claims",
        }
        return render(request, "provider/claim.html", context)


@staff_only
@require_safe
def pack(request: HttpRequest, org_id: int, claim_id: int) -> HttpResponse:
    """The pack of a filed claim: what the customer's own page gives."""
    with filed(org_id, claim_id) as (org, one):
        try:
            body = make_pack(one, org, with_pdf=True)
        except ClaimsError as error:
            messages.error(request, str(error))
            return redirect("provider_claim", org_id=org.pk, claim_id=one.pk)
    return pack_response(body, one.label)
