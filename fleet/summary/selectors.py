"""What the provider's console reads: rows of all orgs, the queues of facts, what failed."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db import connection
from psycopg import sql

from fleet.selectors_live import from_ms, title_of
from fleet.selectors_waiting import MAX_ATTEMPTS
from fleet.summary.models import JobBeat, OrgSummary
from orgs.models import Org
from orgs.schemas import ORGS_PER_STATEMENT

FAILED_LISTED = 20
BEAT_IS_LATE_SECONDS = 180
BEAT = "fleet.summary.tasks.summarise"  # whose runs say that beat and worker live
COLUMNS = (
    *("slug", "name", "status", "as_of", "clusters", "nodes", "gpus", "available", "degraded", "down", "held"),
    *("unknown", "open_incidents", "agents_silent", "last_received_at", "waiting_batches"),
    *("oldest_unfolded_seconds", "failed_batches", "dropped_total", "keys_expiring", "exposure", "reviews"),
)


@dataclass(frozen=True)
class OrgRow:
    """An org and what its job said of it last; None before the first time."""

    org: Org
    summary: OrgSummary | None
    is_stale: bool

    @property
    def states(self) -> list[tuple[str, int]]:
        """GPUs per state that is not quiet, worst first, then the available ones."""
        if self.summary is None:
            return []
        words = ("down", "held", "degraded", "unknown", "available")
        return [(word, count) for word in words if (count := getattr(self.summary, word))]

    @property
    def asking(self) -> list[dict[str, Any]]:
        """What asked for a look lately, per code: title, subjects, the first few nodes and how many more, when last."""
        codes = self.summary.review_codes if self.summary else []
        return [
            {
                **one,
                "title": title_of(one["code"]),
                "more": one["nodes"] - len(one["names"]),
                "last": from_ms(one["last_ms"]),
            }
            for one in codes
        ]

    def order(self) -> tuple[Any, ...]:
        """Worst first; suspended orgs last."""
        s = self.summary
        if s is None:
            return self.org.status != Org.Status.ACTIVE, 0, 0, 0, 0, 0, self.org.slug
        worst = (-s.down - s.held, -s.open_incidents, -s.failed_batches, -s.degraded, -s.agents_silent)
        return self.org.status != Org.Status.ACTIVE, *worst, self.org.slug

    def values(self) -> list[Any]:
        """The row for a download, in the order of COLUMNS."""
        found = []
        for column in COLUMNS:
            value = getattr(self.org if column in ("slug", "name", "status") else self.summary, column, None)
            found.append(value.strftime("%Y-%m-%dT%H:%M:%SZ") if isinstance(value, datetime) else value)
        return found


def list_org_rows(now: datetime, search: str = "") -> list[OrgRow]:
    """Every org, worst first; `search` is part of its slug or name."""
    summaries = {summary.org_id: summary for summary in OrgSummary.objects.all()}
    rows = []
    for org in Org.objects.all():
        if search.lower() in org.slug or search.lower() in org.name.lower():
            summary = summaries.get(org.pk)
            rows.append(OrgRow(org, summary, summary is None or summary.is_stale(now)))
    return sorted(rows, key=OrgRow.order)


def totals(rows: Iterable[OrgRow]) -> dict[str, Any]:
    """Sums over the orgs that are active."""
    found = [row.summary for row in rows if row.summary and row.org.status == Org.Status.ACTIVE]
    fields = ("gpus", "available", "nodes", "open_incidents", "agents_silent", "waiting_batches", "failed_batches")
    more = ("dropped_total", "keys_expiring", "reviews")
    sums: dict[str, Any] = {name: sum(getattr(one, name) for one in found) for name in (*fields, *more)}
    sums["lag"] = max((one.oldest_unfolded_seconds or 0 for one in found), default=0)
    return sums


@dataclass(frozen=True)
class Queue:
    """An org's facts that no worker has folded: how many, how old the oldest is, how many were given up."""

    org: Org
    waiting: int
    oldest_seconds: int | None
    failed: int


def _queue_tables(org: Org) -> dict[str, sql.Identifier]:
    """The tables of an org that tell of its queue."""
    names = {"waiting": "waiting", "marks": "batchmark", "lives": "nodelive", "inbox": "inbox", "nodes": "node"}
    return {
        key: sql.Identifier(org.schema_name, f"fleet_{name}") for key, name in (names | {"clusters": "cluster"}).items()
    }


def queues(orgs: Iterable[Org]) -> list[Queue]:
    """The queue of each org now, one statement per 200 orgs."""
    listed = list(orgs)
    by_id = {org.pk: org for org in listed}
    found = []
    for start in range(0, len(listed), ORGS_PER_STATEMENT):
        branches = [
            sql.SQL(
                "(select {id}::bigint, count(*), extract(epoch from clock_timestamp() - min(received_at))::int,"
                " (select count(*) from {marks} where reason = 'failed')"
                " + (select count(*) from {lives} where dirty_hour is not null and attempts >= {max}) from {waiting})"
            ).format(id=org.pk, max=MAX_ATTEMPTS, **_queue_tables(org))
            for org in listed[start : start + ORGS_PER_STATEMENT]
        ]
        with connection.cursor() as cursor:
            cursor.execute(sql.SQL(" union all ").join(branches).as_string(cursor.connection))
            found += [Queue(by_id[row[0]], *row[1:]) for row in cursor.fetchall()]
    return found


def failed_batches(org: Org) -> list[dict[str, Any]]:
    """The latest batches of an org that were set aside, and nodes whose re-fold was, with the error of the last try.

    `sha256` is empty for a re-fold.
    """
    statement = sql.SQL(
        "select '', c.name, n.name, l.last_received_at, l.attempts, l.error from {lives} l"
        " join {nodes} n on n.id = l.node_id join {clusters} c on c.id = n.cluster_id"
        " where l.dirty_hour is not null and l.attempts >= {max} union all"
        " (select encode(m.sha256, 'hex'), i.cluster, i.node, i.received_at, {max}, m.error from {marks} m"
        " join {inbox} i on i.sample_day = m.sample_day and i.sha256 = m.sha256"
        " where m.reason = 'failed' order by m.marked_at desc limit {most})"
    ).format(max=MAX_ATTEMPTS, most=FAILED_LISTED, **_queue_tables(org))
    with connection.cursor() as cursor:
        cursor.execute(statement.as_string(cursor.connection))
        names = ("sha256", "cluster", "node", "received_at", "attempts", "error")
        return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]


def last_beat(now: datetime) -> tuple[datetime | None, bool]:
    """(when the orgs' jobs were sent last, whether that is late)."""
    at = JobBeat.objects.filter(name=BEAT).values_list("at", flat=True).first()
    return at, at is None or (now - at).total_seconds() > BEAT_IS_LATE_SECONDS


def cluster_names(org: Org) -> list[str]:
    """Names of an org's clusters, for forms of the public schema; at most 200."""
    statement = sql.SQL("select name from {table} where removed_at is null order by name limit 200")
    table = sql.Identifier(org.schema_name, "fleet_cluster")
    with connection.cursor() as cursor:
        cursor.execute(statement.format(table=table).as_string(cursor.connection))
        return [row[0] for row in cursor.fetchall()]
