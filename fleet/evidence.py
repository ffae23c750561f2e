"""Reads a node's batches, wherever they lie: in the inbox as they came, or in packs once their week is packed.

Which batches touch an hour follows from their own `ts` (`node_key`, `first_hour`, `last_hour`), except for those with a
mark: `moved` ones are found by the hours that the fold placed them in, the others are no evidence.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import date, datetime, timedelta
from typing import Any

from fleet import packs
from fleet.decode import gunzip
from fleet.packs import Entry, Frame, Row
from fleet.sql import columns, execute

DAY_HOURS = 24
#: A batch whose samples span more hours than this is `moved`, so that the others are found by their first hour alone.
SPAN_HOURS = 2

_COLUMNS = """i.sha256, i.received_at, i.cluster, i.node, i.hw_id, i.agent_id, i.seq, i.boot_id, i.key_id, i.signature,
       i.dropped_total, i.has_suspect_clock, i.is_seq_conflict, i.last_hour, i.sample_day, i.first_hour"""
_IN_INBOX = """
select coalesce(n.merged_into_id, n.id), {columns}, {body}
  from fleet_node n join fleet_inbox i on i.node_key = n.key
 where (n.id = any(%b) or n.merged_into_id = any(%b)) and i.first_hour between %b and %b and i.last_hour >= %b
   and i.sample_day between %b and %b
 {order}
"""
_IN_PACKS = """
select coalesce(n.merged_into_id, n.id), p.sample_day, p.first_hour, p.skeleton, {body}
  from fleet_node n join fleet_pack p on p.node_key = n.key
 where (n.id = any(%b) or n.merged_into_id = any(%b)) and p.first_hour between %b and %b and p.last_hour >= %b
 order by p.first_hour {order}
"""
_MARKS = "select m.sample_day, m.sha256, m.node_id, m.reason, m.first_hour, m.last_hour, m.error from fleet_batchmark m"
_MARKS_OF = f"""
{_MARKS} join unnest(%b::date[], %b::bytea[]) as w(sample_day, sha256)
    on m.sample_day = w.sample_day and m.sha256 = w.sha256
"""
_MOVED = f"{_MARKS} where m.node_id = any(%b) and m.reason = 'moved' and m.last_hour >= %b and m.first_hour <= %b"
_BY_HASH = """
select coalesce(n.merged_into_id, n.id), {columns}, {body}
  from unnest(%b::date[], %b::bytea[]) as w(sample_day, sha256)
  join fleet_inbox i on i.sample_day = w.sample_day and i.sha256 = w.sha256
  left join fleet_node n on n.key = i.node_key
"""
_ANY_DAY = """
select coalesce(n.merged_into_id, n.id), {columns}, {body}
  from fleet_inbox i left join fleet_node n on n.key = i.node_key
 where i.sha256 = %b order by i.sample_day limit 1
"""
_PACKED_BY_HASH = """
select coalesce(n.merged_into_id, n.id), p.sample_day, p.first_hour, p.skeleton, {body}
  from fleet_pack p left join fleet_node n on n.key = p.node_key where p.prefixes && %b::int[]
