"""What the provider's console reads: rows of all orgs, the queues of facts, what failed."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db import connection
from psycopg import sql

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
    *("oldest_unfolded_seconds", "failed_batches", "dropped_total", "keys_expiring", "exposure"),
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
    sums: dict[str, Any] = {
        name: sum(getattr(one, name) for one in found) for name in (*fields, "dropped_total", "keys_expiring")
    }
    sums["lag"] = max((one.oldest_unfolded_seconds or 0 for one in found), default=0)
    return sums


@dataclass(frozen=True)
class Queue:
    """An org's facts that no worker has folded: how many, how old the oldest is, how many were given up."""

    org: Org
    waiting: int
    oldest_seconds: int | None
    failed: int


def queues(orgs: Iterable[Org]) -> list[Queue]:
    """The queue of each org now, one statement per 200 orgs; the partial index on what waits answers it."""
    listed = list(orgs)
    by_id = {org.pk: org for org in listed}
    found = []
    for start in range(0, len(listed), ORGS_PER_STATEMENT):
        branches = [
            sql.SQL(
                "(select {id}::bigint, count(*) filter (where attempts < {max}),"
                " extract(epoch from clock_timestamp() - min(received_at) filter (where attempts < {max}))::int,"
                " count(*) filter (where attempts >= {max}) from {inbox} where folded_at is null)"
            ).format(id=org.pk, max=MAX_ATTEMPTS, inbox=sql.Identifier(org.schema_name, "fleet_inbox"))
            for org in listed[start : start + ORGS_PER_STATEMENT]
        ]
        with connection.cursor() as cursor:
            cursor.execute(sql.SQL(" union all ").join(branches).as_string(cursor.connection))
            found += [Queue(by_id[row[0]], *row[1:]) for row in cursor.fetchall()]
    return found


def failed_batches(org: Org) -> list[dict[str, Any]]:
    """The latest batches of an org that were set aside, with the error of the last try."""
    statement = sql.SQL(
        "select encode(sha256, 'hex'), cluster, node, received_at, attempts, error from {inbox}"
        " where folded_at is null and attempts >= {max} order by received_at desc limit {most}"
    ).format(inbox=sql.Identifier(org.schema_name, "fleet_inbox"), max=MAX_ATTEMPTS, most=FAILED_LISTED)
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
