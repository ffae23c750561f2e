"""The page of outside anchors: who sees the log's checkpoints, what was made, the log's own key."""

from __future__ import annotations

from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils import timezone
from django.views.decorators.http import require_http_methods

from claims.anchors.making import newest_note
from claims.anchors.plan import FIELDS, get_plan, is_planned, set_plan
from claims.anchors.tokens import ADAPTERS
from claims.errors import AnchorError
from claims.models import Anchor
from claims.views import access_of, writer
from fleet.log_key import load_key
from orgs.invitations import mail_is_configured

SHOWN = 30


@require_http_methods(["GET", "HEAD", "POST"])
def anchors(request: HttpRequest) -> HttpResponse:
    """`claims/anchors/`: one form for all anchors, and what they said."""
    plan = get_plan()
    values: dict[str, str] = {name: getattr(plan, name) if plan else "" for name in FIELDS}
    error, status = None, 200
    if request.method == "POST":
        actor = writer(request)
        try:
            set_plan(actor, request.POST)
        except AnchorError as problem:
            error, status, values = problem, 422, {name: request.POST.get(name, "") for name in FIELDS}
        else:
            messages.success(request, "Kept. The newest checkpoint goes out within five minutes, then once a day.")
            return redirect("anchors", org_slug=actor.org.slug)
    context: dict[str, Any] = {
        "plan": plan,
        "is_planned": is_planned(plan),
        "values": values,
        "error": error,
        "adapters": tuple(ADAPTERS),
        "anchors": Anchor.objects.select_related("checkpoint")[:SHOWN],
        "checkpoint": newest_note(),
        "verifier": load_key().verifier(),
        "has_mail": mail_is_configured(),
        "now": timezone.now(),
        "may_write": access_of(request).may_write,
    }
    return render(request, "claims/anchors.html", context, status=status)
