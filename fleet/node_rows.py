"""Reads and writes node hours as rows of the database. Open ones are unlogged, final ones are logged once."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from fleet.bodies import load_row, pack_row
from fleet.day_sums import DAY_HOURS, refresh_days
from fleet.domain.strips import HourRow
from fleet.domain.verdicts import State
from fleet.reviews import forget_reviews, write_reviews
from fleet.sql import columns, execute

SUMS = (
    "gpus",
    *(f"{state.value}_s" for state in State),
    "down_s",
    "degraded_s",
    "nominal_sum",
    "lower_sum",
    "upper_sum",
)
FINAL, OPEN = "fleet_nodehour_final", "fleet_nodehour_open"
_ROWS = """
select h.node_id, h.hour, h.body from unnest(%b::bigint[], %b::int[]) as w(node_id, hour)
  join fleet_nodehour h on h.node_id = w.node_id and h.hour = w.hour
"""
_WRITE = """
insert into {{table}} (node_id, hour, body, rules, is_final, closed_by, {sums})
select * from unnest(%b::bigint[], %b::int[], %b::bytea[], %b::text[], %b::boolean[], %b::int[], {arrays})
on conflict (node_id, hour, is_final) do update set body = excluded.body, rules = excluded.rules,
       closed_by = excluded.closed_by, {updates}
""".format(
    sums=", ".join(SUMS),
    arrays=", ".join(["%b::int[]"] * len(SUMS)),
    updates=", ".join(f"{name} = excluded.{name}" for name in SUMS),
)
_REMOVE = """
delete from {table} h using unnest(%b::bigint[], %b::int[]) as w(node_id, hour)
 where h.node_id = w.node_id and h.hour = w.hour
"""


def read_rows(wanted: Iterable[tuple[int, int]]) -> dict[int, dict[int, HourRow]]:
    """node → hour → row of these (node, hour) that are stored."""
    rows: dict[int, dict[int, HourRow]] = defaultdict(dict)
    asked = list(wanted)
    if asked:
        for node_id, hour, body in execute(_ROWS, columns(asked)):
            rows[node_id][hour] = load_row(body)
    return rows


def write_hours(rows: Mapping[tuple[int, int], HourRow], may_reopen: bool = False, summed: int | None = None) -> None:
    """Insert or replace these node hours. `may_reopen`: some that are final in the database may be open again.
    `summed`: no day after this one is summed, where the caller knows.

    A row is in one of the two tables: call with the node's live row locked.
    """
    final = [(key, row) for key, row in sorted(rows.items()) if row.final]
    still_open = [(key, row) for key, row in sorted(rows.items()) if not row.final]
    if final:
        execute(_WRITE.format(table=FINAL), columns([_values(*key, row) for key, row in final]))
        execute(_REMOVE.format(table=OPEN), columns([key for key, _ in final]))
    if still_open:
        execute(_WRITE.format(table=OPEN), columns([_values(*key, row) for key, row in still_open]))
        if may_reopen:
            execute(_REMOVE.format(table=FINAL), columns([key for key, _ in still_open]))
    refresh_days([key for key in rows if summed is None or key[1] // DAY_HOURS <= summed])
    write_reviews(rows)


def remove_hours(node_id: int, hours: Sequence[int]) -> None:
    """Remove these rows of a node, of which nothing is said any more."""
    if hours:
        execute("delete from fleet_nodehour where node_id = %b and hour = any(%b::int[])", [node_id, list(hours)])
        days = sorted({hour // DAY_HOURS for hour in hours})
        execute("delete from fleet_nodeday where node_id = %b and day = any(%b::int[])", [node_id, days])
        refresh_days([(node_id, hour) for hour in hours])
        forget_reviews((node_id, hour) for hour in hours)


def _values(node_id: int, hour: int, row: HourRow) -> tuple[Any, ...]:
    return (node_id, hour, pack_row(row), row.rules_version, row.final, row.closed_by, *_sums(row))


def _sums(row: HourRow) -> list[int]:
    """The rollups of a row's GPUs added up, in the order of SUMS."""
    rollups = [rollup for subject, rollup in row.rollups().items() if subject.startswith("g")]
    sums = [len(rollups)]
    sums += [sum(rollup.seconds.get(state, 0) for rollup in rollups) for state in State]
    for name in ("down_s", "degraded_s", "nominal_ws", "lower_ws", "upper_ws"):
        sums.append(sum(getattr(rollup, name) for rollup in rollups))
    return sums
