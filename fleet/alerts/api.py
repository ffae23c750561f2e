"""Alerts under /v1/: channels and the log for `admin-read`; changing them takes a session of an owner or admin."""

from __future__ import annotations

from typing import Any

from drf_spectacular.utils import extend_schema
from rest_framework import serializers as s
from rest_framework.exceptions import NotFound
from rest_framework.request import Request
from rest_framework.response import Response

from fleet import api_params as ask
from fleet import api_schemas as schema
from fleet.alerts import selectors, services
from fleet.alerts.confirming import ask_again
from fleet.alerts.errors import ChannelInvalid
from fleet.alerts.models import MOST_DIGEST_MINUTES, MOST_HOLD_S, Channel, Delivery
from fleet.alerts.selectors import LOG_COLUMNS, ChannelLine, LogFilter, LogLine
from fleet.alerts.senders import base_url
from fleet.api import ListView, OrgView
from fleet.domain.alerting.words import KINDS, SEVERITIES, WHATS
from fleet.services_incidents import Actor
from orgs.access import get_access
from orgs.addresses import client_address
from orgs.authentication import Refused
from orgs.errors import KeyRefused
from orgs.models import ApiKey, Org

NONE_SUCH = "There is no such channel or message, or it is not yours."
FILTERS: dict[str, Any] = {
    "kinds": lambda: s.ListField(child=s.ChoiceField(KINDS), required=False, help_text="Empty: all."),
    "clusters": lambda: s.ListField(child=s.CharField(), required=False, help_text="Names; empty: all."),
    "parties": lambda: s.ListField(child=s.ChoiceField(("infrastructure", "ambiguous")), required=False),
    "least_severity": lambda: s.ChoiceField(SEVERITIES, required=False),
    "hold_seconds": lambda: schema.whole(required=False, max_value=MOST_HOLD_S),
    "digest_minutes": lambda: schema.whole(required=False, max_value=MOST_DIGEST_MINUTES),
    "is_enabled": lambda: s.BooleanField(required=False),
}
SHOWN = schema.shape(
    "AlertChannel",
    id=s.IntegerField(),
    name=s.CharField(),
    kind=s.ChoiceField(Channel.Kind.values),
    is_enabled=s.BooleanField(),
    target=s.CharField(help_text="Where it goes, as far as that may be shown."),
    recipients=schema.texts(),
    unconfirmed=s.ListField(child=s.CharField(), help_text="Recipients that have not confirmed: nothing goes there."),
    template=s.DictField(allow_null=True),
    kinds=schema.texts(),
    clusters=schema.texts(),
    parties=schema.texts(),
    least_severity=s.ChoiceField(SEVERITIES),
    hold_seconds=schema.whole(),
    digest_minutes=schema.whole(),
    secrets=s.ListField(child=s.CharField(), help_text="Which secrets it has; `broken` if they can't be read."),
    state=s.ChoiceField(("working", "failing", "off", "new", "broken")),
    waiting=schema.whole(),
    failed=schema.whole(),
    last_sent_at=schema.at(),
    last_error=s.CharField(allow_blank=True),
    created_at=s.DateTimeField(),
    created_by=s.CharField(),
)
MADE = schema.shape(
    "AlertChannelMade",
    **{name: field for name, field in SHOWN._declared_fields.items()},
    signing_secret=s.CharField(allow_null=True, help_text="Of a webhook, this once."),
)
SECRET_FIELDS: dict[str, Any] = {
    "recipients": lambda: s.ListField(child=s.EmailField(), required=False),
    "url": lambda: s.CharField(required=False, help_text="Kept encrypted, never shown again."),
    "routing_key": lambda: s.CharField(required=False, help_text="PagerDuty's; never shown again."),
    "authorization": lambda: s.CharField(required=False, help_text="A header; never shown again."),
    "template": lambda: s.CharField(required=False, allow_null=True, help_text="A JSON object as text."),
}
CHANGE = schema.shape(
    "AlertChannelChange",
    name=s.CharField(required=False),
    **{name: make() for name, make in {**SECRET_FIELDS, **FILTERS}.items()},
)
NEW = schema.shape(
    "NewAlertChannel",
    name=s.CharField(),
    kind=s.ChoiceField(Channel.Kind.values),
    **{name: make() for name, make in {**SECRET_FIELDS, **FILTERS}.items()},
)
LOG_LINE = schema.shape(
    "AlertDelivery",
    id=s.IntegerField(),
    uid=s.UUIDField(help_text="The same over all attempts."),
    channel_id=s.IntegerField(),
    channel=s.CharField(),
    kind=s.ChoiceField(Channel.Kind.values),
    to=s.CharField(allow_blank=True),
    thread=s.CharField(allow_blank=True),
    what=s.ChoiceField((*WHATS, "test")),
    line=s.CharField(),
    severity=s.ChoiceField(SEVERITIES),
    changes=schema.whole(),
    status=s.ChoiceField(Delivery.Status.values),
    attempts=schema.whole(),
    answer=s.IntegerField(allow_null=True),
    error=s.CharField(allow_blank=True),
    created_at=s.DateTimeField(),
    due_at=s.DateTimeField(),
    sent_at=schema.at(),
    asked_by=s.CharField(allow_blank=True),
    again=s.IntegerField(allow_null=True),
)


