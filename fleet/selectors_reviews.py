"""What of a node asks for a person's look: codes whose rule says so, GPUs that work though a rule says down."""

from __future__ import annotations

from dataclasses import dataclass, replace

from fleet.domain.second_pass import reviews
from fleet.domain.slots import SLOT_MS, hour_of_slot
from fleet.node_events import closing_state
from fleet.node_rows import read_rows
from fleet.selectors_rules import find_rules

MOST_REVIEWS = 50


@dataclass(frozen=True)
class ReviewLine:
    """One review: `place` where it is about a GPU, else `subject` names the port or the node (`n`). Absolute slots.

    `uuid`: of the GPU that sat there as the hour of its beginning ended; empty where that is not known.
    """

    subject: str
    place: int | None
    code: str
    title: str
    explanation: str
    first_slot: int
    end_slot: int
    uuid: str = ""

    @property
    def from_ms(self) -> int:
        """Its beginning, ms since 1970 UTC."""
        return self.first_slot * SLOT_MS


def list_reviews(node_id: int, first_slot: int, end_slot: int) -> list[ReviewLine]:
    """The node's reviews in `[first_slot, end_slot)`, newest first, those that follow each other joined.

    They are read from the stored rows, so they change with them and with nothing else.
    """
    hours = range(hour_of_slot(first_slot), hour_of_slot(end_slot - 1) + 1)
    found: list[ReviewLine] = []
    last: dict[tuple[str, str], int] = {}
    for _, row in sorted(read_rows((node_id, hour) for hour in hours).get(node_id, {}).items()):
        rules = find_rules(row.rules_version).rules
        state = closing_state(row)
        uuids = {} if state is None else {index: there.uuid for index, there in enumerate(state.places)}
        for one in reviews(row, rules):
            first, end = max(one.first_slot, first_slot), min(one.end_slot, end_slot)
            if first >= end:
                continue
            key = (one.subject, one.code)
            at = last.get(key)
            if at is not None and found[at].end_slot == first:
                found[at] = replace(found[at], end_slot=end)
                continue
            reason = rules.reasons[one.code]
            place = int(one.subject[1:]) if one.subject.startswith("g") else None
            last[key] = len(found)
            uuid = "" if place is None else uuids.get(place, "")
            found.append(ReviewLine(one.subject, place, one.code, reason.title, reason.explanation, first, end, uuid))
    return sorted(found, key=lambda line: (-line.first_slot, line.subject, line.code))[:MOST_REVIEWS]
