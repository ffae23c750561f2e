"""The SLA catalogue in the provider's console: published terms, how sure they are, when they were read."""

from __future__ import annotations

from datetime import date
from typing import Any

from django.http import HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import render
from django.utils import timezone
from django.views.decorators.http import require_safe

from claims.catalog import Entry, load_catalog
from fleet.summary.views import staff_only
from orgs.sheets import csv_response

OLD_AFTER_DAYS = 90  # published terms change without notice: read them again each quarter
COLUMNS = (
    "id",
    "provider",
    "service",
    "confidence",
    "checked_on",
    "effective",
    "claim_deadline",
    "has_template",
    "source",
)


def is_old(entry: Entry, today: date) -> bool:
    """Whether somebody should read the source again."""
    return (today - date.fromisoformat(entry.checked_on)).days > OLD_AFTER_DAYS


def values(entry: Entry) -> list[Any]:
    """The row of a download, in the order of COLUMNS."""
    return [not entry.not_expressible if name == "has_template" else getattr(entry, name) for name in COLUMNS]


@staff_only
@require_safe
def catalog(request: HttpRequest) -> HttpResponse:
    """Every entry, by provider; `?q=` is part of its provider, service or id."""
    search = request.GET.get("q", "").replace("\x00", "")[:80].lower()
    entries = [one for one in load_catalog() if search in f"{one.provider} {one.service} {one.id}".lower()]
    today = timezone.now().date()
    context = {
        "section": "catalog",
        "search": request.GET.get("q", "")[:80],
        "entries": [(one, is_old(one, today)) for one in sorted(entries, key=lambda one: (one.provider, one.service))],
        "old": sum(is_old(one, today) for one in entries),
        "with_template": sum(not one.not_expressible for one in entries),
        "old_after_days": OLD_AFTER_DAYS,
    }
    return render(request, "provider/catalog.html", context)


@staff_only
@require_safe
def catalog_csv(request: HttpRequest) -> HttpResponse:
    """Every entry in short."""
    return csv_response("goodput-sla-catalogue.csv", COLUMNS, [values(one) for one in load_catalog()])


@staff_only
@require_safe
def catalog_json(request: HttpRequest) -> JsonResponse:
    """Every entry in short."""
    return JsonResponse({"entries": [dict(zip(COLUMNS, values(one), strict=True)) for one in load_catalog()]})
