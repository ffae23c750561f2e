"""Pages of claims: the deadline board, one claim and its steps, the calendar."""

from __future__ import annotations

from datetime import date
from decimal import Decimal
from typing import Any

from django.conf import settings
from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils import timezone
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_POST, require_safe

from claims import selectors
from claims.anchors.making import newest_note
from claims.anchors.plan import get_plan, is_planned
from claims.errors import ClaimsError
from claims.feeds import feed_text
from claims.models import CalendarFeed, Claim
from claims.services import make_feed, revoke_feeds
from claims.services_claims import (
    BEGINS,
    acknowledge_claim,
    file_claim,
    get_claim,
    pay_claim,
    refuse_claim,
    write_off_claim,
)
from claims.views import access_of, claimant, not_there_is_404, note_carried, seen
from orgs.middleware import honours_clusters
from orgs.sheets import csv_response

CLAIMS_HEAD = (
    "claim", "contract", "month", "status", "amount", "currency", "received", "file_by_utc", "filed_at_utc",
    "filed_where", "filed_reference", "refusal",
)  # fmt: skip


@honours_clusters
@require_safe
def claims(request: HttpRequest) -> HttpResponse:
    """`claims/`: what may be claimed, how much, by when."""
    now = timezone.now()
    board = selectors.deadline_board(now, clusters=access_of(request).clusters)
    context = {
        "board": board,
        "totals": totals([one.claim for one in board if one.claim]),
        "feeds": CalendarFeed.objects.filter(revoked_at=None).count(),
        "feed_url": request.session.pop("calendar_url", "") if request.user.is_authenticated else "",
        "may_claim": access_of(request).may_claim,
        "is_anchored": is_planned(get_plan()),
    }
    return render(request, "claims/claims.html", context)


def totals(found: list[Claim]) -> list[dict[str, Any]]:
    """Per currency: to be filed, waiting for an answer, received, and what was asked for and did not come."""
    out: dict[str, dict[str, Any]] = {}
    for one in found:
        line = out.setdefault(
            one.currency, {"currency": one.currency, **dict.fromkeys(("draft", "open", "received", "lost"), Decimal(0))}
        )
        if one.status == "draft":
            line["draft"] += one.amount
        elif one.status in ("filed", "acknowledged"):
            line["open"] += one.amount
        elif one.status == "refused":
            line["lost"] += one.amount
        line["received"] += one.received
        if one.status == "paid":
            line["lost"] += max(one.amount - one.received, Decimal(0))
    return [out[key] for key in sorted(out)]


@honours_clusters
@require_safe
def claims_csv(request: HttpRequest) -> HttpResponse:
    """Every claim, one line each."""
    rows = [
        (
            one.label,
            one.report.contract.name,
            one.report.month,
            one.status,
            f"{one.amount:.2f}",
            one.currency,
            f"{one.received:.2f}",
            one.closes_at and one.closes_at.isoformat(),
            one.filed_at and one.filed_at.isoformat(),
            one.filed_where,
            one.filed_reference,
            one.refusal,
        )
        for one in selectors.list_claims(access_of(request).clusters)
    ]
    return csv_response("goodput-claims.csv", CLAIMS_HEAD, rows)


@honours_clusters
@require_safe
@not_there_is_404
def claim(request: HttpRequest, claim_id: int) -> HttpResponse:
    """`claims/<id>/`: one claim, its money, its history, its next steps."""
    one = get_claim(claim_id)
    seen(request, one.report.contract)
    month = selectors.Month(one.report.contract, one.report.version, one.report.month, one.report.result, one.report)
    context = {
        "claim": one,
        "m": month,
        "glyph": selectors.STATES[one.status],
        "events": list(one.events.all()),
        "steps": [to for to, begins in BEGINS.items() if one.status in begins],
        "ticket": one.report.result.get("ticket"),
        "checkpoint": newest_note(),
        "may_claim": access_of(request).may_claim,
    }
    return render(request, "claims/claim.html", context)


@honours_clusters
@require_POST
@not_there_is_404
def step(request: HttpRequest, claim_id: int, to: str) -> HttpResponse:
    """One step of a claim."""
    actor, one, data = claimant(request), get_claim(claim_id), request.POST
    seen(request, one.report.contract)
    note = data.get("note", "")
    try:
        match to:
            case "filed":
                file_claim(one, actor, where=data.get("where", ""), reference=data.get("reference", ""))
                note_carried(request, one.report.version.load().provider or one.report.contract.name)
            case "acknowledged":
                acknowledge_claim(one, actor, note=note)
            case "paid":
                day = data.get("on", "")
                on = date.fromisoformat(day) if len(day) == 10 and day.replace("-", "").isdigit() else None
                pay_claim(one, actor, amount=data.get("amount", ""), on=on, note=note)
            case "refused":
                refuse_claim(one, actor, reason=note)
            case "written_off":
                write_off_claim(one, actor, reason=note)
            case _:
                raise Http404("There is no such step.")
    except (ClaimsError, ValueError) as error:
        messages.error(request, str(error))
    return redirect("claim", org_slug=actor.org.slug, claim_id=one.pk)


@require_POST
def new_feed(request: HttpRequest) -> HttpResponse:
    """A new calendar address, shown once."""
    actor = claimant(request)
    token = make_feed(actor)
    base = settings.GOODPUT_PUBLIC_URL or request.build_absolute_uri("/").rstrip("/")
    request.session["calendar_url"] = f"{base}/calendar/{actor.org.pk}/{token}.ics"
    return redirect("claims", org_slug=actor.org.slug)


@require_POST
def end_feeds(request: HttpRequest) -> HttpResponse:
    """End every calendar address."""
    actor = claimant(request)
    messages.success(request, f"{revoke_feeds(actor)} calendar addresses ended.")
    return redirect("claims", org_slug=actor.org.slug)


@never_cache
@require_safe
def feed(request: HttpRequest, feed_org: int, token: str) -> HttpResponse:
    """`calendar/<org>/<token>.ics`: whoever has the address reads the deadlines, and nothing else."""
    text = feed_text(feed_org, token, timezone.now())
    if text is None:
        raise Http404("There is no such calendar.")
    return HttpResponse(text, content_type="text/calendar; charset=utf-8")
