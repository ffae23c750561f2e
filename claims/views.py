"""Pages of contracts and reports: parse, ask one selector or service, render."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import datetime
from functools import wraps
from typing import Any

from django.contrib import messages
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseBase
from django.shortcuts import redirect, render
from django.utils import timezone
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from claims import selectors
from claims.anchors.making import newest_note, note_ticket
from claims.catalog import load_catalog
from claims.domain.rows import EXCLUSIONS, KINDS, TICKET
from claims.downloads import month_csv, month_json
from claims.errors import ClaimsError, NotThere
from claims.forms import contract_from_form, form_of
from claims.inputs import running_month
from claims.models import Contract, Overlay, SignedCheckpoint
from claims.scope import may_see
from claims.selectors import Month, get_month, month_of, months_before
from claims.services import Actor, add_contract, add_overlay, enter_invoice, get_contract, withdraw_overlay
from claims.services_reports import draft_report, issue_report
from claims.tickets import tickets_due
from orgs.access import Access
from orgs.addresses import client_address
from orgs.middleware import honours_clusters

MONTH = re.compile(r"20\d\d-(0[1-9]|1[0-2])")


def access_of(request: HttpRequest) -> Access:
    """What OrgMiddleware found."""
    access: Access = request.access  # type: ignore[attr-defined]
    return access


def actor_of(request: HttpRequest, allowed: bool, who: str) -> Actor:
    """Whoever writes. Raises PermissionDenied → 403."""
    if not allowed:
        raise PermissionDenied(f"Only {who} may do this.")
    access = access_of(request)
    name = request.user.email if request.user.is_authenticated else access.role
    return Actor(name, access.org, client_address(request.META))


def writer(request: HttpRequest) -> Actor:
    """Owner or admin."""
    return actor_of(request, access_of(request).may_write, "an owner or admin")


def claimant(request: HttpRequest) -> Actor:
    """Owner, admin or finance."""
    return actor_of(request, access_of(request).may_claim, "an owner, admin or finance person")


def not_there_is_404(view: Callable[..., HttpResponseBase]) -> Callable[..., HttpResponseBase]:
    """NotThere becomes the page for it."""

    @wraps(view)
    def run(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        try:
            return view(request, *args, **kwargs)
        except NotThere as error:
            raise Http404(str(error)) from error

    return run


def seen(request: HttpRequest, contract: Contract) -> Contract:
    """The contract, for whoever may see it. Raises PermissionDenied → 403 for people of other clusters."""
    if not may_see(contract, access_of(request).clusters):
        raise PermissionDenied("You may see some clusters of this org only, and this contract has nodes outside them.")
    return contract


def chosen_month(request: HttpRequest, one: Contract, now: datetime | None = None) -> str:
    """The month of the URL; the contract's running one, in its zone and by its billing day, where it names none."""
    asked = request.GET.get("month", "") or request.POST.get("month", "")
    return asked if MONTH.fullmatch(asked) else running_month(one, now or timezone.now())


@honours_clusters
@require_safe
def contracts(request: HttpRequest) -> HttpResponse:
    """`sla/`: every contract with its two numbers."""
    now = timezone.now()
    found = [
        get_month(one, chosen_month(request, one, now), now)
        for one in selectors.list_contracts(access_of(request).clusters)
    ]
    if len(found) == 1 and "all" not in request.GET:
        return redirect("sla_contract", org_slug=access_of(request).org.slug, contract_id=found[0].contract.pk)
    shown = {one.month for one in found} or {month_of(now)}
    month = shown.pop() if len(shown) == 1 else ""  # contracts of other zones or billing days are in other periods
    newest = max([month_of(now), *(running_month(one.contract, now) for one in found)])
    context = {"months": found, "month": month, "choices": months_before(newest, selectors.MONTHS_SHOWN)}
    return render(request, "claims/contracts.html", {**context, "may_write": access_of(request).may_write})


@honours_clusters
@require_safe
@not_there_is_404
def contract(request: HttpRequest, contract_id: int) -> HttpResponse:
    """`sla/<id>/`: one contract's month."""
    now = timezone.now()
    one = seen(request, get_contract(contract_id))
    month = get_month(one, chosen_month(request, one, now), now)
    context = {
        "m": month,
        "choices": months_before(running_month(one, now), selectors.MONTHS_SHOWN),
        "overlays": selectors.list_overlays(one),
        "versions": list(one.versions.order_by("-number")),
        "deadlines": selectors.deadline_board(now, one),
        "tickets": tickets_due(one, now),
        "checkpoint": newest_note(),
        "kinds": KINDS,
        "exclusions": EXCLUSIONS,
        "may_write": access_of(request).may_write,
        "may_claim": access_of(request).may_claim,
        "terms": month.version.load() if month.version else None,
    }
    return render(request, "claims/contract.html", context)


def month_from(request: HttpRequest, contract_id: int) -> Month:
    """The month that a download asks for. Raises Http404 where there is none."""
    one, now = seen(request, get_contract(contract_id)), timezone.now()
    found = get_month(one, chosen_month(request, one, now), now)
    if found.document is None:
        raise Http404(found.problem)
    return found


@honours_clusters
@require_safe
@not_there_is_404
def contract_json(request: HttpRequest, contract_id: int) -> HttpResponse:
    """The month's result.json."""
    return month_json(month_from(request, contract_id))


