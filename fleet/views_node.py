"""Pages of one node and of one GPU's time: parse the request, ask one selector, render."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import urlencode

from django.http import Http404, HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import render
from django.urls import reverse
from django.utils import timezone
from django.utils.dateparse import parse_datetime
from django.views.decorators.http import require_safe

from fleet.domain.slots import first_slot, hour_of_slot, slot_of
from fleet.fleet_json import figures, floored, when
from fleet.models import Node
from fleet.neighbours import sentence, shortfall_of
from fleet.node_events import list_events
from fleet.reading import period_of
from fleet.selectors_api import Span
from fleet.selectors_dated import get_node_note, window_lines, windows_of_hour, windows_over
from fleet.selectors_days import get_days
from fleet.selectors_live import to_ms
from fleet.selectors_node import NodePage, find_node, get_node_page
from fleet.selectors_reviews import count_asking, list_reviews
from fleet.selectors_timeline import get_timeline, readings_of
from fleet.views import EVERY_SECONDS, finish, is_part, periods, shows_period, ticks
from fleet.views_incidents import may_write
from orgs.access import is_open_to_all
from orgs.middleware import honours_clusters
from orgs.sheets import csv_response

WINDOWS_AHEAD = timedelta(days=7)
EVENT_HOURS = 24  # of the period; a page does not decode a month of batches
OLDEST = datetime(2015, 1, 1, tzinfo=UTC)
COLUMNS = (
    *("as_of", "period", "from", "to", "cluster", "simulated", "node", "gpu", "uuid", "pci_bus_id", "model", "state"),
    *("marks", "reasons", "party", "since", "availability_percent", "coverage_percent", "gpu_hours_lost"),
)


def node_of(request: HttpRequest, node_id: int) -> Node:
    """The node, if the asker may see it. Raises Http404 otherwise: not yours and not there give one answer."""
    found = find_node(node_id, request.access.clusters)  # type: ignore[attr-defined]
    if found is None:
        raise Http404("There is no such node, or it is not yours to see.")
    return found


def reading_of(request: HttpRequest, node_id: int) -> NodePage:
    """The node's reading that this URL names."""
    return get_node_page(
        timezone.now(), period_of(request.GET.get("period"), timezone.now()), node_of(request, node_id)
    )


@honours_clusters
@require_safe
@shows_period
def node(request: HttpRequest, node_id: int) -> HttpResponse:
    """The node page; for its own refresh only the part that lives, with `part=events` the kernel's events."""
    part = request.GET.get("part")
    now, found = timezone.now(), node_of(request, node_id)
    if part == "days" and is_part(request):
        return finish(render(request, "fleet/_days.html", _days(request, found)))
    page = get_node_page(now, period_of(request.GET.get("period"), now), found)
    if part == "events" and is_part(request):
        return finish(render(request, "fleet/_events.html", _events(request, found, page)))
    first = datetime.fromtimestamp(page.window.first_slot * 15, UTC)
    context = {
        "windows": window_lines(now, windows_over(found, first, now + WINDOWS_AHEAD)),
        "hardware": get_node_note(now, page.row),
        "page": page,
        "fleet": page,
        "row": page.row,
        "node_id": node_id,
        "periods": periods(page.period),
        "every": EVERY_SECONDS,
        "ticks": ticks(page),  # type: ignore[arg-type]  # a NodePage has the two fields that it reads
        "values": _values(page),
        "asking_now": count_asking(now, node_id=found.pk),
        "event_hours": min(EVENT_HOURS, page.period.hours),
        "endpoint": request.build_absolute_uri("/v1/batches"),
        "needs_key": not is_open_to_all(request.org.slug),  # type: ignore[attr-defined]
        **(_days(request, found) if part == "days" else {}),
        **(_events(request, found, page) if part == "events" else {}),
    }
    return finish(render(request, "fleet/_node_live.html" if is_part(request) else "fleet/node.html", context))


def _events(request: HttpRequest, found: Node, page: NodePage) -> dict[str, Any]:
    """The kernel events of the newest hours of the period, and what asks for a look."""
    now_slot = page.window.now_slot + 1
    hours = min(EVENT_HOURS, page.period.hours)
    span = Span(max(page.window.first_slot, now_slot - hours * 240), now_slot)
    places = [(gpu.place, gpu.uuid, gpu.bus_id) for gpu in page.row.now.gpus]
    lacks = shortfall_of(found, timezone.now())
    found_reviews = list_reviews(page.row.id, max(page.window.first_slot, now_slot - hours * 240), now_slot)
    return {
        "events": list_events(page.row.id, span, places),
        "reviews": found_reviews,
        "asking": sum(one.look is None for one in found_reviews),
        "may_write": may_write(request),
        "neighbours": sentence(lacks) if lacks else "",
        "page": page,
        "row": page.row,
        "node_id": page.row.id,
        "event_hours": hours,
        "is_blind": any("kernel log" in line.name for line in page.blind_sources),
    }


def _days(request: HttpRequest, found: Node) -> dict[str, Any]:
    """The bars of 90 days of this node."""
    live = getattr(found, "live", None)
    subjects = live.summary.get("subjects", ()) if live else ()
    gpus = sum(subject.get("kind") == "gpu" for subject in subjects)
    query = urlencode({"node": found.name, "cluster": found.cluster.name, "day": ""})
    path = f"{reverse('incidents', kwargs={'org_slug': request.org.slug})}?{query}"  # type: ignore[attr-defined]
    days = get_days(timezone.now(), {found.pk: gpus}, found.pk)
    return {"days": days, "path": path, "name": found.name}


