"""Sends what is due. A delivery is claimed in one transaction, sent outside of any, and its outcome kept in another.

A worker that dies in between leaves a claim that runs out: the next worker sends it again, under the same uid. So
everything is told at least once.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta

from django.db import transaction
from django.db.models import Exists, F, OuterRef, Q
from django.utils import timezone

from fleet.alerts.models import Channel, Delivery, Thread
from fleet.alerts.outward import CallFailed, TargetRefused
from fleet.alerts.routing import TELLS_OPEN, message_of
from fleet.alerts.sealing import SealBroken
from fleet.alerts.senders import send
from fleet.domain.alerting.damping import retry_after
from fleet.domain.alerting.message import CONFIRM, Message
from orgs.models import Org

log = logging.getLogger(__name__)
CLAIM = timedelta(minutes=2)  # longer than any sending takes
MOST_IN_DIGEST = 200
MOST_AT_ONCE = 50  # messages to one channel in one run
REPEAT_EVERY = timedelta(seconds=60)  # Alertmanager: what is active is sent again


def channels_with_work(now: datetime) -> list[int]:
    """The channels of the current org to which something is due, or that want what is active again."""
    due = Delivery.objects.filter(_is_due(now)).order_by().values_list("channel_id", flat=True).distinct()
    again = Channel.objects.filter(
        Q(repeated_at=None) | Q(repeated_at__lte=now - REPEAT_EVERY),
        kind=Channel.Kind.ALERTMANAGER,
        is_enabled=True,
        removed_at=None,
    ).values_list("pk", flat=True)
    return sorted({*due, *again})


def deliver_to(org: Org, channel_id: int) -> int:
    """Send what is due to one channel of the current org, until one fails; the number of deliveries sent."""
    sent = 0
    for _ in range(MOST_AT_ONCE):
        claimed = claim(channel_id, timezone.now())
        if not claimed:
            break
        if not _send(claimed):
            break
        sent += len(claimed)
    repeat_active(org, channel_id, timezone.now())
    return sent


def _is_due(now: datetime) -> Q:
    is_free = Q(claimed_until=None) | Q(claimed_until__lte=now)
    return Q(status=Delivery.Status.WAITING, due_at__lte=now) & is_free


@transaction.atomic
def claim(channel_id: int, now: datetime) -> list[Delivery]:
    """Claim what goes out to a channel next: one delivery, or all that are due to one with a digest.

    A message of a thread waits while an earlier one of it is being sent, so that an end never overtakes its beginning.
    """
    earlier = Delivery.objects.filter(
        channel=OuterRef("channel"), thread=OuterRef("thread"), status=Delivery.Status.WAITING, pk__lt=OuterRef("pk")
    ).filter(claimed_until__gt=now)
    found = Delivery.objects.filter(_is_due(now), ~Exists(earlier), channel_id=channel_id).order_by("due_at", "pk")
    channel = Channel.objects.get(pk=channel_id)
    size = MOST_IN_DIGEST if channel.digest_minutes else 1
    claimed = list(found.select_for_update(skip_locked=True, of=("self",))[:size])
    if not channel.is_enabled or channel.removed_at:
        tests = [one for one in claimed if one.what == "test" and not channel.removed_at]
        Delivery.objects.filter(pk__in=[one.pk for one in claimed if one not in tests]).update(
            status=Delivery.Status.FAILED, error="The channel was switched off or removed."
        )
        claimed = tests
    alone = next((one for one in claimed if one.what == CONFIRM), None)
    ids = [one.pk for one in ([alone] if alone else claimed)]
    Delivery.objects.filter(pk__in=ids).update(claimed_until=now + CLAIM, attempts=F("attempts") + 1)
    return list(Delivery.objects.select_related("channel").filter(pk__in=ids).order_by("pk"))


def _send(claimed: Sequence[Delivery]) -> bool:
    """Send what was claimed and keep what came of it. True if the other side took it."""
    channel = claimed[0].channel
    messages = [(Message.of(one.message), str(one.uid)) for one in claimed]
    try:
        sent = send(channel, messages, timezone.now())
    except CallFailed as error:
        _failed(claimed, str(error), error.answer, error.wait_seconds)
    except (TargetRefused, SealBroken) as error:
        _failed(claimed, str(error), None, None)
    except Exception as error:  # whatever a sender trips over: this message is tried again, the others are not held up
        log.exception("channel %s: a message can't be made", channel.pk)
        _failed(claimed, f"It can't be made ({type(error).__name__}).", None, None)
    else:
        now = timezone.now()
        with transaction.atomic():
            Delivery.objects.filter(pk__in=[one.pk for one in claimed]).update(
                status=Delivery.Status.SENT,
                sent_at=now,
                claimed_until=None,
                answer=sent.answer,
                sent_to=sent.to[:1000],
                error="",
            )
            Channel.objects.filter(pk=channel.pk).update(last_sent_at=now)
        return True
    return False


def _failed(claimed: Iterable[Delivery], words: str, answer: int | None, wait_seconds: int | None) -> None:
    """Keep a failure; try again later, or give up. What else is due to this channel waits as long."""
    now = timezone.now()
    asked = timedelta(seconds=wait_seconds) if wait_seconds else None
    with transaction.atomic():
        for one in claimed:
            wait = retry_after(one.attempts, asked)
            changes = {"answer": answer, "error": words[:300], "claimed_until": None}
            if wait is None:
                Delivery.objects.filter(pk=one.pk).update(status=Delivery.Status.FAILED, **changes)
                continue
            Delivery.objects.filter(pk=one.pk).update(due_at=now + wait, **changes)
            others = Delivery.objects.filter(_is_due(now), channel_id=one.channel_id).exclude(pk=one.pk)
            others.update(due_at=now + wait)
        Channel.objects.filter(pk=one.channel_id).update(last_failed_at=now, last_error=words[:300])


def repeat_active(org: Org, channel_id: int, now: datetime) -> int:
    """Send an Alertmanager what is still active, as it wants to hear it again and again; the number of threads."""
    due = Channel.objects.filter(
        Q(repeated_at=None) | Q(repeated_at__lte=now - REPEAT_EVERY),
        pk=channel_id,
        kind=Channel.Kind.ALERTMANAGER,
        is_enabled=True,
        removed_at=None,
    )
    if not due.update(repeated_at=now):
        return 0
    channel = Channel.objects.get(pk=channel_id)
    messages = [(message_of(org, thread, "worsened", now), "") for thread in told_and_open(channel)]
    if not messages:
        return 0
    try:
        send(channel, messages, now)
    except (CallFailed, TargetRefused, SealBroken) as error:
        Channel.objects.filter(pk=channel_id).update(last_failed_at=now, last_error=str(error)[:300])
        return 0
    Channel.objects.filter(pk=channel_id).update(last_sent_at=now)
    return len(messages)


def told_and_open(channel: Channel) -> list[Thread]:
    """The threads that go on and whose beginning this channel was told."""
    told = Delivery.objects.filter(
        channel=channel, thread=OuterRef("pk"), status=Delivery.Status.SENT, what__in=TELLS_OPEN
    )
    return list(Thread.objects.filter(Exists(told), is_open=True).order_by("pk")[:1000])
