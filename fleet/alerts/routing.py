"""From what happened to who is told: takes rows out of the outbox and makes deliveries, in one transaction.

Incidents are told by how they stand, not by what a row said about them: the row only says "look". So a row that comes
twice, late or out of order tells nothing wrong.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from django.db import connection, transaction
from django.db.models import Exists, OuterRef, Q

from fleet.alerts.incident_news import News, news_of_incident
from fleet.alerts.models import Alert, Channel, Delivery, Recipient, Thread
from fleet.alerts.senders import base_url
from fleet.domain.alerting.damping import WITHIN, Known, decide, digest_due
from fleet.domain.alerting.message import Message, rfc3339
from fleet.domain.alerting.words import at_least
from orgs.models import Org

log = logging.getLogger(__name__)
AT_ONCE = 200
PAGERS = (Channel.Kind.PAGERDUTY, Channel.Kind.ALERTMANAGER)
TELLS_OPEN = ("opened", "worsened", "acknowledged")


def route_waiting(org: Org, now: datetime) -> int:
    """Route what waits in the current org's outbox; the number of rows. One router per org at a time."""
    total = 0
    while True:
        with transaction.atomic():
            if not _is_alone():
                return total
            rows = list(Alert.objects.filter(routed_at=None).order_by("pk")[:AT_ONCE])
            if not rows:
                return total
            for row in _once(rows):
                _route_row(org, row, now)
            Alert.objects.filter(pk__in=[row.pk for row in rows]).update(routed_at=now)
        total += len(rows)


def _is_alone() -> bool:
    """Take the router's lock of this org until the transaction ends, if nobody has it."""
    with connection.cursor() as cursor:
        cursor.execute("select pg_try_advisory_xact_lock(hashtext('alerts.route'), hashtext(current_schema()))")
        return bool(cursor.fetchone()[0])


def _once(rows: Iterable[Alert]) -> Iterator[Alert]:
    """The rows in their order; several of one incident are looked at once."""
    seen: set[tuple[str, bool]] = set()
    for row in rows:
        mark = row.key, row.what == "acknowledged"
        if row.kind != "incident" or mark not in seen:
            seen.add(mark)
            yield row


def _route_row(org: Org, row: Alert, now: datetime) -> None:
    """Route what a row means. A row that can't be routed is logged and left behind: it must not hold up the others."""
    try:
        with transaction.atomic():
            for news in news_of_incident(row, now) if row.kind == "incident" else (News.of(row),):
                _route(org, news, now)
    except Exception:
        log.exception("org %s: alert %s can't be routed", org.slug, row.pk)


def _route(org: Org, news: News, now: datetime) -> None:
    """Bring the thread up to date and tell each channel that wants it."""
    thread = Thread.objects.filter(key=news.key).first()
    if thread is None:
        if news.what not in ("opened", "worsened", "reminder"):
            return
        thread = Thread(key=news.key, subject=news.title)
    elif not thread.is_open and news.what == "opened":
        thread.began_at, thread.subject = news.began_at, news.title
    for name in ("kind", "severity", "party", "cluster", "title", "text", "path", "facts"):
        setattr(thread, name, getattr(news, name))
    if thread.pk is None or news.what == "opened":
        thread.began_at = news.began_at
    thread.is_open = news.what != "resolved"
    thread.ended_at = news.ended_at if news.what == "resolved" else None
    thread.changed_at = now
    thread.save()
    if news.is_quiet:
        return
    has_answered = Recipient.objects.filter(channel=OuterRef("pk")).exclude(confirmed_at=None)
    mute = Q(kind=Channel.Kind.EMAIL) & ~Exists(has_answered)
    for channel in Channel.objects.filter(~mute, is_enabled=True, removed_at=None):
        _tell(org, channel, thread, news.what, news.at, now)


def wants(channel: Channel, thread: Thread) -> bool:
    """Whether a channel's filters let a thread through."""
    return bool(
        (not channel.kinds or thread.kind in channel.kinds)
        and (not channel.clusters or thread.cluster in channel.clusters)
        and (not channel.parties or not thread.party or thread.party in channel.parties)
        and at_least(thread.severity, channel.least_severity)
    )


def _tell(org: Org, channel: Channel, thread: Thread, what: str, at: datetime, now: datetime) -> None:
    """Make, merge or damp the delivery of one change to one channel."""
    mine = Delivery.objects.filter(channel=channel, thread=thread)
    waiting = mine.filter(status=Delivery.Status.WAITING, claimed_until=None, asked_by="").order_by("pk").first()
    known = _known(channel, mine, waiting, now)
    is_end = what in ("resolved", "acknowledged")
    if not is_end and not wants(channel, thread):
        return
    hold = timedelta(seconds=channel.hold_seconds if thread.kind in ("incident", "silence", "agents") else 0)
    decision = decide(what, known, now, hold, thread.began_at, thread.ended_at)
    if decision.do == "nothing":
        return
    if decision.do == "damp" and waiting is not None:
        mine.filter(pk=waiting.pk).update(status=Delivery.Status.DAMPED, error="It was over before it was told.")
        return
    message = message_of(org, thread, decision.what, at)
    if decision.do == "merge" and waiting is not None:
        changes = waiting.changes + 1
        message = replace(message, changes=changes, is_over=decision.is_over)
        values: dict[str, Any] = {"what": decision.what, "message": message.plain(), "changes": changes}
        if decision.due_at is not None:
            values["due_at"] = min(_due(channel, decision.due_at), waiting.due_at)
        mine.filter(pk=waiting.pk).update(**values)
        return
    due_at = _due(channel, decision.due_at or now)
    Delivery.objects.create(
        channel=channel, thread=thread, what=decision.what, message=message.plain(), due_at=due_at, sent_to=""
    )


def _due(channel: Channel, due_at: datetime) -> datetime:
    return digest_due(due_at, channel.digest_minutes) if channel.digest_minutes else due_at


def _known(channel: Channel, mine: Any, waiting: Delivery | None, now: datetime) -> Known:
    """What a channel knows of a thread. What a worker is just sending counts as told."""
    told = mine.filter(
        Q(status=Delivery.Status.SENT) | Q(status=Delivery.Status.WAITING, claimed_until__isnull=False), again=None
    )
    last = told.exclude(what__in=("reminder", "test")).order_by("-pk").first()
    recent = told.filter(sent_at__gt=now - WITHIN).values_list("sent_at", flat=True)
    return Known(
        was_told=last is not None and last.what in TELLS_OPEN,
        waiting=waiting.what if waiting else None,
        recent=tuple(recent),
        is_pager=channel.kind in PAGERS,
    )


def message_of(org: Org, thread: Thread, what: str, at: datetime) -> Message:
    """A thread as a message."""
    return Message(
        org=org.slug,
        key=thread.key,
        kind=thread.kind,
        what=what,
        severity=thread.severity,
        title=thread.title,
        text=thread.text,
        began_at=rfc3339(thread.began_at),
        ended_at=rfc3339(thread.ended_at) if thread.ended_at else None,
        at=rfc3339(at),
        url=f"{base_url()}/o/{org.slug}/{thread.path}",
        party=thread.party,
        cluster=thread.cluster,
        facts={**thread.facts, "subject": thread.subject},
    )