"""


@dataclass(frozen=True, slots=True)
class Batch:
    """A received batch. `reason` is its mark, empty for most; the hours are those that it belongs to.

    `has_bytes` is False once retention dropped them, or where they were not asked for.
    """

    node_id: int | None
    sample_day: date
    row: Row
    said_first_hour: int
    first_hour: int
    last_hour: int
    reason: str = ""
    error: str = ""
    entry: Entry | None = None
    frame: Frame | None = field(default=None, repr=False)
    place: int = 0  # in the frame

    @property
    def sha256(self) -> bytes:
        """Of the MessagePack bytes."""
        return self.row.sha256

    @property
    def received_at(self) -> datetime:
        """When it was committed."""
        return packs.instant(self.row.received_us)

    @property
    def said(self) -> tuple[int, int]:
        """The hours of its first and last `ts`, whatever it was placed in."""
        return self.said_first_hour, self.row.last_hour

    @property
    def is_evidence(self) -> bool:
        """Whether the fold takes it."""
        return not self.row.is_seq_conflict and self.reason in ("", "moved")

    @property
    def has_bytes(self) -> bool:
        """Whether its bytes were read."""
        return self.frame is not None or bool(self.row.body)

    def raw(self) -> bytes:
        """The MessagePack bytes. Raises PackError, or BatchRejected, for bytes that are not what was received."""
        if self.entry is not None and self.frame is not None:
            return packs.raw_of(self.entry, self.frame.part(self.place))
        return gunzip(self.row.body)

    def member(self) -> bytes:
        """The gzip member as it was received; empty when its bytes are gone."""
        if self.entry is not None:
            return b"" if self.frame is None else packs.member_of(self.entry, self.frame.part(self.place))
        return self.row.body


def batches_of(
    node_ids: Collection[int], first_hour: int, last_hour: int, *, bodies: bool = True, limit: int | None = None
) -> list[Batch]:
    """The evidence of these nodes that touches the hours `[first_hour, last_hour]`, by time of receipt.

    With a limit the newest hours come first and there may be `limit` + 1 of them, which tells that there are more.
    """
    return [one for one in all_of(node_ids, first_hour, last_hour, bodies=bodies, limit=limit) if one.is_evidence]


def all_of(
    node_ids: Collection[int], first_hour: int, last_hour: int, *, bodies: bool = True, limit: int | None = None
) -> list[Batch]:
    """As `batches_of`, with those that are no evidence."""
    nodes, low = list(node_ids), first_hour - SPAN_HOURS
    tail = "" if limit is None else f"order by i.first_hour desc, i.received_at desc limit {limit + 1:d}"
    found: dict[bytes, Batch] = {}
    asked = [nodes, nodes, low, last_hour, first_hour, day_of(low), day_of(last_hour)]
    for row in execute(_IN_INBOX.format(columns=_COLUMNS, body=_body(bodies), order=tail), asked):
        one = _from_inbox(row)
        found[one.sha256] = one
    if limit is None or len(found) <= limit:
        order = "" if limit is None else f"desc limit {limit:d}"
        packed = execute(
            _IN_PACKS.format(body="p.body" if bodies else "null::bytea", order=order),
            [nodes, nodes, low, last_hour, first_hour],
        )
        for one in _from_packs(packed):
            if one.last_hour >= first_hour:
                found.setdefault(one.sha256, one)
    moved = execute(_MOVED, [nodes, first_hour, last_hour])
    known = _marked(found.values())
    extra = [mark for mark in moved if mark[1] not in found]
    if extra:
        marks = {mark[1]: mark for mark in extra}
        known.update((sha, _with_mark(one, marks[sha])) for sha, one in by_hashes(extra, bodies=bodies).items())
    out = [one for one in known.values() if one.last_hour >= first_hour and one.first_hour <= last_hour]
    out.sort(key=lambda one: (one.row.received_us, one.sha256))
    return out if limit is None else out[-limit - 1 :]


def newest_of(node_id: int, since_hour: int) -> Batch | None:
    """The newest evidence of a node in the inbox from an hour on."""
    return _one_of(node_id, since_hour, 2**31 - 1, "desc")


def oldest_of(node_id: int, first_hour: int, last_hour: int) -> Batch | None:
    """The first evidence of a node within these hours."""
    found = _one_of(node_id, first_hour, last_hour, "asc")
    packed = execute(
        _IN_PACKS.format(body="p.body", order="limit 1"),
        [[node_id], [node_id], first_hour, last_hour, first_hour],
    )
    both = [found] if found else []
    both += [one for one in _marked(_from_packs(packed)).values() if one.is_evidence]
    return min(both, key=lambda one: (one.first_hour, one.row.received_us), default=None)


def get_batch(sha256: bytes, *, bodies: bool = False) -> Batch | None:
    """The batch with this hash, with its mark; None if none was received."""
    rows = execute(_ANY_DAY.format(columns=_COLUMNS, body=_body(bodies)), [sha256])
    found = [_from_inbox(row) for row in rows] or [one for one in _packed([sha256], bodies) if one.sha256 == sha256]
    return next(iter(_marked(found[:1]).values()), None)


def packed_row(sha256: bytes) -> Row | None:
    """What a pack says of the batch with this hash; None if none holds it. The answer to a late second delivery."""
    return next((one.row for one in _packed([sha256], False) if one.sha256 == sha256), None)


def by_hashes(keys: Iterable[Sequence[Any]], *, bodies: bool = True) -> dict[bytes, Batch]:
    """sha256 -> batch of these (sample_day, sha256, …), without their marks."""
    wanted = {bytes(key[1]): key[0] for key in keys}
    if not wanted:
        return {}
    statement = _BY_HASH.format(columns=_COLUMNS, body=_body(bodies))
    found = {one.sha256: one for one in map(_from_inbox, execute(statement, [list(wanted.values()), list(wanted)]))}
    missing = [sha for sha in wanted if sha not in found]
    if missing:
        found.update((one.sha256, one) for one in _packed(missing, bodies) if one.sha256 in wanted)
    return found


def day_of(hour: int) -> date:
    """The UTC day that an hour since 1970 lies in, within what PostgreSQL and Python can say."""
    return date(1970, 1, 1) + timedelta(days=min(max(hour // DAY_HOURS, 0), 2_932_896))


def _one_of(node_id: int, first_hour: int, last_hour: int, direction: str) -> Batch | None:
    """The first or last evidence in the inbox; conflicts and marks that are none are stepped over."""
    order = f"order by i.first_hour {direction}, i.received_at {direction} limit 20"
    rows = execute(
        _IN_INBOX.format(columns=_COLUMNS, body="i.body", order=order),
        [[node_id], [node_id], first_hour, last_hour, first_hour, day_of(first_hour), day_of(last_hour)],
    )
    return next((one for one in _marked(map(_from_inbox, rows)).values() if one.is_evidence), None)


def _body(wanted: bool) -> str:
    return "i.body" if wanted else "''::bytea"


def _from_inbox(row: tuple[Any, ...]) -> Batch:
    """A row of `_COLUMNS` behind the node's id, the body last."""
    node_id, sha256, received_at, *values, last_hour, sample_day, first_hour, body = row
    row_ = Row(sha256, body, packs.micros(received_at), *values, last_hour=last_hour)  # type: ignore[misc]
    return Batch(node_id, sample_day, row_, first_hour, first_hour, last_hour)