def _values(page: NodePage) -> list[dict[str, Any]]:
    """The newest sample's readings, one entry per GPU; a GPU that it does not list has none."""
    by_uuid = {gpu.uuid: gpu for gpu in (page.newest.gpus if page.newest else ())}
    out = []
    for gpu in page.row.now.gpus:
        facts = by_uuid.get(gpu.uuid)
        out.append({"gpu": gpu, "facts": facts, "readings": dict(readings_of(facts)) if facts is not None else {}})
    return out


@honours_clusters
@require_safe
@shows_period
def node_csv(request: HttpRequest, node_id: int) -> HttpResponse:
    """What the page shows of the GPUs, one line each."""
    page = reading_of(request, node_id)
    row = page.row
    head = [
        when(page.as_of_ms),
        page.period.key,
        when(page.window.first_slot * 15_000),
        when(page.window.now_slot * 15_000),
    ]
    lines = []
    for place in row.places:
        gpu, sums = place.gpu, place.sums
        reasons = [condition.code for condition in gpu.conditions] or list(gpu.causes)
        lines.append(
            [
                *(*head, row.cluster, "yes" if row.is_simulated else "no", row.name),
                *(gpu.place, gpu.uuid, gpu.bus_id, gpu.model, gpu.word, " ".join(gpu.marks), " ".join(reasons)),
                *(gpu.conditions[0].party if gpu.conditions else "", when(gpu.since_ms)),
                *(floored(sums.nominal, sums.known_full), floored(sums.known, sums.all)),
                f"{sums.lost_gpu_hours:.3f}",
            ]
        )
    return csv_response(f"goodput-node-{node_id}.csv", COLUMNS, lines)


@honours_clusters
@require_safe
@shows_period
def node_json(request: HttpRequest, node_id: int) -> HttpResponse:
    """What the page shows of the GPUs, as JSON."""
    page = reading_of(request, node_id)
    row = page.row
    body = {
        "as_of": when(page.as_of_ms),
        "period": {
            "name": page.period.key,
            "from": when(page.window.first_slot * 15_000),
            "to": when(page.window.now_slot * 15_000),
        },
        "cluster": row.cluster,
        "simulated": row.is_simulated,
        "node": row.name,
        "last_sample": when(row.last_sample_ms),
        "agent_version": row.agent_version,
        "dropped_batches": row.dropped_total,
        **figures(row.sums),
        "gpus": [
            {
                "index": place.gpu.place,
                "uuid": place.gpu.uuid or None,
                "pci_bus_id": place.gpu.bus_id or None,
                "state": place.gpu.word,
                "marks": list(place.gpu.marks),
                "reasons": [condition.code for condition in place.gpu.conditions] or list(place.gpu.causes),
                **figures(place.sums),
            }
            for place in row.places
        ],
    }
    response = JsonResponse(body, json_dumps_params={"ensure_ascii": False})
    response["Cache-Control"] = "private, no-store"
    return response


@honours_clusters
@require_safe
def timeline(request: HttpRequest, node_id: int, index: int) -> HttpResponse:
    """One GPU's hour, slot by slot, and the slot `at` explained; without `at` the newest closed slot."""
    found = node_of(request, node_id)
    now = timezone.now()
    text = request.GET.get("at", "")
    at = _instant(text) if text else None
    if text and (at is None or not OLDEST <= at < now + timedelta(days=1)):
        detail = "at: an instant such as 2026-11-30T07:04:15Z, not before 2015 and not in the future."
        return render(request, "fleet/bad_input.html", {"detail": detail, "field": "at"}, status=422)
    slot = slot_of(to_ms(at)) if at else _newest_slot(found, now)
    page = get_timeline(now, found, index, slot)
    if page is None:
        raise Http404("There is no such GPU on this node.")
    base = first_slot(hour_of_slot(slot))
    steps = {
        "slot_before": slot - 1,
        "slot_after": slot + 1,
        "hour_before": slot - 240,
        "hour_after": slot + 240,
        "day_before": slot - 5760,
        "day_after": slot + 5760,
    }
    context = {
        "windows": windows_of_hour(now, found, page.hour_ms, index, page.slot_ms),
        "page": page,
        "node_id": node_id,
        "index": index,
        "steps": {name: when(step * 15_000) for name, step in steps.items()},
        "may_go_on": {name: step <= slot_of(to_ms(now)) for name, step in steps.items()},
        "ticks": [(base + 240 * i // 6) * 15_000 for i in range(7)],
        "from": when(page.hour_ms),
        "to": when(page.hour_end_ms),
    }
    return render(request, "fleet/timeline.html", context)


def _instant(text: str) -> datetime | None:
    """RFC 3339, or seconds since 1970; None for anything else. A time without a zone is UTC."""
    try:
        if text.isascii() and text.isdigit() and len(text) <= 11:
            return datetime.fromtimestamp(int(text), UTC)
        at = parse_datetime(text.strip().replace(" ", "+"))
    except (ValueError, OverflowError):
        return None
    if at is None:
        return None
    try:
        return at.replace(tzinfo=UTC) if at.tzinfo is None else at.astimezone(UTC)
    except OverflowError:
        return None


def _newest_slot(found: Node, now: datetime) -> int:
    live = getattr(found, "live", None)
    newest = live.last_sample_at if live else None
    present = slot_of(to_ms(now)) - 1  # a node's clock may run ahead of ours; what has not begun is not shown
    return min(slot_of(to_ms(newest)) - 1, present) if newest else present
