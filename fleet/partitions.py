"""The inbox's partitions: one a week, made ahead; absurd days share one.

A partition is made as a plain table and attached, so that ingest is never stopped behind a long reader. There is no
default partition: it would have to be scanned at each attach.
"""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta

from django.db import IntegrityError, ProgrammingError, connection, transaction
from psycopg import sql

EPOCH = date(1970, 1, 1)
# Days outside are absurd (a dead clock battery, a forged batch): they are kept as unknown time under the epoch's day.
FIRST_DAY = date(2025, 1, 1)
LAST_DAY = date(2035, 12, 30)  # the Sunday of the last week
MADE_BY_ANOTHER = ("42P07", "23505")  # duplicate_table, unique_violation (of the catalogue's own indexes)
LOCK_TIMEOUT = "5s"
WEEKS_AHEAD = 3
WEEKS_BACK = 1


def sample_day(ts_ms: int) -> date:
    """The partition day of a batch: the UTC day of its first `ts`, or 1970-01-01 where that is absurd."""
    if not 0 <= ts_ms < 253_402_300_800_000:  # year 10000
        return EPOCH
    day = EPOCH + timedelta(days=ts_ms // 86_400_000)
    return day if FIRST_DAY <= day <= LAST_DAY else EPOCH


def week_of(day: date) -> date:
    """The Monday of the week that `day` lies in."""
    return day - timedelta(days=day.weekday())


def may_be_packed(week: date) -> bool:
    """Whether the batches of the week with this Monday may lie in packs: not before it has been over for a day."""
    return week + timedelta(days=8) <= datetime.now(UTC).date()


def week_lock(schema: str, week: date) -> tuple[str, int]:
    """The two keys (the first is hashed) of the lock that keeps an upload and the packing of its week apart."""
    return f"{schema}.pack", (week - EPOCH).days


def ensure_partition(schema: str, day: date) -> bool:
    """Make the partition of `day` in an org's schema if there is none. True if it was made.

    Safe to call from several processes at once: whoever comes second finds it made.
    """
    if day == EPOCH:
        name, low, high = "fleet_inbox_unknown_time", EPOCH, week_of(FIRST_DAY)
    else:
        low = week_of(day)
        name, high = f"fleet_inbox_{low:%Y%m%d}", low + timedelta(days=7)
    parent, table, span = sql.Identifier(schema, "fleet_inbox"), sql.Identifier(schema, name), f"{name}_range"
    names = {"parent": parent, "table": table, "span": sql.Identifier(span), "low": str(low), "high": str(high)}
    names["timeout"] = LOCK_TIMEOUT
    statements = (
        "set local lock_timeout = {timeout}",
        "create table {table} (like {parent} including all)",
        "alter table {table} add constraint {span} check (sample_day >= {low} and sample_day < {high})",
        "alter table {parent} attach partition {table} for values from ({low}) to ({high})",
        "alter table {table} drop constraint {span}",
    )
    with connection.cursor() as cursor:
        cursor.execute("select to_regclass(%s) is not null", [f'"{schema}"."{name}"'])
        if cursor.fetchone()[0]:
            return False
    try:
        with transaction.atomic(), connection.cursor() as cursor:
            for statement in statements:
                cursor.execute(sql.SQL(statement).format(**names).as_string(cursor.connection))
    except (ProgrammingError, IntegrityError) as error:
        if getattr(error.__cause__, "sqlstate", None) in MADE_BY_ANOTHER:
            return False
        raise
    return True


def ensure_partitions(schema: str, now: datetime) -> int:
    """Make the partitions that uploads around `now` need. The number made."""
    days = [now.date() + timedelta(weeks=week) for week in range(-WEEKS_BACK, WEEKS_AHEAD + 1)]
    return sum(ensure_partition(schema, day) for day in [EPOCH, *days])