def _shown(line: ChannelLine) -> dict[str, Any]:
    row = line.row
    return {
        "id": row.pk,
        **services.shown(row),
        "unconfirmed": line.unconfirmed,
        "secrets": list(line.held),
        "state": line.state,
        "waiting": line.waiting,
        "failed": line.failed,
        "last_sent_at": row.last_sent_at,
        "last_error": row.last_error,
        "created_at": row.created_at,
        "created_by": row.created_by,
    }


class AlertView(OrgView):
    """A view of the whole org's alerts: they name people and hosts of every cluster."""

    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
        """As of an org, and the scope. Raises Refused → 401, 403."""
        super().initial(request, *args, **kwargs)
        try:
            self.key.require(ApiKey.Scope.ADMIN_READ)
            if self.key.cluster:
                raise KeyRefused("A key of one cluster reads nothing of the whole org.", "missing_scope", 403)
        except KeyRefused as error:
            raise Refused(error) from error

    def handle_exception(self, exc: Exception) -> Response:
        """A refused channel is a 422 that names its field; one that is gone is a 404."""
        if isinstance(exc, ChannelInvalid):
            exc = ask.Unprocessable({exc.field: [exc.detail]})
        elif isinstance(exc, Channel.DoesNotExist | Delivery.DoesNotExist):
            exc = NotFound(NONE_SUCH)
        return super().handle_exception(exc)

    def actor(self, request: Request) -> Actor:
        """Who writes. Raises Refused → 403 for a key, and for a role that only reads."""
        if self.key.prefix != "session" or self.key.id:
            raise Refused(KeyRefused("Keys only read here: sign in as owner or admin.", "session_needed", 403))
        if not get_access(request.user, self.key.org_slug).may_write:
            raise Refused(KeyRefused("Only an owner or admin writes here.", "role_needed", 403))
        return Actor(request.user.get_username(), Org.objects.get(pk=self.key.org_id), client_address(request.META))

    def channel(self, pk: int) -> ChannelLine:
        """It. Raises NotFound → 404."""
        found = selectors.get_channel(pk)
        if found is None:
            raise NotFound(NONE_SUCH)
        return found


class Channels(AlertView, ListView):
    """Channels."""

    columns = tuple(SHOWN().fields)

    @extend_schema(operation_id="list_alert_channels", responses=schema.answers(schema.listing(SHOWN), 422, csv=True))
    def get(self, request: Request, format: str | None = None) -> Response:
        """The org's alert channels, without their secrets."""
        ask.allow(request.query_params, ())
        return self.page(request, [_shown(line) for line in selectors.list_channels()])

    @extend_schema(
        operation_id="create_alert_channel", request=NEW, responses=schema.answers(MADE, 400, 415, 422, status=201)
    )
    def post(self, request: Request, format: str | None = None) -> Response:
        """Add a channel. A webhook's signing secret is in the answer, this once."""
        ask.allow(request.query_params, ())
        actor = self.actor(request)
        channel, signing = services.create_channel(_body(request), actor)
        return Response({**_shown(self.channel(channel.pk)), "signing_secret": signing or None}, status=201)


