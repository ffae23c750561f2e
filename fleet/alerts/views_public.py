"""The page behind a confirmation's link. It needs no login: the link is the proof."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils import timezone
from django.views.decorators.http import require_http_methods

from fleet.alerts.confirming import confirm, read_link
from orgs.middleware import sensitive


@sensitive
@require_http_methods(["GET", "HEAD", "POST"])
def confirm_address(request: HttpRequest, token: str) -> HttpResponse:
    """What is asked, with a button: programs that look into mails open links, and confirm nothing by it."""
    question = confirm(token, timezone.now()) if request.method == "POST" else read_link(token)
    status = 200 if question else 410
    response = render(request, "fleet/alerts/confirm.html", {"question": question}, status=status)
    response["Cache-Control"] = "private, no-store"
    return response
