"""Which orgs have facts that wait for the fold: the truth behind the hint in Redis.

One statement over all orgs' inboxes: a partial index answers each branch, about 10 µs an org.
"""

from __future__ import annotations

from collections.abc import Iterable

from django.db import connection
from psycopg import sql

from orgs.models import Org

ORGS_PER_STATEMENT = 200
MAX_ATTEMPTS = 5  # a batch that failed this often is set aside with its error


def orgs_with_work(orgs: Iterable[Org]) -> list[int]:
    """Ids of the orgs in which a batch waits or an hour is dirty, in the order given."""
    found: list[int] = []
    for chunk in _chunks(list(orgs)):
        branches = [
            sql.SQL(
                "(select {id}::bigint as id where"
                " exists (select 1 from {inbox} where folded_at is null and attempts < {max})"
                " or exists (select 1 from {live} where dirty_hour is not null))"
            ).format(
                id=sql.Literal(org.pk),
                max=sql.Literal(MAX_ATTEMPTS),
                inbox=sql.Identifier(org.schema_name, "fleet_inbox"),
                live=sql.Identifier(org.schema_name, "fleet_nodelive"),
            )
            for org in chunk
        ]
        with connection.cursor() as cursor:
            cursor.execute(sql.SQL(" union all ").join(branches).as_string(cursor.connection))
            found += [row[0] for row in cursor.fetchall()]
    return found


def oldest_waiting(orgs: Iterable[Org]) -> float | None:
    """Age in seconds of the oldest batch that no worker has folded, over all orgs; None when none waits."""
    ages: list[float] = []
    for chunk in _chunks(list(orgs)):
        branches = [
            sql.SQL(
                "(select extract(epoch from clock_timestamp() - min(received_at)) from {inbox}"
                " where folded_at is null and attempts < {max})"
            ).format(inbox=sql.Identifier(org.schema_name, "fleet_inbox"), max=sql.Literal(MAX_ATTEMPTS))
            for org in chunk
        ]
        with connection.cursor() as cursor:
            cursor.execute(sql.SQL(" union all ").join(branches).as_string(cursor.connection))
            ages += [float(row[0]) for row in cursor.fetchall() if row[0] is not None]
    return round(max(ages), 3) if ages else None


def _chunks(orgs: list[Org]) -> Iterable[list[Org]]:
    for start in range(0, len(orgs), ORGS_PER_STATEMENT):
        yield orgs[start : start + ORGS_PER_STATEMENT]