class OneChannel(AlertView):
    """One channel."""

    @extend_schema(operation_id="get_alert_channel", responses=schema.answers(SHOWN, 404, 422))
    def get(self, request: Request, channel_id: int) -> Response:
        """A channel, without its secrets."""
        ask.allow(request.query_params, ())
        return Response(_shown(self.channel(channel_id)))

    @extend_schema(
        operation_id="change_alert_channel", request=CHANGE, responses=schema.answers(SHOWN, 400, 404, 415, 422)
    )
    def patch(self, request: Request, channel_id: int) -> Response:
        """Change some fields; a secret that is not named stays."""
        ask.allow(request.query_params, ())
        self.channel(channel_id)
        services.change_channel(channel_id, _body(request), self.actor(request))
        return Response(_shown(self.channel(channel_id)))

    @extend_schema(operation_id="remove_alert_channel", responses={204: None, **schema.answers(SHOWN, 404, 422)})
    def delete(self, request: Request, channel_id: int) -> Response:
        """Remove a channel with its secrets; the log stays."""
        ask.allow(request.query_params, ())
        self.channel(channel_id)
        services.remove_channel(channel_id, self.actor(request))
        return Response(status=204)


class TestChannel(AlertView):
    """Tests."""

    @extend_schema(
        operation_id="test_alert_channel", request=None, responses=schema.answers(LOG_LINE, 404, 422, status=202)
    )
    def post(self, request: Request, channel_id: int) -> Response:
        """Send a message that is labelled as a test; what comes of it stands in the log."""
        ask.allow(request.query_params, ())
        self.channel(channel_id)
        sent = services.send_test(channel_id, self.actor(request))
        return Response(LogLine(selectors.deliveries(LogFilter()).get(pk=sent.pk)).values(), status=202)


ADDRESS = schema.shape("AlertAddress", address=s.EmailField())


class AskAgain(AlertView):
    """Asking again."""

    @extend_schema(
        operation_id="ask_alert_address",
        request=ADDRESS,
        responses=schema.answers(SHOWN, 400, 404, 415, 422, status=202),
    )
    def post(self, request: Request, channel_id: int) -> Response:
        """Mail an address that has not confirmed the question once more, at most three times a day."""
        ask.allow(request.query_params, ())
        self.channel(channel_id)
        actor, body = self.actor(request), _body(request)
        if set(body) != {"address"} or not isinstance(body["address"], str):
            ask.refuse("address", "One of the channel's `unconfirmed` addresses.")
        ask_again(channel_id, body["address"], actor, base_url())
        return Response(_shown(self.channel(channel_id)), status=202)


class Deliveries(AlertView, ListView):
    """The log."""

    columns = LOG_COLUMNS

    @extend_schema(
        operation_id="list_alert_deliveries",
        parameters=[
            schema.param("status", "Only these.", enum=Delivery.Status.values),
            schema.param("channel_id", "Only this channel's.", int),
            schema.param("thread", "Only of this thread, such as incident-7."),
            *schema.PAGING,
        ],
        responses=schema.answers(schema.listing(LOG_LINE), 422, csv=True),
    )
    def get(self, request: Request, format: str | None = None) -> Response:
        """What was sent to whom and what came of it, newest first; kept for 90 days."""
        params = request.query_params
        ask.allow(params, ("status", "channel_id", "thread", "cursor", "page_size"))
        after, size = self.paging(request, 1)
        wanted = LogFilter(
            status=ask.choice(params, "status", Delivery.Status.values),
            channel=ask.number(params, "channel_id"),
            thread=ask.text(params, "thread"),
            before=after[0] if after else None,
        )
        rows = list(selectors.deliveries(wanted)[: size + 1])
        following = ask.cursor_for(rows[size - 1].pk) if len(rows) > size else None
        return self.page(request, [LogLine(row).values() for row in rows[:size]], following)


class SendAgain(AlertView):
    """Sending again."""

    @extend_schema(
        operation_id="send_alert_again", request=None, responses=schema.answers(LOG_LINE, 404, 422, status=202)
    )
    def post(self, request: Request, delivery_id: int) -> Response:
        """Send something once more, as a new message."""
        ask.allow(request.query_params, ())
        actor = self.actor(request)
        sent = services.send_again(delivery_id, actor)
        return Response(LogLine(selectors.deliveries(LogFilter()).get(pk=sent.pk)).values(), status=202)


def _body(request: Request) -> dict[str, Any]:
    body = request.data
    if not isinstance(body, dict):
        ask.refuse("body", "A JSON object.")
    return body
