"""Settings, Agents: who sends for this org, by which key, and what looks wrong about it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django.contrib import messages
from django.core.paginator import Paginator
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_POST, require_safe

from fleet.agents import services
from fleet.agents.selectors import ON_PAGE, get_key, list_agents
from orgs.middleware import honours_clusters, sensitive
from orgs.views_settings import access_of, may_write, who

SEARCH_LENGTH = 80


@honours_clusters
@require_safe
def agents(request: HttpRequest) -> HttpResponse:
    """Installations with their keys; flagged ones first."""
    search = request.GET.get("search", "")[:SEARCH_LENGTH].replace("\x00", "")
    clusters = access_of(request).clusters
    found = list_agents(clusters, search)
    page = Paginator(found, ON_PAGE).get_page(request.GET.get("page"))
    everything = found if not search else list_agents(clusters)
    context = {
        "section": "agents",
        "page": page,
        "search": search,
        "total": len({one.agent_id for one in everything}),
        "flagged": len({one.agent_id for one in everything if one.flags}),
        "enrolled": len({one.agent_id for one in everything if one.key is not None}),
    }
    return render(request, "fleet/agents.html", context)


def _changed(request: HttpRequest, key_id: int, how: Callable[..., Any], said: str) -> HttpResponse:
    access = may_write(request)
    row = get_key(key_id, access.clusters)
    if row is None:
        raise Http404("There is no such key.")
    how(row, access.org, **who(request))
    messages.success(request, said.format(node=row.node))
    return redirect("agents", org_slug=access.org.slug)


@sensitive
@require_POST
def revoke(request: HttpRequest, key_id: int) -> HttpResponse:
    """End a key."""
    return _changed(request, key_id, services.revoke, "The key of {node} is revoked.")


@sensitive
@require_POST
def accept(request: HttpRequest, key_id: int) -> HttpResponse:
    """Take a waiting or revoked key."""
    return _changed(request, key_id, services.accept, "The key of {node} is accepted.")
