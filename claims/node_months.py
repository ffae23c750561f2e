"""Each node's verdicts by UTC month, kept as runs: made from its hour rows when those have changed, else read."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime

from django.db import connection

from claims.domain.month_runs import VerdictRun, collect, decode, encode
from claims.models import NodeMonth
from fleet.bodies import compress, decompress, load_row
from fleet.domain.slots import HOUR_MS, SLOTS_PER_HOUR
from fleet.models import NodeHour

_SOURCES = """
with mine as (
    select node_id, hour, is_final, md5(body) as one from fleet_nodehour
     where node_id = any(%(nodes)s) and hour >= %(first)s and hour < %(end)s
), edge as (
    select node_id, coalesce(min(hour) filter (where not is_final), max(hour) + 1) as final_until from mine group by 1
)
select mine.node_id, md5(string_agg(one, '' order by hour)), edge.final_until,
       coalesce(md5(string_agg(one, '' order by hour) filter (where hour < edge.final_until)), ''),
       coalesce(md5(string_agg(one, '' order by hour) filter (where hour < kept.final_until)), '')
  from mine join edge on edge.node_id = mine.node_id
  left join claims_nodemonth kept on kept.node_id = mine.node_id and kept.month = %(month)s
 group by mine.node_id, edge.final_until
"""


def month_hours(month: str) -> tuple[int, int]:
    """The hours `[first, end)` since 1970 of a UTC month."""
    year, number = (int(part) for part in month.split("-"))
    following = (year + 1, 1) if number == 12 else (year, number + 1)
    first, end = (int(datetime(*at, 1, tzinfo=UTC).timestamp()) * 1000 // HOUR_MS for at in ((year, number), following))
    return first, end


def months_between(first_ms: int, end_ms: int) -> list[str]:
    """The UTC months that `[first_ms, end_ms)` touches."""
    at = datetime.fromtimestamp(first_ms / 1000, UTC)
    year, number, out = at.year, at.month, []
    while int(datetime(year, number, 1, tzinfo=UTC).timestamp()) * 1000 < end_ms:
        out.append(f"{year:04d}-{number:02d}")
        year, number = (year + 1, 1) if number == 12 else (year, number + 1)
    return out


def load_month(nodes: Sequence[int], month: str) -> dict[int, NodeMonth]:
    """Each node's month, for the nodes that have hours in it; of stale ones the hours that were not final are read."""
    first, end = month_hours(month)
    with connection.cursor() as cursor:
        cursor.execute(_SOURCES, {"nodes": list(nodes), "first": first, "end": end, "month": month})
        sources = cursor.fetchall()
    kept = {one.node_id: one for one in NodeMonth.objects.filter(node_id__in=nodes, month=month)}
    out = {}
    for node_id, source, final_until, final_source, known_source in sources:
        one = kept.get(node_id)
        if one is None or one.source != source:
            known = one if one is not None and one.final_source and one.final_source == known_source else None
            raw = encode(_runs(node_id, known, first, end))
            values = {
                "source": source,
                "final_until": final_until,
                "final_source": final_source,
                "body": compress(raw),
                "digest": hashlib.sha256(raw).hexdigest(),
            }
            one = NodeMonth.objects.update_or_create(node_id=node_id, month=month, defaults=values)[0]
        out[node_id] = one
    return out


def _runs(node_id: int, known: NodeMonth | None, first: int, end: int) -> dict[str, list[VerdictRun]]:
    """The runs of the hours `[first, end)`, those before `known.final_until` out of `known`."""
    start = first if known is None else known.final_until
    bodies = NodeHour.objects.filter(node_id=node_id, hour__gte=start, hour__lt=end).order_by("hour")
    tail = collect(load_row(body) for body in bodies.values_list("body", flat=True))
    if known is None:
        return tail
    edge = start * SLOTS_PER_HOUR
    out = {
        subject: [(a, min(b, edge), verdict) for a, b, verdict in line if a < edge]
        for subject, line in decode(decompress(known.body)).items()
    }
    for subject, line in tail.items():
        mine = out.setdefault(subject, [])
        if mine and line and mine[-1][1] == line[0][0] and mine[-1][2] == line[0][2]:
            mine[-1] = (mine[-1][0], line[0][1], mine[-1][2])
            line = line[1:]
        mine.extend(line)
    return {subject: line for subject, line in out.items() if line}


def runs_of_months(months: Iterable[NodeMonth]) -> dict[str, list[VerdictRun]]:
    """A node's runs over consecutive months."""
    out: dict[str, list[VerdictRun]] = {}
    for one in months:
        for subject, line in decode(decompress(one.body)).items():
            out.setdefault(subject, []).extend(line)
    return out