def _from_packs(rows: Iterable[tuple[Any, ...]]) -> list[Batch]:
    """Every batch of these packs."""
    found = []
    for node_id, sample_day, first_hour, skeleton, body in rows:
        entries = packs.read_skeleton(skeleton)
        frame = None if body is None else Frame(entries, body)
        found += [
            Batch(
                *(node_id, sample_day, entry.row, first_hour, first_hour, entry.row.last_hour),
                entry=entry,
                frame=frame,
                place=place,
            )
            for place, entry in enumerate(entries)
        ]
    return found


def _packed(hashes: Sequence[bytes], bodies: bool) -> list[Batch]:
    """The batches of all packs that may hold these hashes."""
    prefixes = [packs.prefix_of(sha256) for sha256 in hashes]
    return _from_packs(execute(_PACKED_BY_HASH.format(body="p.body" if bodies else "null::bytea"), [prefixes]))


def _marked(batches: Iterable[Batch]) -> dict[bytes, Batch]:
    """The same with their marks, by hash."""
    found = {one.sha256: one for one in batches}
    if found:
        marks = execute(_MARKS_OF, columns([(one.sample_day, one.sha256) for one in found.values()]))
        for mark in marks:
            found[mark[1]] = _with_mark(found[mark[1]], mark)
    return found


def _with_mark(one: Batch, mark: tuple[Any, ...]) -> Batch:
    _, _, node_id, reason, first_hour, last_hour, error = mark
    return replace(
        one,
        node_id=one.node_id if node_id is None else node_id,
        first_hour=one.first_hour if first_hour is None else first_hour,
        last_hour=one.last_hour if last_hour is None else last_hour,
        reason=reason,
        error=error,
    )
