"""Addresses confirm that they want alerts: whoever sets up a channel can't have a stranger mailed by it.

The link carries org, channel and address under this server's signature, for a week, and needs no login: who reads the
mail is who is asked. A link that is over, forged or of another time gives one and the same answer.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from django.core import signing
from django.db import transaction
from django.urls import reverse
from django.utils import timezone
from django_tenants.utils import schema_context, tenant_context

from fleet.alerts.errors import ChannelInvalid
from fleet.alerts.models import Channel, Delivery, Recipient
from fleet.domain.alerting.message import CONFIRM, Message, rfc3339
from fleet.services_incidents import Actor
from orgs.models import Org
from orgs.services import record

SALT = "goodput.alerts.confirm"
LASTS = timedelta(days=7)
ASK_AGAIN_AFTER = timedelta(minutes=10)
MOST_ASKED_A_DAY = 3


@dataclass(frozen=True)
class Question:
    """What a link asks: whether `address` wants the alerts of a channel of an org."""

    org: str
    channel: str
    address: str
    is_confirmed: bool


def path_for(org_id: int, channel_id: int, address: str) -> str:
    """The link's path."""
    return reverse("alert_confirm", args=[signing.dumps([org_id, channel_id, address], salt=SALT)])


def keep_addresses(channel: Channel, actor: Actor, base_url: str) -> None:
    """After a channel's addresses changed: ask the new ones, forget those that are gone. Runs in a transaction."""
    channel.addresses.exclude(address__in=channel.recipients).delete()
    known = set(channel.addresses.values_list("address", flat=True))
    for address in channel.recipients:
        if address not in known:
            Recipient.objects.create(channel=channel, address=address)
            _ask(channel, address, actor, base_url)


def ask_again(pk: int, address: str, actor: Actor, base_url: str) -> None:
    """Mail the question once more. Raises ChannelInvalid where it was asked just now, too often, or is answered."""
    now = timezone.now()
    with transaction.atomic():
        channel = Channel.objects.select_for_update().get(pk=pk, removed_at=None)
        row = channel.addresses.filter(address=address, confirmed_at=None).first()
        if row is None:
            raise ChannelInvalid("recipients", "There is nothing to confirm.")
        asked = channel.deliveries.filter(
            what=CONFIRM, message__facts__to=address, created_at__gt=now - timedelta(days=1)
        ).count()
        if asked >= MOST_ASKED_A_DAY or (asked and row.asked_at > now - ASK_AGAIN_AFTER):
            raise ChannelInvalid("recipients", f"It was asked just now: at most {MOST_ASKED_A_DAY} times a day.")
        channel.addresses.filter(pk=row.pk).update(asked_at=now)
        _ask(channel, address, actor, base_url)


def _ask(channel: Channel, address: str, actor: Actor, base_url: str) -> None:
    now = timezone.now()
    message = Message(
        org=actor.org.slug,
        key=f"confirm-{channel.pk}",
        kind="incident",
        what=CONFIRM,
        severity="info",
        title=f"Alerts of {actor.org.slug}",
        text=(
            f"{actor.name} wants alerts about the GPU fleet of {actor.org.name} to be mailed to this address"
            f" ({channel.name}). Open the link and confirm it if that is right. Otherwise do nothing: without your"
            " answer nothing more is sent here."
        ),
        began_at=rfc3339(now),
        at=rfc3339(now),
        url=base_url + path_for(actor.org.pk, channel.pk, address),
        facts={"to": address},
    )
    Delivery.objects.create(
        channel=channel,
        what=CONFIRM,
        message=message.plain(),
        sent_to=address,
        due_at=now,
        asked_by=actor.name[:254],
    )


def confirmed(channel: Channel) -> list[str]:
    """The addresses of a channel that may be mailed."""
    return list(
        channel.addresses.filter(address__in=channel.recipients)
        .exclude(confirmed_at=None)
        .values_list("address", flat=True)
    )


def read_link(token: str) -> Question | None:
    """What this link asks; None for one that is over or was never made."""
    return _open(token, None)


def confirm(token: str, now: datetime) -> Question | None:
    """Confirm the link's address; None for one that is over. A second time changes nothing."""
    return _open(token, now)


def _open(token: str, now: datetime | None) -> Question | None:
    try:
        org_id, channel_id, address = signing.loads(token, salt=SALT, max_age=LASTS)
    except (signing.BadSignature, ValueError, TypeError):
        return None
    with schema_context("public"):
        org = Org.objects.filter(pk=org_id, status=Org.Status.ACTIVE).first()
    if org is None:
        return None
    with tenant_context(org), transaction.atomic():
        row = (
            Recipient.objects.select_related("channel")
            .filter(channel_id=channel_id, channel__removed_at=None, address=address)
            .first()
        )
        if row is None:
            return None
        if now is not None and Recipient.objects.filter(pk=row.pk, confirmed_at=None).update(confirmed_at=now):
            target = f"channel {channel_id}"
            record("alert_channel.confirmed", actor=address, org=org, target=target, after={"recipient": address})
            row.confirmed_at = now
        return Question(org.name, row.channel.name, address, row.confirmed_at is not None)
