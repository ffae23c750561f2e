"""Each node's verdicts by UTC month, kept as runs: made from its hour rows when those have changed, else read."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime

from django.db import connection

from claims.domain.month_runs import VerdictRun, collect, decode, encode
from claims.models import NodeMonth
from fleet.bodies import compress, decompress, load_row
from fleet.domain.slots import HOUR_MS
from fleet.models import NodeHour

_SOURCES = """
select node_id, md5(string_agg(md5(body), '' order by hour)) from fleet_nodehour
 where node_id = any(%s) and hour >= %s and hour < %s group by node_id
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
    """Each node's month, for the nodes that have hours in it; stale ones are made again first."""
    first, end = month_hours(month)
    with connection.cursor() as cursor:
        cursor.execute(_SOURCES, [list(nodes), first, end])
        sources = dict(cursor.fetchall())
    kept = {one.node_id: one for one in NodeMonth.objects.filter(node_id__in=sources, month=month)}
    out = {}
    for node_id, source in sources.items():
        one = kept.get(node_id)
        if one is None or one.source != source:
            one = _make(node_id, month, source, first, end)
        out[node_id] = one
    return out


def _make(node_id: int, month: str, source: str, first: int, end: int) -> NodeMonth:
    bodies = NodeHour.objects.filter(node_id=node_id, hour__gte=first, hour__lt=end).order_by("hour")
    raw = encode(collect(load_row(body) for body in bodies.values_list("body", flat=True)))
    values = {"source": source, "body": compress(raw), "digest": hashlib.sha256(raw).hexdigest()}
    return NodeMonth.objects.update_or_create(node_id=node_id, month=month, defaults=values)[0]


def runs_of_months(months: Iterable[NodeMonth]) -> dict[str, list[VerdictRun]]:
    """A node's runs over consecutive months."""
    out: dict[str, list[VerdictRun]] = {}
    for one in months:
        for subject, line in decode(decompress(one.body)).items():
            out.setdefault(subject, []).extend(line)
    return out
