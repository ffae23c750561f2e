"""Past the raw horizon: days are sealed, and their raw evidence is dropped except where it is needed.

A sealed hour keeps its strips, its closing state and of each batch what its leaf in the log is made of; it is never
folded again, and late data for it is kept with the mark `sealed`. The bytes stay of hours that lost something (and the
hours beside them), and of what others hold (`fleet.holds`): months under an open claim.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime

from django.db import connection, transaction

from fleet.domain.slots import HOUR_MS, SLOTS_PER_HOUR
from fleet.evidence import DAY_HOURS, day_of
from fleet.holds import Hold, holds_of
from fleet.sql import columns, execute

#: Beside an hour that lost something: the evidence that opened the condition, and that closes its last stretch.
MARGIN_HOURS = 1
DEGRADED = "lost something"

_FIRST_DAY = """
select least((select min(first_hour) from fleet_pack where sample_day > '1970-01-01'),
             (select min(hour) from fleet_nodehour)) / 24
"""
_LOSSY = """
select n.key, h.hour from fleet_nodehour h join fleet_node n on n.id = h.node_id or n.merged_into_id = h.node_id
 where h.hour between %b and %b
   and h.down_s + h.degraded_s + h.held_s + h.pending_s + h.contested_s + h.edge_s > 0
union
select n.key, generate_series(greatest(i.first_slot / %b, %b), least((i.end_slot - 1) / %b, %b))
  from fleet_incident i join fleet_node n on n.id = i.node_id or n.merged_into_id = i.node_id
 where i.withdrawn_at is null and i.first_slot <= %b and i.end_slot > %b
"""
_PACKS = """
select id, node_key, first_hour, last_hour, count, kept_for from fleet_pack
 where sample_day = %b and body is not null
"""
_KEEP = """
update fleet_pack p set kept_for = w.why from unnest(%b::bigint[], %b::text[]) as w(id, why)
 where p.id = w.id and p.kept_for <> w.why
"""
_DROP = "update fleet_pack set body = null, kept_for = '', dropped_at = now() where id = any(%b::bigint[])"
_SEAL = """
insert into fleet_sealedday (day, sealed_at, batches, kept) values (%b, now(), 0, 0) on conflict (day) do nothing
"""
_COUNT = """
update fleet_sealedday set batches = w.batches, kept = w.kept
  from (select coalesce(sum(count), 0) as batches, coalesce(sum(count) filter (where body is not null), 0) as kept
          from fleet_pack where sample_day = %b) w where day = %b
"""
_FREEZE = """
with mine as (delete from fleet_nodehour_open where hour between %b and %b returning *)
insert into fleet_nodehour_final ({columns}) select {chosen} from mine
on conflict (node_id, hour, is_final) do nothing
"""


@dataclass
class Sealing:
    """What a run did: days sealed, packs whose bytes were dropped, bytes freed; why it stopped before the horizon."""

    days: int = 0
    dropped: int = 0
    kept: int = 0
    stopped: str = ""


def seal_due(now: datetime, horizon_days: int, progress: Callable[[int], None] = lambda day: None) -> Sealing:
    """Seal, oldest first, each day of the current org that ended before the horizon, and drop what is not needed."""
    done = Sealing()
    ((first,),) = execute(_FIRST_DAY, [])
    ((sealed,),) = execute("select max(day) from fleet_sealedday", [])
    if first is not None:
        start = first if sealed is None else max(first, sealed + 1)
        for day in range(start, today_of(now) - horizon_days):
            done.stopped = _in_the_way(day)
            if done.stopped:
                break
            _seal(day)
            done.days += 1
            progress(day)
    full = execute("select distinct (sample_day - date '1970-01-01') from fleet_pack where body is not null", [])
    through = sealed_through()
    for (day,) in sorted(full):
        if day <= through:
            drop_unneeded(day, done)
    return done


def today_of(now: datetime) -> int:
    """The UTC day of an instant, counted from 1970."""
    return int(now.timestamp() * 1000) // HOUR_MS // DAY_HOURS


def sealed_through() -> int:
    """The newest sealed day of the current org; -1 when none is."""
    return int(execute("select coalesce(max(day), -1) from fleet_sealedday", [])[0][0])


def _in_the_way(day: int) -> str:
    """Why a day can't be sealed yet; empty when it can."""
    first, end = day * DAY_HOURS, (day + 1) * DAY_HOURS
    on = day_of(first)
    counts = execute(
        "select (select count(*) from fleet_waiting where first_hour < %b and sample_day > '1970-01-01'),"
        " (select count(*) from fleet_nodelive where dirty_hour < %b),"
        " (select count(*) from fleet_inbox i where i.sample_day = %b and not exists (select 1 from fleet_batchmark m"
        " where m.sample_day = i.sample_day and m.sha256 = i.sha256 and m.reason = 'failed'))",
        [end, end, on],
    )
    waiting, dirty, unpacked = counts[0]
    if waiting:
        return f"{on}: {waiting} batches wait for the fold"
    if dirty:
        return f"{on}: hours of {dirty} nodes wait to be folded again"
    return f"{on}: {unpacked} batches are not packed yet" if unpacked else ""


