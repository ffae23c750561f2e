"""Which orgs have facts that wait for the fold.

One statement over all orgs' queues: the first row of each answers its branch, about 10 µs an org.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Any, NamedTuple

from psycopg import sql

from fleet.sql import ask_org, execute
from orgs.models import Org
from orgs.schemas import ORGS_PER_STATEMENT

_REST = """
select exists (select 1 from {nodelive} where dirty_hour is not null and attempts < {max_attempts}),
       coalesce((select max(day) + 1 from {summedday}), (select min(hour) / 24 from {nodehour})),
       (select coalesce(min(at), '1970-01-05'::timestamptz) from {folded_through})
"""
MAX_ATTEMPTS = 3  # a batch, or a node's re-fold, that failed this often is set aside with its error


def orgs_with_work(orgs: Iterable[Org], waited_s: float = 0.0) -> list[int]:
    """Ids of the orgs in which a batch waits, an hour is dirty, or a crash took what is open, in the order given.

    `waited_s`: how long a batch must have waited to count.
    """
    rows = _ask(
        orgs,
        "(select {id}::bigint where exists (select 1 from (select received_at from {waiting} order by id limit 1) w"
        " where w.received_at <= clock_timestamp() - interval '1 second' * {waited})"
        " or exists (select 1 from {live} where dirty_hour is not null and attempts < {max})"
        " or not exists (select 1 from {whole}))",
        waited=waited_s,
    )
    return [row[0] for row in rows]


def orgs_with_probes(orgs: Iterable[Org]) -> list[int]:
    """Ids of the orgs in which a probe is in force or a failure is not yet settled."""
    rows = _ask(
        orgs,
        "(select {id}::bigint where exists (select 1 from {probes} where withdrawn_at is null and until_at is null))",
    )
    return [row[0] for row in rows]


class Rest(NamedTuple):
    """What of the current org may be due beside what waits: dirty hours, the next day to be summed, the last note."""

    is_dirty: bool
    next_day: int | None
    noted: datetime


def rest_of_org() -> Rest:
    """All of it in one statement."""
    ((is_dirty, next_day, noted),) = ask_org(
        _REST, "nodelive", "summedday", "nodehour", "folded_through", max_attempts=MAX_ATTEMPTS
    )
    return Rest(is_dirty, next_day, noted)


def oldest_waiting(orgs: Iterable[Org]) -> float | None:
    """Age in seconds of the oldest batch that no worker has folded, over all orgs; None when none waits.

    0 at least while a crash is not mended: then nobody knows yet what waits.
    """
    rows = _ask(
        orgs,
        "(select extract(epoch from clock_timestamp() - received_at)::float8 from {waiting} order by id limit 1)"
        " union all (select 0::float8 where not exists (select 1 from {whole}))",
    )
    return max((round(row[0], 3) for row in rows if row[0] is not None), default=None)


def folded_through() -> datetime | None:
    """Up to when everything received is in the current org's strips: before the oldest that waits, else the newest."""
    rows = execute(
        "select coalesce((select min(received_at) - interval '1 microsecond' from fleet_waiting),"
        " (select max(last_received_at) from fleet_nodelive))",
        [],
    )
    found: datetime | None = rows[0][0]
    return found


def unfolded_before(hour: int) -> int:
    """What of the time before `hour` (since 1970 UTC) is received and not in the current org's strips: batches, nodes
    with dirty hours, and everything while a crash is not mended yet. What comes of later days doesn't count.
    """
    rows = execute(
        "select (select count(*) from fleet_waiting where first_hour < %b)"
        " + (select count(*) from fleet_nodelive where dirty_hour < %b)"
        " + (select case when exists (select 1 from fleet_whole) then 0 else count(*) end from fleet_node)",
        [hour, hour],
    )
    return int(rows[0][0])


def _ask(orgs: Iterable[Org], branch: str, **literals: float) -> list[tuple[Any, ...]]:
    """The rows of `branch` over all orgs, some hundred of them in one statement that the connection keeps prepared."""
    found: list[tuple[Any, ...]] = []
    for chunk in _chunks(list(orgs)):
        branches = [
            sql.SQL(branch).format(
                id=sql.Literal(org.pk),
                max=sql.Literal(MAX_ATTEMPTS),
                **{name: sql.Literal(value) for name, value in literals.items()},
                waiting=sql.Identifier(org.schema_name, "fleet_waiting"),
                whole=sql.Identifier(org.schema_name, "fleet_whole"),
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
