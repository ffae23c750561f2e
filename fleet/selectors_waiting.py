"""Which orgs have facts that wait for the fold.

One statement over all orgs' inboxes: a partial index answers each branch, about 10 µs an org.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from psycopg import sql

from fleet.sql import execute
from orgs.models import Org
from orgs.schemas import ORGS_PER_STATEMENT

MAX_ATTEMPTS = 5  # a batch that failed this often is set aside with its error


def orgs_with_work(orgs: Iterable[Org]) -> list[int]:
    """Ids of the orgs in which a batch waits or an hour is dirty, in the order given."""
    rows = _ask(
        orgs,
        "(select {id}::bigint where exists (select 1 from {inbox} where folded_at is null and attempts < {max})"
        " or exists (select 1 from {live} where dirty_hour is not null))",
    )
    return [row[0] for row in rows]


def orgs_with_probes(orgs: Iterable[Org]) -> list[int]:
    """Ids of the orgs in which a probe is in force or a failure is not yet settled."""
    rows = _ask(
        orgs,
        "(select {id}::bigint where exists (select 1 from {probes} where withdrawn_at is null and until_at is null))",
    )
    return [row[0] for row in rows]


def oldest_waiting(orgs: Iterable[Org]) -> float | None:
    """Age in seconds of the oldest batch that no worker has folded, over all orgs; None when none waits."""
    rows = _ask(
        orgs,
        "(select extract(epoch from clock_timestamp() - min(received_at))::float8 from {inbox}"
        " where folded_at is null and attempts < {max})",
    )
    return max((round(row[0], 3) for row in rows if row[0] is not None), default=None)


def _ask(orgs: Iterable[Org], branch: str) -> list[tuple[Any, ...]]:
    """The rows of `branch` over all orgs, some hundred of them in one statement that the connection keeps prepared."""
    found: list[tuple[Any, ...]] = []
    for chunk in _chunks(list(orgs)):
        branches = [
            sql.SQL(branch).format(
                id=sql.Literal(org.pk),
                max=sql.Literal(MAX_ATTEMPTS),
                inbox=sql.Identifier(org.schema_name, "fleet_inbox"),
                live=sql.Identifier(org.schema_name, "fleet_nodelive"),
                probes=sql.Identifier(org.schema_name, "fleet_probetarget"),
            )
            for org in chunk
        ]
        found += execute(sql.SQL(" union all ").join(branches).as_string(None), [])
    return found


def _chunks(orgs: list[Org]) -> Iterable[list[Org]]:
    for start in range(0, len(orgs), ORGS_PER_STATEMENT):
        yield orgs[start : start + ORGS_PER_STATEMENT]
