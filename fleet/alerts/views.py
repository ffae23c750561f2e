"""Settings → Alerts: channels, one channel, the log of what was sent to whom. Parse, call a service, answer."""

from __future__ import annotations

from typing import Any

from django.contrib import messages
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils import timezone
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from fleet.alerts import services
from fleet.alerts.confirming import ask_again
from fleet.alerts.errors import ChannelInvalid
from fleet.alerts.forms import ChannelForm
from fleet.alerts.models import Channel, Delivery
from fleet.alerts.selectors import (
    LOG_COLUMNS,
    MOST_IN_DOWNLOAD,
    ChannelLine,
    LogFilter,
    LogLine,
    deliveries,
    get_channel,
    list_channels,
    log_page,
)
from fleet.alerts.senders import base_url
from fleet.models import Cluster
from fleet.services_incidents import Actor
from orgs.addresses import client_address
from orgs.invitations import mail_is_configured
from orgs.middleware import sensitive
from orgs.sheets import csv_response

IN_CHANNEL = 10
EVERY_SECONDS, EVERY_SECONDS_MOVING = 15, 3
TRY_IT = "Send a test to see it work."
NEXT = {Channel.Kind.EMAIL: "Each address gets a mail with a link now; until it confirms, no alert goes there."}
ABOUT = {
    Channel.Kind.EMAIL: "A plain mail to each address; one conversation per incident.",
    Channel.Kind.WEBHOOK: "Signed JSON to a URL of yours, by a template of yours.",
    Channel.Kind.SLACK: "An incoming webhook; Mattermost, Rocket.Chat and Zulip take the same.",
    Channel.Kind.PAGERDUTY: "Events API v2: triggers, acknowledges and resolves.",
    Channel.Kind.ALERTMANAGER: "API v2, sent again while it goes on.",
}


def _actor(request: HttpRequest) -> Actor:
    """Who changes something. Raises PermissionDenied → 403 for whoever may not."""
    access = request.access  # type: ignore[attr-defined]
    if not access.may_write:
        raise PermissionDenied("Only an owner or admin may change this.")
    return Actor(request.user.get_username(), access.org, client_address(request.META))


def _channel(channel_id: int) -> ChannelLine:
    found = get_channel(channel_id)
    if found is None:
        raise Http404("There is no such channel.")
    return found


def _render(request: HttpRequest, template: str, context: dict[str, Any], status: int = 200) -> HttpResponse:
    return render(request, f"fleet/alerts/{template}", {"section": "alerts", **context}, status=status)


@require_safe
def channels(request: HttpRequest) -> HttpResponse:
    """The org's channels."""
    kinds = [(kind, ABOUT[kind]) for kind in Channel.Kind]
    return _render(request, "channels.html", {"channels": list_channels(), "kinds": kinds})


@sensitive
@require_http_methods(["GET", "HEAD", "POST"])
def new_channel(request: HttpRequest, kind: str) -> HttpResponse:
    """The form of a new channel; POST makes it, and shows a webhook's signing secret once."""
    actor = _actor(request)
    if kind not in Channel.Kind.values:
        raise Http404("There is no such kind of channel.")
    form = ChannelForm(kind, request.POST or None)
    if request.method == "POST" and form.is_valid():
        try:
            channel, signing = services.create_channel({**form.given(), "kind": kind}, actor)
        except ChannelInvalid as error:
            _blame(form, error)
        else:
            messages.success(request, f"{channel.name} is made. {NEXT.get(Channel.Kind(channel.kind), TRY_IT)}")
            if signing:
                return _secret(request, channel, signing)
            return redirect("alert_channel", org_slug=actor.org.slug, channel_id=channel.pk)
    status = 422 if request.method == "POST" else 200
    return _render(request, "new.html", {"form": form, "kind": Channel.Kind(kind), **_choices()}, status)


def _choices() -> dict[str, Any]:
    names = Cluster.objects.filter(removed_at=None).values_list("name", flat=True)
    return {"clusters": list(names[:500]), "has_mail": mail_is_configured(), "about": ABOUT}


def _blame(form: ChannelForm, error: ChannelInvalid) -> None:
    form.add_error(error.field if error.field in form.fields else None, error.detail)


def _secret(request: HttpRequest, channel: Channel, signing: str) -> HttpResponse:
    """The page with a new signing secret, shown this once; it is kept nowhere else, not even in a session."""
    response = _render(request, "secret.html", {"channel": channel, "signing": signing})
    response["Cache-Control"] = "private, no-store"
    return response


