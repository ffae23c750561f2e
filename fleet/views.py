"""Pages of the fleet: parse the request, ask one selector, render."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse


def fleet(request: HttpRequest) -> HttpResponse:
    """The Fleet page (written by the pages' owner)."""
    return HttpResponse("fleet")
