"""Pages of whole comparisons of rules: how far one is and what it found, its download, stopping it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_POST, require_safe

from fleet.models import RuleComparison
from fleet.selectors_comparisons import find_comparison, get_comparison_page, stream_nodes
from fleet.services_comparisons import stop_comparison
from fleet.views import finish, is_part
from fleet.views_settings import access_of, actor_of

EVERY_SECONDS = 3


@require_safe
def comparison(request: HttpRequest, comparison_id: int) -> HttpResponse:
    """One comparison; for its own refresh only the part that lives."""
    row = _found(comparison_id)
    context = {"section": "rules", "page": get_comparison_page(row), "row": row, "every": EVERY_SECONDS}
    name = "_comparison" if is_part(request) else "comparison"
    return finish(render(request, f"fleet/settings/{name}.html", context))


@require_safe
def comparison_json(request: HttpRequest, comparison_id: int) -> HttpResponse:
    """The whole of it, as `refold --compare --json` prints it, every node that differs."""
    row = _found(comparison_id)
    response = HttpResponse("".join(_pieces(row)), content_type="application/json")
    response["Content-Disposition"] = f'attachment; filename="goodput-comparison-{row.pk}.json"'
    response["Cache-Control"] = "private, no-store"
    return response


def _found(comparison_id: int) -> RuleComparison:
    row = find_comparison(comparison_id)
    if row is None:
        raise Http404("There is no such comparison; the newest ten are kept.")
    return row


def _pieces(row: RuleComparison) -> Iterator[str]:
    head: dict[str, Any] = {
        "state": row.state,
        "version": row.version or None,
        "amendment": {"code": row.code, "changes": row.changes} if row.code else None,
        "from_hour": row.from_hour,
        "until_hour": row.until_hour,
        "nodes_compared": row.nodes_done,
        "nodes_total": row.nodes_total,
        "hours_folded": row.hours_folded,
        "rules": row.rules,
    }
    yield json.dumps(head, ensure_ascii=False)[:-1] + ', "nodes": ['
    for at, node in enumerate(stream_nodes(row)):
        yield (", " if at else "") + json.dumps(node, ensure_ascii=False)
    yield "]}"


@require_POST
def stop(request: HttpRequest, comparison_id: int) -> HttpResponse:
    """End it before its end."""
    actor = actor_of(request)
    _found(comparison_id)
    if stop_comparison(comparison_id, actor):
        messages.success(request, "It is stopped. What it had found stays.")
    else:
        messages.info(request, "It had ended before.")
    return redirect("rules_comparison", org_slug=access_of(request).org.slug, comparison_id=comparison_id)
