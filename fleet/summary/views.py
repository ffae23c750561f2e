"""The provider's console: `/provider/`, for staff; to anybody else it is not there."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from django.contrib import messages
from django.contrib.auth.views import redirect_to_login
from django.core.exceptions import PermissionDenied
from django.http import FileResponse, Http404, HttpRequest, HttpResponse, HttpResponseBase, JsonResponse
from django.shortcuts import redirect, render
from django.utils import timezone
from django.views.decorators.http import require_http_methods, require_POST, require_safe
from kombu.exceptions import OperationalError

from fleet.summary import services, tasks
from fleet.summary.forms import NewOrgForm
from fleet.summary.models import Export
from fleet.summary.selectors import COLUMNS, OrgRow, failed_batches, last_beat, list_org_rows, totals
from orgs import mails, second_factor, viewing
from orgs.addresses import client_address
from orgs.errors import OrgInvalid
from orgs.invitations import link_of, mail_is_configured
from orgs.middleware import ask_for_second_factor, sensitive
from orgs.models import Org
from orgs.schemas import versions_of
from orgs.selectors import (
    AUDIT_HEAD,
    AuditFilter,
    action_groups,
    audit_page,
    audit_rows,
    list_invitations,
    list_keys,
    list_members,
)
from orgs.services import record, set_org_status
from orgs.sheets import csv_response
from orgs.views_settings import base_url, install_lines

SAFE = ("GET", "HEAD", "OPTIONS")


def staff_only(view: Callable[..., HttpResponseBase]) -> Callable[..., HttpResponseBase]:
    """Provider staff; nobody in particular is led to the login, anybody else gets 404. Answers are not kept."""

    @functools.wraps(view)
    def guarded(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        if not request.user.is_authenticated:
            return redirect_to_login(request.get_full_path())
        if not (request.user.is_active and request.user.is_staff):
            raise Http404
        if second_factor.is_missing(request.user):
            return ask_for_second_factor(request)
        if request.method not in SAFE and viewing.current(request) and view.__name__ not in ("end_view", "begin_view"):
            raise PermissionDenied("You are viewing as a customer. End the view to change anything.")
        response = view(request, *args, **kwargs)
        if not response.has_header("Cache-Control"):
            response["Cache-Control"] = "private, no-store"
        return response

    return guarded


def who(request: HttpRequest) -> dict[str, Any]:
    """Who acts and from where, as services take it."""
    return {"actor": request.user.email, "address": client_address(request.META)}  # type: ignore[union-attr]


def org_of(org_id: int) -> Org:
    """Raises Http404."""
    found: Org | None = Org.objects.filter(pk=org_id).first()
    if found is None:
        raise Http404("There is no such org.")
    return found


@staff_only
@require_safe
def overview(request: HttpRequest) -> HttpResponse:
    """Every org, worst first."""
    now = timezone.now()
    search = request.GET.get("q", "").replace("\x00", "")[:80]
    rows = list_org_rows(now, search)
    beat_at, is_late = last_beat(now)
    context = {
        "section": "overview",
        "rows": rows,
        "totals": totals(rows),
        "suspended": sum(row.org.status != Org.Status.ACTIVE for row in rows),
        "search": search,
        "now": now,
        "beat_at": beat_at,
        "is_late": is_late,
    }
    return render(request, "provider/overview.html", context)


@staff_only
@require_safe
def orgs_csv(request: HttpRequest) -> HttpResponse:
    """What the overview shows."""
    rows = list_org_rows(timezone.now(), request.GET.get("q", "").replace("\x00", "")[:80])
    return csv_response("goodput-orgs.csv", COLUMNS, [row.values() for row in rows])


@staff_only
@require_safe
def orgs_json(request: HttpRequest) -> JsonResponse:
    """What the overview shows."""
    rows = list_org_rows(timezone.now(), request.GET.get("q", "").replace("\x00", "")[:80])
    return JsonResponse({"orgs": [dict(zip(COLUMNS, row.values(), strict=True)) for row in rows]})


@sensitive
@staff_only
@require_http_methods(["GET", "HEAD", "POST"])
def new_org(request: HttpRequest) -> HttpResponse:
    """Make a customer; then show, this once, its key with the install line and the link of its first owner."""
    form = NewOrgForm(request.POST if request.method == "POST" else None)
    if request.method == "POST" and form.is_valid():
        data = form.cleaned_data
        try:
            org, key, token, invitation = services.create_customer(
                data["slug"],
                data["name"],
                data["email"],
                cluster=data["cluster"],
                base_url=base_url(request),
                **who(request),
            )
        except OrgInvalid as error:
            form.add_error("slug" if error.code in ("invalid_slug", "slug_taken") else None, error.detail)
        else:
            context = {
                "section": "overview",
                "made": org,
                "key": key,
                "token": token,
                "invitation": invitation,
                "link": link_of(invitation),
                "is_mailed": mail_is_configured() and mails.send_invitation(invitation),
                **install_lines(request, key, token),
            }
            return render(request, "provider/org_made.html", context)
    context = {"section": "overview", "form": form}
    return render(request, "provider/org_new.html", context, status=422 if request.method == "POST" else 200)


@staff_only
@require_safe
def org_page(request: HttpRequest, org_id: int) -> HttpResponse:
    """One customer: its state, its people, keys and exports, and what may be done with it."""
    org, now = org_of(org_id), timezone.now()
    row = next((row for row in list_org_rows(now, org.slug) if row.org.pk == org.pk), OrgRow(org, None, True))
    keys = [(key, key.state(now)) for key in list_keys(org)]
    waiting = [one for one in list_invitations(org) if one.state(now) == "open"]
    context = {
        "section": "overview",
        "row": row,
        "one": org,
        "summary": row.summary,
        "version": versions_of([org])[0],
        "now": now,
        "members": list_members(org),
        "invitations": [(one, "" if mail_is_configured() else link_of(one)) for one in waiting],
        "keys": [pair for pair in keys if pair[1] in ("active", "rolled")],
        "keys_over": sum(state in ("expired", "revoked") for _, state in keys),
        "exports": Export.objects.filter(org_id=org.pk)[:10],
        "failed": failed_batches(org),
        "asking": row.asking,
    }
    return render(request, "provider/org.html", context)


@sensitive
@staff_only
@require_POST
def set_status(request: HttpRequest, org_id: int) -> HttpResponse:
    """Suspend or reactivate."""
    org, status = org_of(org_id), request.POST.get("status", "")
    if status not in Org.Status.values:
        raise Http404("There is no such status.")
    set_org_status(org, status, **who(request))
    done = "is active again" if status == Org.Status.ACTIVE else "is suspended: no page and no key opens it"
    messages.success(request, f"{org.slug} {done}.")
    return redirect("provider_org", org_id=org.pk)


@sensitive
@staff_only
@require_POST
def start_export(request: HttpRequest, org_id: int) -> HttpResponse:
    """Ask for an archive of everything."""
    org = org_of(org_id)
    export = services.request_export(org, **who(request))
    try:
        tasks.export_org.apply_async(args=[export.pk], expires=60, retry=False)
    except OperationalError:  # the broker is away; the next beat sends it again
        messages.warning(request, "The worker can't be reached right now. The export waits for it.")
    else:
        messages.success(request, "The export is being written. It stays here for a week.")
    return redirect("provider_org", org_id=org.pk)


@staff_only
@require_safe
def download(request: HttpRequest, file_name: str) -> HttpResponseBase:
    """An archive that is done."""
    export = Export.objects.filter(file_name=f"{file_name}.zip", state=Export.State.DONE).first()
    path = services.export_folder() / export.file_name if export else None
    if export is None or path is None or not path.exists():
        raise Http404("There is no such export, or its week is over.")
    if request.method == "GET":
        org = Org.objects.filter(pk=export.org_id).first()
        record("org.export_read", org=org, target=export.org_slug, after={"sha256": export.sha256}, **who(request))
    name = f"goodput-{export.org_slug}-{export.requested_at:%Y%m%d-%H%M}.zip"
    return FileResponse(path.open("rb"), as_attachment=True, filename=name, content_type="application/zip")


@sensitive
@staff_only
@require_POST
def delete(request: HttpRequest, org_id: int) -> HttpResponse:
    """Delete a suspended org, after its short name was typed."""
    org = org_of(org_id)
    try:
        services.delete_customer(org, request.POST.get("slug", ""), **who(request))
    except OrgInvalid as error:
        messages.error(request, error.detail)
        return redirect("provider_org", org_id=org.pk)
    messages.success(request, f"{org.slug} is deleted, with its schema. A tombstone keeps its id.")
    return redirect("provider")


@staff_only
@require_POST
def begin_view(request: HttpRequest, org_id: int) -> HttpResponse:
    """See an org as its viewers do, for half an hour."""
    org = org_of(org_id)
    if org.status != Org.Status.ACTIVE:
        messages.error(request, f"{org.slug} is suspended; its pages are shut.")
        return redirect("provider_org", org_id=org.pk)
    viewing.begin(request, org)
    return redirect("fleet", org_slug=org.slug)


@staff_only
@require_POST
def end_view(request: HttpRequest) -> HttpResponse:
    """Stop to see as a customer."""
    view = viewing.current(request)
    viewing.end(request)
    return redirect("provider_org", org_id=view.org_id) if view else redirect("provider")


@staff_only
@require_safe
def audit(request: HttpRequest) -> HttpResponse:
    """Who did what, in every org and on the server."""
    wanted = AuditFilter.of(request.GET)
    entries, following = audit_page(None, wanted)
    context = {
        "section": "audit",
        "trail": entries,
        "following": following,
        "filter": wanted,
        "groups": action_groups(),
        "is_provider": True,
    }
    return render(request, "provider/audit.html", context)


@staff_only
@require_safe
def audit_csv(request: HttpRequest) -> HttpResponse:
    """What the page shows, all pages of it."""
    return csv_response("goodput-audit.csv", AUDIT_HEAD, audit_rows(None, AuditFilter.of(request.GET)))
