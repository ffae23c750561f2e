"""Pages of incidents: the list, one incident with its story, and what people write about it."""

from __future__ import annotations

import re
from datetime import UTC, date, datetime
from typing import Any

from django.contrib import messages
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import redirect, render
from django.utils import timezone
from django.utils.dateparse import parse_datetime
from django.views.decorators.http import require_POST, require_safe

from fleet import services_incidents as services
from fleet.domain.rules import load_rules
from fleet.fleet_json import when
from fleet.models import Incident
from fleet.selectors_api_incidents import bad_runs
from fleet.selectors_incidents import (
    PARTIES,
    STATES,
    IncidentLine,
    IncidentPage,
    Wanted,
    day_slots,
    lines_of,
    list_page,
    visible_incidents,
)
from fleet.selectors_incidents_detail import get_detail, list_runs
from fleet.views import EVERY_SECONDS, finish, is_part
from orgs.addresses import client_address
from orgs.middleware import honours_clusters
from orgs.sheets import csv_response

COLUMNS = (
    *("incident", "state", "cluster", "simulated", "node", "scope", "gpus", "uuids", "code", "title", "party"),
    *("least_weight", "since", "resolved", "seconds", "lost_gpu_seconds", "lost_gpu_hours", "nodes", "part_of"),
    *("acknowledged_at", "acknowledged_by", "ticket_number", "reported_at", "provider_ack_at", "disposition"),
)
RUN_COLUMNS = (
    *("place", "uuid", "from", "to", "slots", "state", "weight", "lower_loss_weight", "higher_loss_weight"),
    *("certain", "possible"),
)


def wanted_of(request: HttpRequest, *, whole: bool = False) -> tuple[Wanted, str]:
    """(what the URL asks for, what is wrong with its day, if anything). Values that mean nothing are left out."""
    get = request.GET.get
    state, party, page, code = get("state", "all"), get("party", ""), get("page", "1"), get("code", "")
    span: tuple[int | None, int | None] = (None, None)
    wrong = ""
    if get("day"):
        day = _day(get("day", ""))
        if day is None:
            wrong = "day: a date such as 2026-11-30, UTC."
        else:
            span = day_slots(datetime(day.year, day.month, day.day, tzinfo=UTC))
    return Wanted(
        state=state if state in STATES else "all",
        party=party if party in PARTIES else "",
        cluster=get("cluster", "").replace("\x00", "")[:256],
        node=get("node", "").replace("\x00", "")[:256],
        code=code if re.fullmatch(r"[A-Za-z0-9_]{1,64}", code) else "",
        first_slot=span[0],
        end_slot=span[1],
        page=None if whole else int(page) if re.fullmatch(r"[1-9]\d{0,5}", page) else 1,
    ), wrong


def _day(text: str) -> date | None:
    try:
        day = date.fromisoformat(text)
    except ValueError:
        return None
    return day if re.fullmatch(r"\d{4}-\d{2}-\d{2}", text) and 2015 <= day.year < 2100 else None


def bad_input(request: HttpRequest, detail: str) -> HttpResponse:
    """422 with the field."""
    field = detail.partition(":")[0]
    return render(request, "fleet/bad_input.html", {"detail": detail, "field": field}, status=422)


def read(request: HttpRequest, wanted: Wanted) -> IncidentPage:
    """The page or download that this URL names."""
    return list_page(timezone.now(), wanted, request.access.clusters)  # type: ignore[attr-defined]


@honours_clusters
@require_safe
def incidents(request: HttpRequest) -> HttpResponse:
    """The list: open ones first. For its own refresh only the part that lives."""
    wanted, wrong = wanted_of(request)
    if wrong:
        return bad_input(request, wrong)
    page = read(request, wanted)
    context = {"page": page, "fleet": page, "every": EVERY_SECONDS, "states": STATES, "day": request.GET.get("day", "")}
    return finish(render(request, f"fleet/{'_incidents_live' if is_part(request) else 'incidents'}.html", context))


@honours_clusters
@require_safe
def incidents_csv(request: HttpRequest) -> HttpResponse:
    """What the list's filters name, all pages."""
    wanted, wrong = wanted_of(request, whole=True)
    if wrong:
        return bad_input(request, wrong)
    lines = read(request, wanted).lines
    return csv_response("goodput-incidents.csv", COLUMNS, [list(_plain(line).values()) for line in lines])


@honours_clusters
@require_safe
def incidents_json(request: HttpRequest) -> HttpResponse:
    """The same as JSON."""
    wanted, wrong = wanted_of(request, whole=True)
    if wrong:
        return bad_input(request, wrong)
    page = read(request, wanted)
    body = {"as_of": when(page.as_of_ms), "total": page.matching, "incidents": [_plain(line) for line in page.lines]}
    response = JsonResponse(body, json_dumps_params={"ensure_ascii": False})
    response["Cache-Control"] = "private, no-store"
    return response


def _plain(line: IncidentLine) -> dict[str, Any]:
    """One incident for a download, in the order of COLUMNS."""
    row = line.row
    gpus = [one for one in line.affected if one.kind == "gpu"]
    state = "withdrawn" if row.withdrawn_at else "open" if line.is_open else "resolved"
    values = (
        *(row.pk, state, row.cluster.name, "yes" if row.cluster.is_simulated else "no", row.node.name, line.scope),
        *(" ".join(str(one.index) for one in gpus), " ".join(one.device for one in gpus)),
        *(row.code, line.title, row.party, line.weight, when(line.since_ms), when(line.end_ms), int(line.lasted_s)),
        *(line.lost_gpu_seconds, f"{line.lost_gpu_seconds / 3600:.3f}", row.nodes_together, row.part_of_id),
        *(row.acknowledged_at and row.acknowledged_at.isoformat(timespec="seconds"), row.acknowledged_by),
        *(row.ticket_number, row.reported_at and row.reported_at.isoformat(timespec="seconds")),
        *(row.provider_ack_at and row.provider_ack_at.isoformat(timespec="seconds"), row.disposition),
    )
    return dict(zip(COLUMNS, values, strict=True))


