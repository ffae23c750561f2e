"""What asks for a look, over the fleet: the list, marking as looked at, and taking that back."""

from __future__ import annotations

import re
from typing import Any

from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.http import require_POST, require_safe

from fleet.fleet_json import when
from fleet.selectors import visible_clusters
from fleet.selectors_live import to_ms
from fleet.selectors_node import find_node
from fleet.selectors_reviews import ReviewFilter, ReviewLine, find_look, joined, page_of_reviews, sees_nodes
from fleet.services_reviews import LookInvalid, look_at, read_about, take_back_look
from fleet.views_incidents import actor_of, may_write
from orgs.middleware import honours_clusters
from orgs.sheets import csv_response

ON_PAGE = 200  # rows of an hour; those that follow each other are one line
MOST_IN_DOWNLOAD = 10_000
STATES = ("asks", "looked at", "all")
COLUMNS = (
    *("from", "to", "cluster", "node", "gpu", "subject", "uuid", "code", "title"),
    *("looked_at", "looked_by", "note"),
)


def wanted_of(request: HttpRequest) -> tuple[ReviewFilter, str]:
    """(what the URL asks for, its state). Values that mean nothing are left out."""
    get = request.GET.get
    state, code, node = get("state", STATES[0]), get("code", ""), get("node", "")
    state = state if state in STATES else STATES[0]
    wanted = ReviewFilter(
        clusters=visible_clusters(request.access.clusters),  # type: ignore[attr-defined]
        code=code if re.fullmatch(r"[A-Za-z0-9_]{1,64}", code) else "",
        node_id=int(node) if re.fullmatch(r"[1-9]\d{0,17}", node) else None,
        is_looked_at={STATES[0]: False, STATES[1]: True}.get(state),
    )
    return wanted, state


def _after(text: str) -> tuple[int, ...] | None:
    found = re.fullmatch(r"(\d{1,10})\.(\d{1,18})", text)
    return (int(found[1]), int(found[2])) if found and int(found[1]) < 2**31 else None


@honours_clusters
@require_safe
def reviews(request: HttpRequest) -> HttpResponse:
    """The list; unless the URL says otherwise only what nobody looked at."""
    return _show(request)


def _show(request: HttpRequest, error: LookInvalid | None = None) -> HttpResponse:
    """The page; with an error what was typed stands there again, 422."""
    wanted, state = wanted_of(request)
    after = _after(request.GET.get("after", ""))
    found, following = page_of_reviews(wanted, after, ON_PAGE)
    node = find_node(wanted.node_id, request.access.clusters) if wanted.node_id else None  # type: ignore[attr-defined]
    lines = joined(reversed(found))
    context = {
        "reviews": lines,
        "asking": sum(one.look is None for one in lines),
        "states": STATES,
        "state": state,
        "code": wanted.code,
        "of_node": node,
        "after": request.GET.get("after", "") if after else "",
        "following": following and f"{following[0]}.{following[1]}",
        "may_write": may_write(request),
        "error": error,
        "typed": request.POST.get("note", "") if error else "",
        "shows_node": True,
    }
    return render(request, "fleet/reviews.html", context, status=422 if error else 200)


def _lines(request: HttpRequest) -> list[dict[str, Any]]:
    wanted, _ = wanted_of(request)
    found, _ = page_of_reviews(wanted, None, MOST_IN_DOWNLOAD)
    return [_plain(line) for line in joined(reversed(found))]


def _plain(line: ReviewLine) -> dict[str, Any]:
    """One review for a download, in the order of COLUMNS."""
    look = line.look
    values = (
        *(when(line.from_ms), when(line.to_ms), line.cluster, line.node, line.place, line.subject, line.uuid),
        *(line.code, line.title),
        *(when(to_ms(look.at)) if look else None, look.by if look else None, look.note if look else None),
    )
    return dict(zip(COLUMNS, values, strict=True))


@honours_clusters
@require_safe
def reviews_csv(request: HttpRequest) -> HttpResponse:
    """What the list's filters name, all pages: the newest rows up to the limit."""
    return csv_response("goodput-reviews.csv", COLUMNS, [list(line.values()) for line in _lines(request)])


@honours_clusters
@require_safe
def reviews_json(request: HttpRequest) -> HttpResponse:
    """The same as JSON."""
    body = {"as_of": when(to_ms(timezone.now())), "reviews": _lines(request)}
    response = JsonResponse(body, json_dumps_params={"ensure_ascii": False})
    response["Cache-Control"] = "private, no-store"
    return response


@honours_clusters
@require_POST
def look(request: HttpRequest) -> HttpResponse:
    """Mark the chosen ones as looked at."""
    actor, access = actor_of(request), request.access  # type: ignore[attr-defined]
    try:
        wanted = [read_about(key) for key in request.POST.getlist("review")]
        if not sees_nodes({about.node_id for about in wanted}, access.clusters):
            raise Http404("There is no such node, or it is not yours to see.")
        made = look_at(wanted, request.POST.get("note", ""), actor)
    except LookInvalid as error:
        return _show(request, error)
    if made:
        messages.success(request, f"{len(made)} marked as looked at." if len(made) > 1 else "Marked as looked at.")
    else:
        messages.info(request, "Somebody had marked it before, or it asks no more.")
    return _back(request)


@honours_clusters
@require_POST
def take_back(request: HttpRequest, look_id: int) -> HttpResponse:
    """Have it ask again."""
    actor = actor_of(request)
    if find_look(look_id, request.access.clusters) is None:  # type: ignore[attr-defined]
        raise Http404("There is no such mark, or it is not yours to see.")
    if take_back_look(look_id, actor):
        messages.success(request, "It asks for a look again.")
    else:
        messages.info(request, "Somebody had taken it back before.")
    return _back(request)


def _back(request: HttpRequest) -> HttpResponse:
    """To the page that it was sent from: a node's, or the list."""
    slug, node = request.org.slug, request.POST.get("node", "")  # type: ignore[attr-defined]
    if re.fullmatch(r"[1-9]\d{0,17}", node):
        page = reverse("node", kwargs={"org_slug": slug, "node_id": int(node)})
        return redirect(f"{page}?part=events#events")
    return redirect("reviews", org_slug=slug)
