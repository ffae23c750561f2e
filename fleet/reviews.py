"""Keeps what asks for a person's look in step with the node hours: rows of its own, written with them and as they say.

A function of the stored hours, so a re-fold changes it with them; it is a table so that a fleet, the API and the
provider's console can ask without reading every strip.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from fleet.bodies import closing_state
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


def forget_reviews(keys: Iterable[tuple[int, int]]) -> None:
    """Remove the reviews of these (node, hour)."""
    wanted = sorted(keys)
    if wanted:
        execute(_REMOVE, columns(wanted))


def _uuids(row: HourRow) -> dict[str, str]:
    """Subject -> the GPU that sat there as the hour ended; empty where the row does not say."""
    state = closing_state(row)
    return {} if state is None else {f"g{index}": place.uuid for index, place in enumerate(state.places)}