@honours_clusters
@require_safe
@not_there_is_404
def contract_csv(request: HttpRequest, contract_id: int) -> HttpResponse:
    """What counted, one line an incident."""
    return month_csv(month_from(request, contract_id))


@honours_clusters
@require_safe
def catalog(request: HttpRequest) -> HttpResponse:
    """`sla/catalog/`: providers' published terms, as read."""
    return render(request, "claims/catalog.html", {"offers": load_catalog(), "may_write": access_of(request).may_write})


@require_http_methods(["GET", "HEAD", "POST"])
def new_contract(request: HttpRequest) -> HttpResponse:
    """`sla/new/`: a contract from a catalogue entry, or from nothing."""
    entry_id = request.GET.get("entry", "") or request.POST.get("entry", "")
    entry = next((one for one in load_catalog() if one.id == entry_id and not one.not_expressible), None)
    values, error, status = form_of(entry, request.POST or None), None, 200
    if request.method == "POST":
        actor = writer(request)
        try:
            terms, entitled_from = contract_from_form(request.POST, entry)
            cluster = request.POST.get("cluster", "").strip()[:256]
            version = add_contract(terms, actor, cluster=cluster, entitled_from=entitled_from)
        except ClaimsError as problem:
            error, status = problem, 422
        else:
            messages.success(request, f"{version} is kept. Its terms were copied; confirm them at their source.")
            return redirect("sla_contract", org_slug=actor.org.slug, contract_id=version.contract_id)
    context = {"entry": entry, "values": values, "error": error, "may_write": access_of(request).may_write}
    return render(request, "claims/new_contract.html", context, status=status)


def back(request: HttpRequest, one: Contract) -> HttpResponse:
    """To the contract's page of the month that the form named."""
    response = redirect("sla_contract", org_slug=access_of(request).org.slug, contract_id=one.pk)
    response["Location"] += f"?month={chosen_month(request, one)}"
    return response


@honours_clusters
@require_POST
@not_there_is_404
def add_row(request: HttpRequest, contract_id: int) -> HttpResponse:
    """A dated row, with its author. Times without an offset are UTC."""
    actor, one, data = writer(request), seen(request, get_contract(contract_id)), request.POST
    try:
        notice = data.get("notice_h", "").strip()
        add_overlay(
            actor,
            contract=one,
            kind=data.get("kind", ""),
            resource=data.get("resource", ""),
            starts_at=_utc(data.get("starts_at", "")),
            ends_at=_utc(data.get("ends_at", "")),
            acknowledged_at=_utc(data.get("acknowledged_at", "")),
            notice_s=int(notice) * 3600 if notice.isascii() and notice.isdigit() and len(notice) < 6 else None,
            reference=data.get("reference", "").strip(),
            provider_word="provider_word" in data,
        )
    except ClaimsError as error:
        messages.error(request, str(error))
    else:
        messages.success(request, "The row is kept, with your name.")
        if data.get("kind") == TICKET:
            note_carried(request, one.name)
    return back(request, one)


def note_carried(request: HttpRequest, provider: str) -> None:
    """A ticket whose text carried the log's checkpoint is an outside anchor from now on."""
    size, reference = request.POST.get("checkpoint", ""), request.POST.get("reference", "")
    if not (size.isascii() and size.isdigit() and len(size) < 16):
        return
    note = SignedCheckpoint.objects.filter(size=int(size)).first()
    if note is not None:
        text = f"Ticket {reference} with {provider}\n\n{note.note}"
        note_ticket(note.size, at=timezone.now(), provider=provider, reference=reference, text=text)


def _utc(text: str) -> str:
    text = text.strip()
    return f"{text}Z" if re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d(:\d\d)?", text) else text


@honours_clusters
@require_POST
@not_there_is_404
def withdraw_row(request: HttpRequest, contract_id: int, overlay_id: int) -> HttpResponse:
    """Take a row back; it stays listed."""
    actor, one = writer(request), seen(request, get_contract(contract_id))
    row = Overlay.objects.filter(pk=overlay_id, contract=one).first()
    if row is None:
        raise NotThere("There is no such row.")
    withdraw_overlay(row, actor)
    return back(request, one)


@honours_clusters
@require_POST
@not_there_is_404
def set_invoice(request: HttpRequest, contract_id: int) -> HttpResponse:
    """The month's fee per unit: lines `unit = amount`."""
    actor, one = claimant(request), seen(request, get_contract(contract_id))
    fees = {}
    for line in request.POST.get("fees", "").splitlines():
        unit, found, amount = line.rpartition("=")
        if found:
            fees[unit.strip()] = amount.strip()
    try:
        enter_invoice(one, chosen_month(request, one), actor, fees=fees)
    except ClaimsError as error:
        messages.error(request, str(error))
    return back(request, one)


@honours_clusters
@require_POST
@not_there_is_404
def issue(request: HttpRequest, contract_id: int) -> HttpResponse:
    """Freeze a month, or draft it where that is asked."""
    actor, one = writer(request), seen(request, get_contract(contract_id))
    month = chosen_month(request, one)
    try:
        if "draft" in request.POST:
            report = draft_report(one, month)
        else:
            report = issue_report(one, month, actor, reason=request.POST.get("reason", ""))
    except ClaimsError as error:
        messages.error(request, str(error))
        return back(request, one)
    messages.success(request, f"{report} is {report.get_status_display().lower()}.")
    return redirect("report", org_slug=actor.org.slug, report_id=report.pk)