def incident_of(request: HttpRequest, incident_id: int) -> Incident:
    """The incident, if the asker may see it. Raises Http404 otherwise."""
    found = None
    if incident_id < 2**63:
        visible = visible_incidents(request.access.clusters)  # type: ignore[attr-defined]
        found = visible.prefetch_related("notes").filter(pk=incident_id).first()
    if found is None:
        raise Http404("There is no such incident, or it is not yours to see.")
    return found


@honours_clusters
@require_safe
def incident(request: HttpRequest, incident_id: int) -> HttpResponse:
    """One incident."""
    return _show(request, incident_of(request, incident_id))


def _show(request: HttpRequest, found: Incident, errors: dict[str, str] | None = None) -> HttpResponse:
    """The page of an incident; with errors what was typed stands there again, 422."""
    access = request.access  # type: ignore[attr-defined]
    detail = get_detail(timezone.now(), found, access.org.pk)
    context = {
        "page": detail,
        "line": detail.line,
        "incident": found,
        "may_write": may_write(request),
        "may_audit": access.may_audit or access.may_remove_demo,
        "errors": errors or {},
        "typed": request.POST if errors else {},
        "dispositions": (("", "counts as it is"), *[(d, d) for d in Incident.Disposition.values if d]),
    }
    return render(request, "fleet/incident.html", context, status=422 if errors else 200)


@honours_clusters
@require_safe
def incident_slots(request: HttpRequest, incident_id: int) -> HttpResponse:
    """Every bad slot of an incident as runs, one line each."""
    found = incident_of(request, incident_id)
    (line,) = lines_of(timezone.now(), [found])
    _, runs = bad_runs(found, load_rules())
    rows = [
        [
            *(run.affected.label, run.affected.device, when(run.first_ms), when(run.end_ms), run.slots),
            *(str(run.verdict.state), run.verdict.nominal, run.verdict.lower, run.verdict.upper),
            *(" ".join(run.verdict.certain), " ".join(run.verdict.possible)),
        ]
        for run in list_runs(runs, {one.subject: one for one in line.affected})
    ]
    return csv_response(f"goodput-incident-{found.pk}-slots.csv", RUN_COLUMNS, rows)


# What people write


def may_write(request: HttpRequest) -> bool:
    """Whether this person may write about incidents: who may claim, and the visitor of the local mode."""
    access = request.access  # type: ignore[attr-defined]
    return bool(access.may_claim or access.may_remove_demo)


def actor_of(request: HttpRequest) -> services.Actor:
    """Who writes. Raises PermissionDenied → 403 for a role that only reads."""
    if not may_write(request):
        raise PermissionDenied("Only an owner, admin or finance member may write about incidents.")
    access = request.access  # type: ignore[attr-defined]
    name = request.user.email if request.user.is_authenticated else access.role
    return services.Actor(name, access.org, client_address(request.META))


@honours_clusters
@require_POST
def acknowledge(request: HttpRequest, incident_id: int) -> HttpResponse:
    """Mark as seen."""
    found, actor = incident_of(request, incident_id), actor_of(request)
    if services.acknowledge_incident(found.pk, actor):
        messages.success(request, "Acknowledged.")
    else:
        messages.info(request, "Somebody had acknowledged it before; that stays.")
    return redirect("incident", org_slug=actor.org.slug, incident_id=found.pk)


@honours_clusters
@require_POST
def note(request: HttpRequest, incident_id: int) -> HttpResponse:
    """Append a note."""
    found, actor = incident_of(request, incident_id), actor_of(request)
    try:
        services.add_note(found.pk, request.POST.get("text", ""), actor)
    except services.IncidentInvalid as error:
        return _show(request, found, {error.field: error.detail})
    messages.success(request, "The note is kept.")
    return redirect("incident", org_slug=actor.org.slug, incident_id=found.pk)


@honours_clusters
@require_POST
def ticket(request: HttpRequest, incident_id: int) -> HttpResponse:
    """Set the ticket's number and times, and whether the incident is excluded or disputed. Times are UTC."""
    found, actor = incident_of(request, incident_id), actor_of(request)
    changes: dict[str, Any] = {}
    errors: dict[str, str] = {}
    for name in services.TICKET_FIELDS:
        if name not in request.POST:
            continue
        text = request.POST[name].strip()
        changes[name] = text
        if name.endswith("_at"):
            changes[name] = _utc(text) if text else None
            if text and changes[name] is None:
                errors[name] = "A date and time such as 2026-11-30 07:04, UTC."
    try:
        changed = not errors and services.set_ticket(found.pk, changes, actor)
    except services.IncidentInvalid as error:
        changed, errors = False, {error.field: error.detail}
    if errors:
        return _show(request, found, errors)
    messages.success(request, "Kept." if changed else "Nothing was changed.")
    return redirect("incident", org_slug=actor.org.slug, incident_id=found.pk)


def _utc(text: str) -> datetime | None:
    """A date and time as a form sends it; without a zone it is UTC. None for what is none, or out of all bounds."""
    try:
        at = parse_datetime(text)
        at = at.replace(tzinfo=UTC) if at and at.tzinfo is None else at
        return at.astimezone(UTC) if at and 2015 <= at.year < 2100 else None
    except (ValueError, OverflowError):
        return None