@sensitive
@require_http_methods(["GET", "HEAD", "POST"])
def channel(request: HttpRequest, channel_id: int) -> HttpResponse:
    """One channel: its form, its last messages; POST changes it."""
    line = _channel(channel_id)
    form = ChannelForm(line.row.kind, channel=line.row, held=line.held)
    if request.method == "POST":
        actor = _actor(request)
        form = ChannelForm(line.row.kind, request.POST, channel=line.row, held=line.held)
        if form.is_valid():
            try:
                services.change_channel(line.row.pk, form.given(), actor)
            except ChannelInvalid as error:
                _blame(form, error)
            else:
                messages.success(request, "Kept.")
                return redirect("alert_channel", org_slug=actor.org.slug, channel_id=line.row.pk)
    page = log_page(LogFilter(channel=line.row.pk), timezone.now(), IN_CHANNEL)
    context = {"line": line, "form": form, "page": page, "every": _every(page), "in_channel": True, **_choices()}
    if _is_part(request):
        return _render(request, "_log.html", context)
    return _render(request, "channel.html", context, 422 if request.method == "POST" else 200)


def _every(page: Any) -> int:
    return EVERY_SECONDS_MOVING if page.is_moving else EVERY_SECONDS


def _is_part(request: HttpRequest) -> bool:
    return bool(request.htmx and not request.htmx.history_restore_request)  # type: ignore[attr-defined]


@require_POST
def test_channel(request: HttpRequest, channel_id: int) -> HttpResponse:
    """Send a test."""
    actor, line = _actor(request), _channel(channel_id)
    try:
        services.send_test(line.row.pk, actor)
        messages.success(request, "A test is on its way; what comes of it appears below within seconds.")
    except ChannelInvalid as error:
        messages.error(request, error.detail)
    return redirect("alert_channel", org_slug=actor.org.slug, channel_id=line.row.pk)


@require_POST
def ask_address(request: HttpRequest, channel_id: int) -> HttpResponse:
    """Ask an address once more whether it wants the alerts."""
    actor, line = _actor(request), _channel(channel_id)
    try:
        ask_again(line.row.pk, request.POST.get("address", "")[:254], actor, base_url())
        messages.success(request, "The question goes out again.")
    except ChannelInvalid as error:
        messages.error(request, error.detail)
    return redirect("alert_channel", org_slug=actor.org.slug, channel_id=line.row.pk)


@sensitive
@require_POST
def roll_channel(request: HttpRequest, channel_id: int) -> HttpResponse:
    """A new signing secret for a webhook, shown once."""
    actor, line = _actor(request), _channel(channel_id)
    try:
        rolled, signing = services.roll_signing(line.row.pk, actor)
    except ChannelInvalid as error:
        messages.error(request, error.detail)
        return redirect("alert_channel", org_slug=actor.org.slug, channel_id=line.row.pk)
    return _secret(request, rolled, signing)


@require_POST
def remove_channel(request: HttpRequest, channel_id: int) -> HttpResponse:
    """Remove a channel with its secrets."""
    actor, line = _actor(request), _channel(channel_id)
    services.remove_channel(line.row.pk, actor)
    messages.success(request, f"{line.row.name} is removed. The log of what it was sent stays.")
    return redirect("alerts", org_slug=actor.org.slug)


@require_safe
def log(request: HttpRequest) -> HttpResponse:
    """What was sent to whom, and what came of it."""
    wanted = LogFilter.of(request.GET)
    page = log_page(wanted, timezone.now())
    names = list(Channel.objects.order_by("name").values_list("pk", "name"))
    context = {
        "page": page,
        "wanted": wanted,
        "every": _every(page),
        "names": names,
        "statuses": Delivery.Status.values,
        "query": _query(request),
    }
    return _render(request, "_log.html" if _is_part(request) else "log.html", context)


def _query(request: HttpRequest) -> str:
    """The filters of the URL, without the page."""
    kept = request.GET.copy()
    kept.pop("before", None)
    return kept.urlencode()


@require_safe
def log_csv(request: HttpRequest) -> HttpResponse:
    """What the log shows, all pages."""
    rows = deliveries(LogFilter.of(request.GET))[:MOST_IN_DOWNLOAD]
    lines = [[_plain(value) for value in LogLine(row).values().values()] for row in rows]
    return csv_response("goodput-alert-log.csv", LOG_COLUMNS, lines)


def _plain(value: Any) -> Any:
    return value.isoformat(timespec="seconds") if hasattr(value, "isoformat") else value


@require_POST
def send_again(request: HttpRequest, delivery_id: int) -> HttpResponse:
    """Send something once more."""
    actor = _actor(request)
    try:
        sent = services.send_again(delivery_id, actor) if delivery_id < 2**63 else None
    except Delivery.DoesNotExist:
        sent = None
    except ChannelInvalid as error:
        messages.error(request, error.detail)
        return redirect("alert_log", org_slug=actor.org.slug)
    if sent is None:
        raise Http404("There is no such message.")
    messages.success(request, "It goes out again within seconds.")
    return redirect("alert_channel", org_slug=actor.org.slug, channel_id=sent.channel_id)