@transaction.atomic
def _seal(day: int) -> None:
    """Seal one day: no fold is at work meanwhile, and what was left open of it is logged as it stands."""
    first, last = day * DAY_HOURS, (day + 1) * DAY_HOURS - 1
    execute("select pg_advisory_xact_lock(hashtext(current_schema() || '.seal'))", [])
    with connection.cursor() as cursor:
        cursor.execute(
            "select column_name from information_schema.columns where table_schema = current_schema()"
            " and table_name = 'fleet_nodehour_open' order by ordinal_position"
        )
        names = [row[0] for row in cursor.fetchall()]
    chosen = ", ".join("true" if name == "is_final" else name for name in names)
    execute(_FREEZE.format(columns=", ".join(names), chosen=chosen), [first, last])
    execute(_SEAL, [day])


def drop_unneeded(day: int, done: Sealing) -> None:
    """Drop the bytes of a sealed day's packs that nobody needs; the others get the reason why they stay."""
    first = day * DAY_HOURS
    found = execute(_PACKS, [day_of(first)])
    if not found:
        return
    reach = max(pack[3] for pack in found)
    lossy = _lossy(first - MARGIN_HOURS, reach + MARGIN_HOURS)
    holds = holds_of(first, reach)
    keys = _keys(holds)
    keep: list[tuple[int, str]] = []
    drop: list[int] = []
    for pack_id, node_key, low, high, _, _ in found:
        why = _why(node_key, low, high, lossy, holds, keys)
        if why:
            keep.append((pack_id, why[:200]))
        else:
            drop.append(pack_id)
    with transaction.atomic():
        if keep:
            execute(_KEEP, columns(keep))
        execute(_DROP, [drop])
        execute(_COUNT, [day_of(first), day])
    done.kept += len(keep)
    done.dropped += len(drop)


def _lossy(first_hour: int, last_hour: int) -> dict[int, set[int]]:
    """Node key → hours that lost something or in which an incident was open."""
    slots = SLOTS_PER_HOUR
    span = [slots, first_hour, slots, last_hour, last_hour * slots + slots - 1, first_hour * slots]
    hours: dict[int, set[int]] = defaultdict(set)
    for key, hour in execute(_LOSSY, [first_hour, last_hour, *span]):
        hours[key].add(hour)
    return hours


def _keys(holds: Iterable[Hold]) -> dict[int, set[int]]:
    """Node id → the keys that its batches carry, for the nodes that are held."""
    wanted = {node_id for hold in holds for node_id in hold.node_ids or ()}
    keys: dict[int, set[int]] = defaultdict(set)
    if wanted:
        asked = "select coalesce(merged_into_id, id), key from fleet_node where coalesce(merged_into_id, id) = any(%b)"
        for node_id, key in execute(asked, [sorted(wanted)]):
            keys[node_id].add(key)
    return keys


def _why(
    node_key: int,
    low: int,
    high: int,
    lossy: dict[int, set[int]],
    holds: list[Hold],
    keys: dict[int, set[int]],
) -> str:
    """Why the bytes of a pack with batches of the hours `[low, high]` stay; empty when nothing needs them."""
    hours = lossy.get(node_key, ())
    if any(hour in hours for hour in range(low - MARGIN_HOURS, high + MARGIN_HOURS + 1)):
        return DEGRADED
    for hold in holds:
        mine = hold.node_ids is None or any(node_key in keys[node_id] for node_id in hold.node_ids)
        if mine and low <= hold.last_hour and high >= hold.first_hour:
            return hold.why
    return ""
