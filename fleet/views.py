"""Pages of the fleet: parse the request, ask one selector, render."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import wraps
from typing import Any
from urllib.parse import urlencode

from django.contrib import messages
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import redirect, render
from django.templatetags.static import static
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.http import require_GET, require_POST, require_safe

from fleet.attention import gathered, shortened
from fleet.domain.slots import HOUR_MS, SLOT_MS
from fleet.fleet_json import as_csv, as_json
from fleet.models import Cluster
from fleet.reading import AnyPeriod, BadPeriod, period_of
from fleet.selectors import Filter, Fleet, Period, get_fleet, read_nodes, visible_clusters
from fleet.selectors_days import get_days
from fleet.selectors_live import WORDS
from fleet.selectors_reviews import count_asking
from fleet.services import remove_simulated
from orgs.access import is_open_to_all
from orgs.middleware import honours_clusters

ATTENTION_ON_PAGE = 8
SEARCH_LENGTH = 80
EVERY_SECONDS = 15  # how often a live page asks again
EVERY_SECONDS_EMPTY = 3
TICK_MINUTES = (2, 5, 10, 15, 30, 60, 180, 360, 1440, 2880, 7200)  # from one mark of time to the next
MOST_TICKS = 5
LAST_TICK = 160  # half per cents; what lies behind would touch the word "now"
ROOMY_NODES = 8  # up to so many nodes, each GPU has a tile with words


def spanned(request: HttpRequest) -> HttpResponse | None:
    """The answer to a form with `from` and `to`: the same page with these days in its URL; None without them."""
    first, last = request.GET.get("from", ""), request.GET.get("to", "")
    if not first and not last:
        return None
    kept = {key: value for key, value in request.GET.items() if key not in ("from", "to", "period", "page")}
    query = urlencode({**kept, "period": f"{first or last}..{last or first}"})
    return redirect(f"{request.path}?{query}")


def shows_period(view: Callable[..., HttpResponse]) -> Callable[..., HttpResponse]:
    """A view whose URL names a period: bad days are answered with 422 and the field, a form's days become the URL."""

    @wraps(view)
    def answered(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        moved = spanned(request)
        if moved is not None:
            return moved
        try:
            return view(request, *args, **kwargs)
        except BadPeriod as error:
            context = {"detail": str(error), "field": "period"}
            return render(request, "fleet/bad_input.html", context, status=422)

    return answered


def wanted_of(request: HttpRequest) -> Filter:
    """What the URL asks for; values that mean nothing are left out, never an error on a page."""
    state = request.GET.get("state", "")
    page = request.GET.get("page", "1")
    opened = request.GET.get("open", "")
    return Filter(
        state=state if state in WORDS else "",
        cluster=request.GET.get("cluster", "")[:256],
        search=request.GET.get("q", "").replace("\x00", "")[:SEARCH_LENGTH],
        page=None if page == "all" else int(page) if re.fullmatch(r"[1-9]\d{0,5}", page) else 1,
        opened=int(opened) if re.fullmatch(r"[1-9]\d{0,17}", opened) else None,
    )


def read(request: HttpRequest, *, strips: bool = False, is_paged: bool = False) -> Fleet:
    """The reading that this URL names. A page shows pages; a download may ask for all of them."""
    wanted = wanted_of(request)
    if is_paged and wanted.page is None:
        wanted = Filter(wanted.state, wanted.cluster, wanted.search, 1, wanted.opened)
    period = period_of(request.GET.get("period"), timezone.now())
    return get_fleet(timezone.now(), period, wanted, strips=strips, within=request.access.clusters)  # type: ignore[attr-defined]


@honours_clusters
@require_safe
@shows_period
def fleet(request: HttpRequest) -> HttpResponse:
    """The Fleet page; for its own refresh only the part that lives."""
    if request.user.is_authenticated and request.session.get("last_org") != request.org.slug:  # type: ignore[attr-defined]
        request.session["last_org"] = request.org.slug  # type: ignore[attr-defined]
    part = request.GET.get("part") == "days"
    if part and is_part(request):
        return finish(render(request, "fleet/_days.html", _days(request)))
    found = read(request, strips=True, is_paged=True)
    troubles = gathered(found.troubles)
    context = {
        "fleet": found,
        "periods": periods(found.period),
        "attention": shortened(troubles, ATTENTION_ON_PAGE),
        "attention_count": len(troubles),
        "asking": count_asking(timezone.now(), request.access.clusters),  # type: ignore[attr-defined]
        "every": EVERY_SECONDS if found.node_count else EVERY_SECONDS_EMPTY,
        "is_roomy": sum(len(cluster.nodes) for cluster in found.clusters) <= ROOMY_NODES,
        "ticks": ticks(found),
        **(_days(request) if part else {}),
        "endpoint": request.build_absolute_uri("/v1/batches"),
        "needs_key": not is_open_to_all(request.org.slug),  # type: ignore[attr-defined]
        "may_remove_demo": request.access.may_remove_demo,  # type: ignore[attr-defined]
        "may_write": request.access.may_write,  # type: ignore[attr-defined]
    }
    return finish(render(request, "fleet/_live.html" if is_part(request) else "fleet/fleet.html", context))


def is_part(request: HttpRequest) -> bool:
    """Whether a page asks for a part of itself. A link that is opened without scripts asks for the whole."""
    return bool(request.htmx and not request.htmx.history_restore_request)  # type: ignore[attr-defined]


def finish(response: HttpResponse) -> HttpResponse:
    """A page or its part: kept by nobody without asking again, and the two never taken for each other."""
    response["Cache-Control"] = "private, no-cache"
    response["Vary"] = "HX-Request, Cookie"
    return response


def periods(now_shown: AnyPeriod) -> list[AnyPeriod]:
    """What a page offers: the fixed ones, this month, and the span of days that is shown."""
    month = period_of(f"{timezone.now():%Y-%m}", timezone.now())
    offered: list[AnyPeriod] = [*Period, month]
    return offered if now_shown in offered else [*offered, now_shown]


def _days(request: HttpRequest) -> dict[str, Any]:
    """The bars of 90 days of the fleet, or of the cluster that the URL names."""
    now = timezone.now()
    visible = visible_clusters(request.access.clusters)  # type: ignore[attr-defined]
    wanted = wanted_of(request)
    if wanted.cluster:
        visible = {pk: cluster for pk, cluster in visible.items() if cluster.name == wanted.cluster}
    rows = read_nodes(now, Period.DAY.window(now), visible, may_be_brief=True)
    days = get_days(now, {row.id: len(row.now.gpus) for row in rows}, clusters=list(visible))
    query = urlencode([*([("cluster", wanted.cluster)] if wanted.cluster else []), ("day", "")])
    path = f"{reverse('incidents', kwargs={'org_slug': request.org.slug})}?{query}"  # type: ignore[attr-defined]
    return {"days": days, "path": path, "name": wanted.cluster}


def ticks(found: Fleet) -> list[tuple[int, str, int]]:
    """Marks under the strips: instant in ms at a whole hour or day, how to write it, where it lies (half per cents)."""
    first, end = found.drawn_from * SLOT_MS, found.window.now_slot * SLOT_MS
    steps = [minutes * 60_000 for minutes in TICK_MINUTES]
    step = next((step for step in steps if (end - first) // step <= MOST_TICKS), steps[-1])
    how = "day" if step >= 24 * HOUR_MS else "hm"
    marks = range(-(-first // step) * step, end, step)
    return [(ms, how, place) for ms in marks if (place := (ms - first) * 200 // max(1, end - first)) <= LAST_TICK]


@honours_clusters
@require_GET
@shows_period
def fleet_csv(request: HttpRequest) -> HttpResponse:
    """What the page shows, one line per GPU."""
    response = HttpResponse(as_csv(read(request)), content_type="text/csv; charset=utf-8")
    response["Content-Disposition"] = f'attachment; filename="goodput-{request.org.slug}-fleet.csv"'  # type: ignore[attr-defined]
    response["Cache-Control"] = "private, no-store"
    return response


@honours_clusters
@require_GET
@shows_period
def fleet_json(request: HttpRequest) -> HttpResponse:
    """What the page shows, as JSON."""
    response = JsonResponse(as_json(read(request)), json_dumps_params={"ensure_ascii": False})
    response["Cache-Control"] = "private, no-store"
    return response


@honours_clusters
@require_GET
def manifest(request: HttpRequest) -> JsonResponse:
    """The web app manifest: the home-screen app opens on this org."""
    start = reverse("fleet", kwargs={"org_slug": request.org.slug})  # type: ignore[attr-defined]
    body: dict[str, Any] = {
        "id": start,
        "name": "Goodput",
        "short_name": "Goodput",
        "start_url": start,
        "scope": "/",
        "display": "standalone",
        "background_color": "#131417",
        "theme_color": "#131417",
        "icons": [
            {
                "src": static(f"icons/icon-{size}.png"),
                "sizes": f"{size}x{size}",
                "type": "image/png",
                "purpose": purpose,
            }
            for size, purpose in ((180, "any"), (192, "any"), (512, "any"), (512, "maskable"))
        ],
    }
    response = JsonResponse(body, content_type="application/manifest+json")
    response["Cache-Control"] = "private, max-age=3600"
    return response


@honours_clusters
@require_POST
def remove_demo(request: HttpRequest, cluster_id: int) -> HttpResponse:
    """Remove a simulated cluster with all that was made up for it."""
    access = request.access  # type: ignore[attr-defined]
    if not access.may_remove_demo:
        raise PermissionDenied
    cluster = Cluster.objects.filter(pk=cluster_id, removed_at=None).first()
    if cluster is None or not access.sees(cluster.name):
        raise Http404("There is no such cluster.")
    actor = request.user.email if request.user.is_authenticated else access.role
    if remove_simulated(cluster, actor=actor, org=access.org, address=request.META.get("REMOTE_ADDR")):
        messages.success(request, f"The simulated cluster {cluster.name} is removed.")
    else:
        messages.error(request, f"{cluster.name} holds real facts; it stays.")
    return redirect("fleet", org_slug=access.org.slug)
