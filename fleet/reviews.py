"""Keeps what asks for a person's look in step with the node hours: rows of its own, written with them and as they say.

A function of the stored hours, so a re-fold changes it with them; it is a table so that a fleet, the API and the
provider's console can ask without reading every strip.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping

from django.db import transaction

from fleet.bodies import closing_state, load_row
from fleet.domain.second_pass import reviews
from fleet.domain.strips import HourRow
from fleet.selectors_rules import find_rules
from fleet.sql import columns, execute

_REMOVE = """
delete from fleet_review r using unnest(%b::bigint[], %b::int[]) as w(node_id, hour)
 where r.node_id = w.node_id and r.hour = w.hour
"""
_WRITE = """
insert into fleet_review (node_id, hour, subject, code, first_slot, end_slot, uuid)
select * from unnest(%b::bigint[], %b::int[], %b::text[], %b::text[], %b::int[], %b::int[], %b::text[])
"""
#: What somebody looked at goes on without a gap: it is still what they looked at.
_GO_ON = """
update fleet_reviewlook l set end_slot = w.end_slot
  from unnest(%b::bigint[], %b::text[], %b::text[], %b::int[], %b::int[]) as w(node_id, subject, code, first, end_slot)
 where l.node_id = w.node_id and l.subject = w.subject and l.code = w.code and l.taken_back_at is null
   and l.first_slot < w.end_slot and w.first <= l.end_slot and l.end_slot < w.end_slot
"""
_LACKING = """
select h.node_id, h.hour, h.body from fleet_nodehour h
 where h.hour = (select max(hour) from fleet_nodehour where hour < %b)
"""


def write_reviews(rows: Mapping[tuple[int, int], HourRow]) -> None:
    """Replace the reviews of these (node, hour), which were just written. Two statements for all of them."""
    forget_reviews(rows)
    found, rules = [], {}
    for (node_id, hour), row in sorted(rows.items()):
        if not row.reasons():
            continue
        version = row.rules_version
        if version not in rules:
            rules[version] = find_rules(version).rules
        asked = reviews(row, rules[version])
        uuids = _uuids(row) if asked else {}
        found += [
            (node_id, hour, one.subject, one.code, one.first_slot, one.end_slot, uuids.get(one.subject, ""))
            for one in asked
        ]
    if found:
        execute(_WRITE, columns(found))
        execute(_GO_ON, columns(_stretches(found)))


def _stretches(found: Iterable[tuple[int, int, str, str, int, int, str]]) -> list[tuple[int, str, str, int, int]]:
    """(node, subject, code, first slot, end slot) of reviews that follow each other over the end of an hour, joined."""
    ends: dict[tuple[int, str, str], tuple[int, int]] = {}
    done = []
    for node_id, _, subject, code, first, end, _ in sorted(found):
        key = (node_id, subject, code)
        start, last = ends.get(key, (first, first))
        if last != first:
            done.append((*key, start, last))
            start = first
        ends[key] = (start, end)
    return [*done, *((*key, *span) for key, span in ends.items())]


def forget_reviews(keys: Iterable[tuple[int, int]]) -> None:
    """Remove the reviews of these (node, hour)."""
    wanted = sorted(keys)
    if wanted:
        execute(_REMOVE, columns(wanted))


def _uuids(row: HourRow) -> dict[str, str]:
    """Subject -> the GPU that sat there as the hour ended; empty where the row does not say."""
    state = closing_state(row)
    return {} if state is None else {f"g{index}": place.uuid for index, place in enumerate(state.places)}


def backfill_reviews(budget_s: float) -> int:
    """Derive, newest first, what the hours ask for that were written before reviews were kept; how many rows were read.

    It stops after the budget (seconds) and goes on from there the next time. An hour of all nodes is one transaction,
    in which the fold waits.
    """
    ends, read = time.monotonic() + budget_s, 0
    while True:
        with transaction.atomic():
            execute("select pg_advisory_xact_lock(hashtext(current_schema() || '.seal'))", [])
            left = execute("select before_hour from fleet_reviewbackfill", [])
            if not left:
                return read
            rows = {(node_id, hour): load_row(body) for node_id, hour, body in execute(_LACKING, [left[0][0]])}
            execute("delete from fleet_reviewbackfill", [])
            if rows:
                write_reviews(rows)
                execute("insert into fleet_reviewbackfill (before_hour) values (%b)", [min(hour for _, hour in rows)])
        read += len(rows)
        if time.monotonic() > ends:
            return read
