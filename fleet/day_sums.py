"""Sums per node and UTC day, kept beside the node hours so that a page over months adds up thirty rows a node, not 720.

A day is summed for all nodes once it has been over for some hours. From then on whoever writes an hour of it brings
its node's sum up to date in the same transaction. Both hold the lock that the fold and the sealing of days share, so no
hour is written beside the summing. The rows are derived: deleting `fleet_nodeday` and `fleet_summedday` makes pages
slower until the next sweep, nothing else.
"""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime

from django.db import transaction

from fleet.domain.slots import HOUR_MS
from fleet.sql import columns, execute

DAY_HOURS = 24
SUMMED_AFTER_HOURS = 2  # of a day's end; what comes later brings its sums up to date
DAYS_AT_ONCE = 8  # in one transaction, while the fold waits

#: Of a node's rows of a day: GPU-seconds and weights × seconds, `hour` the earliest of them.
FIGURES = (
    "min(h.hour), sum(h.gpus) * 3600, sum(h.gpus * 3600 - h.unknown_s), sum(h.nominal_sum),"
    " sum(h.lower_sum - 100 * h.unknown_s), sum(h.upper_sum), sum(h.down_s - h.held_s), sum(h.degraded_s),"
    " sum(h.held_s)"
)
_NAMES = ("first_hour", "counted", "known", "nominal", "lower", "upper", "down", "degraded", "held")
_WRITE = """
insert into fleet_nodeday (node_id, day, {names}) {select} group by 1, 2
on conflict (node_id, day) do update set {updates}
"""
_SUM = "select h.node_id, h.hour / 24, {figures} from fleet_nodehour h where h.hour between %b and %b"
_REFRESH = """
select h.node_id, w.day, {figures}
  from (select distinct node_id, hour / 24 as day from unnest(%b::bigint[], %b::int[]) as u(node_id, hour)) w
  join fleet_summedday s on s.day = w.day
  join fleet_nodehour h on h.node_id = w.node_id and h.hour between w.day * 24 and w.day * 24 + 23
"""
_NEXT = """
select coalesce((select max(day) + 1 from fleet_summedday), (select min(hour) / 24 from fleet_nodehour))
"""


def _writing(select: str) -> str:
    """The statement that stores what this one sums."""
    updates = ", ".join(f"{name} = excluded.{name}" for name in _NAMES)
    return _WRITE.format(names=", ".join(_NAMES), select=select.format(figures=FIGURES), updates=updates)


def refresh_days(written: Collection[tuple[int, int]]) -> None:
    """Bring the sums of the days of these (node, hour) up to date, where their day is summed already."""
    if written:
        execute(_writing(_REFRESH), columns(sorted(written)))


def sums_due(now: datetime) -> int:
    """The days before this one (since 1970 UTC) are over for long enough to be summed."""
    return (int(now.timestamp() * 1000) // HOUR_MS - SUMMED_AFTER_HOURS) // DAY_HOURS


def sum_days(now: datetime) -> int:
    """Sum the days of the current org that are over and not summed yet, some at once; how many."""
    ((first,),) = execute(_NEXT, [])
    if first is None or first >= (end := sums_due(now)):
        return 0
    with transaction.atomic():
        execute("select pg_advisory_xact_lock(hashtext(current_schema() || '.seal'))", [])
        ((first,),) = execute(_NEXT, [])
        days = list(range(first, min(end, first + DAYS_AT_ONCE)))
        if days:
            execute(_writing(_SUM), [days[0] * DAY_HOURS, days[-1] * DAY_HOURS + DAY_HOURS - 1])
            execute("insert into fleet_summedday (day) select unnest(%b::int[]) on conflict do nothing", [days])
    return len(days)


def forget_days(from_hour: int) -> None:
    """Take back what is summed of the days from this hour on."""
    execute("delete from fleet_nodeday where day >= %b", [from_hour // DAY_HOURS])
    execute("delete from fleet_summedday where day >= %b", [from_hour // DAY_HOURS])


def summed_days(first_day: int, last_day: int) -> set[int]:
    """Which of these days are summed."""
    return {
        day for (day,) in execute("select day from fleet_summedday where day between %b and %b", [first_day, last_day])
    }
