"""Reads of alerts for pages and the API: channels with how they fare, the log of what was sent to whom."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.db.models import Count, Q, QuerySet

from fleet.alerts.models import Channel, Delivery, Recipient
from fleet.alerts.services import held_secrets
from fleet.domain.alerting.message import Message

ON_PAGE = 50
MOST_IN_DOWNLOAD = 10_000
SOON = timedelta(seconds=30)


@dataclass(frozen=True)
class ChannelLine:
    """A channel for a list. `state`: `working`, `failing`, `off`, `new`, or `broken` (its secrets can't be read)."""

    row: Channel
    state: str
    held: tuple[str, ...]
    waiting: int
    failed: int
    addresses: tuple[Recipient, ...] = ()

    @property
    def unconfirmed(self) -> list[str]:
        """Addresses that have not said yet that they want it."""
        return [one.address for one in self.addresses if one.confirmed_at is None]

    @property
    def wants(self) -> str:
        """Its filters in words."""
        row = self.row
        parts = [f"{row.least_severity} or worse" if row.least_severity != "critical" else "critical only"]
        parts += [", ".join(row.kinds)] if row.kinds else []
        parts += [f"clusters {', '.join(row.clusters)}"] if row.clusters else []
        parts += [", ".join(row.parties)] if row.parties else []
        parts += [f"after {row.hold_seconds} s"] if row.hold_seconds else ["at once"]
        parts += [f"gathered for {row.digest_minutes} min"] if row.digest_minutes else []
        return " · ".join(parts)


def list_channels() -> list[ChannelLine]:
    """The org's channels, by name."""
    day = Q(deliveries__status="failed", deliveries__again=None)
    rows = (
        Channel.objects.filter(removed_at=None)
        .prefetch_related("addresses")
        .annotate(
            waits=Count("deliveries", filter=Q(deliveries__status="waiting")), fails=Count("deliveries", filter=day)
        )
    )
    return [_line(row, row.waits, row.fails) for row in rows]


def get_channel(pk: int) -> ChannelLine | None:
    """One channel that is not removed; None without it."""
    row = Channel.objects.filter(pk=pk, removed_at=None).first() if pk < 2**63 else None
    if row is None:
        return None
    waiting = row.deliveries.filter(status="waiting").count()
    return _line(row, waiting, row.deliveries.filter(status="failed", again=None).count())


def _line(row: Channel, waiting: int, failed: int) -> ChannelLine:
    held = held_secrets(row)
    if held == ("broken",):
        state = "broken"
    elif not row.is_enabled:
        state = "off"
    elif row.last_failed_at and (row.last_sent_at is None or row.last_failed_at > row.last_sent_at):
        state = "failing"
    else:
        state = "working" if row.last_sent_at else "new"
    return ChannelLine(row, state, held, waiting, failed, tuple(row.addresses.all()))


@dataclass(frozen=True)
class LogFilter:
    """What of the log is asked for; `before` is the id below which the page begins."""

    status: str = ""
    channel: int | None = None
    thread: str = ""
    before: int | None = None

    @classmethod
    def of(cls, params: Mapping[str, str]) -> LogFilter:
        """As a URL says; what means nothing is left out."""
        status, thread = params.get("status", ""), params.get("thread", "").replace("\x00", "")[:120]
        return cls(
            status if status in Delivery.Status.values else "",
            _number(params.get("channel", "")),
            thread,
            _number(params.get("before", "")),
        )


def _number(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 19 else None


def deliveries(wanted: LogFilter) -> QuerySet[Delivery]:
    """The log, newest first."""
    found = Delivery.objects.select_related("channel", "thread", "again").order_by("-pk")
    if wanted.status:
        found = found.filter(status=wanted.status)
    if wanted.channel is not None:
        found = found.filter(channel_id=wanted.channel)
    if wanted.thread:
        found = found.filter(thread__key=wanted.thread)
    return found.filter(pk__lt=wanted.before) if wanted.before is not None else found


@dataclass(frozen=True)
class LogLine:
    """A delivery for the log."""

    row: Delivery

    @property
    def message(self) -> Message:
        """What is told."""
        return Message.of(self.row.message)

    @property
    def path(self) -> str:
        """The page of its thread within the org."""
        return self.row.thread.path if self.row.thread else ""

    @property
    def to(self) -> str:
        """Whom it went to, or is to go to."""
        return self.row.sent_to or self.row.channel.target

    def values(self) -> dict[str, Any]:
        """For a download and the API, in the order of LOG_COLUMNS."""
        row, message = self.row, self.message
        return dict(
            zip(
                LOG_COLUMNS,
                (
                    *(row.pk, str(row.uid), row.channel_id, row.channel.name, row.channel.kind, self.to),
                    *(row.thread.key if row.thread else "", row.what, message.line, message.severity, row.changes),
                    *(row.status, row.attempts, row.answer, row.error, row.created_at, row.due_at, row.sent_at),
                    *(row.asked_by, row.again_id),
                ),
                strict=True,
            )
        )


LOG_COLUMNS = (
    *("id", "uid", "channel_id", "channel", "kind", "to", "thread", "what", "line", "severity", "changes"),
    *("status", "attempts", "answer", "error", "created_at", "due_at", "sent_at", "asked_by", "again"),
)


@dataclass(frozen=True)
class LogPage:
    """One page of the log. `is_moving`: something is about to be sent, so it is worth looking again soon."""

    lines: tuple[LogLine, ...]
    following: int | None
    is_moving: bool
    as_of_ms: int


def log_page(wanted: LogFilter, now: datetime, size: int = ON_PAGE) -> LogPage:
    """A page of the log."""
    rows = list(deliveries(wanted)[: size + 1])
    shown = tuple(LogLine(row) for row in rows[:size])
    moving = any(one.row.status == "waiting" and one.row.due_at <= now + SOON for one in shown)
    return LogPage(shown, shown[-1].row.pk if len(rows) > size else None, moving, int(now.timestamp() * 1000))
