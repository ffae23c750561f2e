"""Everything that people change of alerts: channels, tests, sending again. A transaction and an audit entry each."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.db import transaction
from django.utils import timezone

from fleet.alerts.channels import SECRETS, checked, new_signing_secret
from fleet.alerts.confirming import confirmed, keep_addresses
from fleet.alerts.errors import ChannelInvalid
from fleet.alerts.models import Channel, Delivery
from fleet.alerts.sealing import SealBroken, seal, unseal
from fleet.alerts.senders import base_url
from fleet.domain.alerting.message import CONFIRM, Message, rfc3339
from fleet.services_incidents import Actor
from orgs.services import record

MOST_CHANNELS = 50
MOST_TESTS_WAITING = 3


def create_channel(given: Mapping[str, Any], actor: Actor) -> tuple[Channel, str]:
    """(a new channel, its signing secret if it is a webhook: shown this once). Raises ChannelInvalid."""
    kind = str(given.get("kind", ""))
    columns, secrets = checked(kind, {"name": "", "recipients": [], **given} if kind == "email" else given, {})
    if "name" not in columns:
        raise ChannelInvalid("name", "What it is, such as on-call or #gpu-alerts.")
    if Channel.objects.filter(removed_at=None).count() >= MOST_CHANNELS:
        raise ChannelInvalid("name", f"An org has at most {MOST_CHANNELS} channels.")
    with transaction.atomic():
        channel = Channel(kind=kind, created_by=actor.name[:254], sealed=seal(secrets) if secrets else None, **columns)
        channel.save(force_insert=True)
        keep_addresses(channel, actor, base_url())
        _record("alert_channel.created", channel, actor, after=shown(channel))
    return channel, secrets.get("signing", "")


def change_channel(pk: int, given: Mapping[str, Any], actor: Actor) -> Channel:
    """A channel with some fields changed; an empty secret leaves the one that it has.

    Raises ChannelInvalid; Channel.DoesNotExist for one that is removed.
    """
    with transaction.atomic():
        channel = Channel.objects.select_for_update().get(pk=pk, removed_at=None)
        if given.get("kind", channel.kind) != channel.kind:
            raise ChannelInvalid("kind", "A channel keeps its kind: make another.")
        try:
            held = unseal(channel.sealed)
        except SealBroken:
            held = {}
        columns, secrets = checked(channel.kind, given, held)
        before, is_new_secret = shown(channel), secrets != held
        for name, value in columns.items():
            setattr(channel, name, value)
        if is_new_secret:
            channel.sealed = seal(secrets)
        changed = {name: value for name, value in shown(channel).items() if before[name] != value}
        if is_new_secret:
            changed["secrets"] = "replaced"
        if changed:
            channel.save()
            keep_addresses(channel, actor, base_url())
            old = {name: before[name] for name in changed if name in before}
            _record("alert_channel.changed", channel, actor, before=old, after=changed)
    return channel


def remove_channel(pk: int, actor: Actor) -> None:
    """Remove a channel and its secrets; the log of what it was sent stays. Raises Channel.DoesNotExist."""
    with transaction.atomic():
        channel = Channel.objects.select_for_update().get(pk=pk, removed_at=None)
        channel.sealed, channel.is_enabled, channel.removed_at = None, False, timezone.now()
        channel.save(update_fields=["sealed", "is_enabled", "removed_at"])
        _record("alert_channel.removed", channel, actor, before={"name": channel.name})


def roll_signing(pk: int, actor: Actor) -> tuple[Channel, str]:
    """(the webhook, its new signing secret, shown this once); the old one signs nothing any more.

    Raises ChannelInvalid for another kind; Channel.DoesNotExist.
    """
    with transaction.atomic():
        channel = Channel.objects.select_for_update().get(pk=pk, removed_at=None)
        if channel.kind != Channel.Kind.WEBHOOK:
            raise ChannelInvalid("kind", "Only a webhook is signed.")
        try:
            held = unseal(channel.sealed)
        except SealBroken as error:
            raise ChannelInvalid("url", str(error)) from error
        secrets = {**held, "signing": new_signing_secret()}
        channel.sealed = seal(secrets)
        channel.save(update_fields=["sealed"])
        _record("alert_channel.rolled", channel, actor)
    return channel, secrets["signing"]


def send_test(pk: int, actor: Actor) -> Delivery:
    """A test message to a channel, sent by the next worker. Raises ChannelInvalid when several wait already."""
    now = timezone.now()
    with transaction.atomic():
        channel = Channel.objects.select_for_update().get(pk=pk, removed_at=None)
        if channel.kind == Channel.Kind.EMAIL and not confirmed(channel):
            raise ChannelInvalid("test", "No address of it has confirmed yet: nothing is mailed there.")
        waiting = channel.deliveries.filter(what="test", status=Delivery.Status.WAITING).count()
        if waiting >= MOST_TESTS_WAITING:
            raise ChannelInvalid("test", "Some tests wait already. See the log for what came of them.")
        message = Message(
            org=actor.org.slug,
            key=f"test-{channel.pk}-{int(now.timestamp())}",
            kind="incident",
            what="test",
            severity="info",
            title=f"{actor.name} tries the channel {channel.name}",
            text="Nothing happened: this is a test. An alert names what broke, since when, whose fault and what to do.",
            began_at=rfc3339(now),
            at=rfc3339(now),
            url=f"{base_url()}/o/{actor.org.slug}/settings/alerts/{channel.pk}/",
        )
        delivery = Delivery.objects.create(
            channel=channel, what="test", message=message.plain(), due_at=now, asked_by=actor.name[:254]
        )
        _record("alert_channel.tested", channel, actor)
    return delivery


def send_again(pk: int, actor: Actor) -> Delivery:
    """A delivery once more, as a new one with an id of its own; one that waits for its next try goes out at once.

    Raises Delivery.DoesNotExist; ChannelInvalid where its channel is gone or off.
    """
    now = timezone.now()
    with transaction.atomic():
        old = Delivery.objects.select_for_update(of=("self",)).select_related("channel").get(pk=pk)
        if old.channel.removed_at or not old.channel.is_enabled:
            raise ChannelInvalid("channel", "The channel is switched off or removed.")
        if old.what == CONFIRM:
            raise ChannelInvalid("channel", "Ask again on the channel's page.")
        if old.status == Delivery.Status.WAITING:
            Delivery.objects.filter(pk=pk, claimed_until=None).update(due_at=now)
            sent = old
        else:
            sent = Delivery.objects.create(
                channel=old.channel,
                thread=old.thread,
                what=old.what,
                message=old.message,
                changes=old.changes,
                due_at=now,
                asked_by=actor.name[:254],
                again=old,
            )
        _record("alert_delivery.again", old.channel, actor, after={"delivery": str(old.uid)})
    return sent


def shown(channel: Channel) -> dict[str, Any]:
    """What of a channel may be shown and kept in the audit trail: everything but its secrets."""
    return {
        "name": channel.name,
        "kind": channel.kind,
        "is_enabled": channel.is_enabled,
        "target": channel.target,
        "recipients": list(channel.recipients),
        "template": channel.template,
        "kinds": list(channel.kinds),
        "clusters": list(channel.clusters),
        "parties": list(channel.parties),
        "least_severity": channel.least_severity,
        "hold_seconds": channel.hold_seconds,
        "digest_minutes": channel.digest_minutes,
    }


def held_secrets(channel: Channel) -> tuple[str, ...]:
    """Which secrets a channel has, without what they are; `broken` where they can't be read any more."""
    try:
        return tuple(name for name in (*SECRETS, "signing") if unseal(channel.sealed).get(name))
    except SealBroken:
        return ("broken",)


def _record(action: str, channel: Channel, actor: Actor, **more: Any) -> None:
    record(action, actor=actor.name, org=actor.org, target=f"channel {channel.pk}", address=actor.address, **more)
