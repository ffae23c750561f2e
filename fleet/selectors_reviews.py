"""What asks for a person's look: codes whose rule says so, GPUs that work though a rule says down, contradictions."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from django.db.models import Max, Q, QuerySet

from fleet.domain.slots import SLOT_MS, hour_of_slot, slot_of
from fleet.models import Review
from fleet.selectors_live import reason_of, title_of, to_ms

MOST_REVIEWS = 50
RECENT = timedelta(hours=24)  # what the consoles count


@dataclass(frozen=True)
class ReviewLine:
    """One review: `place` where it is about a GPU, else `subject` names the port or the node (`n`). Absolute slots.

    `uuid`: of the GPU that sat there as the hour of its beginning ended; empty where that is not known.
    """

    node_id: int
    node: str
    cluster: str
    subject: str
    code: str
    first_slot: int
    end_slot: int
    uuid: str = ""

    @property
    def place(self) -> int | None:
        """The GPU's place; None for a port and the node."""
        return int(self.subject[1:]) if self.subject.startswith("g") else None

    @property
    def title(self) -> str:
        """What it is called; a code that no rule knows any more stands for itself."""
        return title_of(self.code)

    @property
    def explanation(self) -> str:
        """What it means, and what to look at."""
        reason = reason_of(self.code)
        return reason.explanation if reason else ""

    @property
    def from_ms(self) -> int:
        """Its beginning, ms since 1970 UTC."""
        return self.first_slot * SLOT_MS

    @property
    def to_ms(self) -> int:
        """Its end."""
        return self.end_slot * SLOT_MS


@dataclass(frozen=True)
class ReviewFilter:
    """What is asked for. Absolute slots: what overlaps `[since_slot, until_slot)`."""

    scope: str = ""
    cluster: str = ""
    node_id: int | None = None
    code: str = ""
    since_slot: int | None = None
    until_slot: int | None = None


def _lines(found: Iterable[Review]) -> list[ReviewLine]:
    return [
        ReviewLine(
            *(one.node_id, one.node.name, one.node.cluster.name, one.subject, one.code),
            *(one.first_slot, one.end_slot, one.uuid),
        )
        for one in found
    ]


def _all() -> QuerySet[Review]:
    return Review.objects.select_related("node__cluster").filter(node__cluster__removed_at=None, node__merged_into=None)


def page_of_reviews(
    wanted: ReviewFilter, after: tuple[int, ...] | None, size: int
) -> tuple[list[ReviewLine], tuple[int, int] | None]:
    """(a page, the newest beginning first, each within its hour; the place after which the next begins). One query."""
    found = _all()
    for cluster in filter(None, (wanted.scope, wanted.cluster)):
        found = found.filter(node__cluster__name=cluster)
    if wanted.code:
        found = found.filter(code=wanted.code)
    if wanted.node_id is not None:
        found = found.filter(node_id=wanted.node_id)
    if wanted.since_slot is not None:
        found = found.filter(end_slot__gt=wanted.since_slot, hour__gte=hour_of_slot(wanted.since_slot))
    if wanted.until_slot is not None:
        found = found.filter(first_slot__lt=wanted.until_slot)
    if after is not None:
        found = found.filter(Q(first_slot__lt=after[0]) | Q(first_slot=after[0], pk__lt=after[1]))
    page = list(found.order_by("-first_slot", "-pk")[: size + 1])
    if len(page) <= size:
        return _lines(page), None
    last = page[size - 1]
    return _lines(page[:size]), (last.first_slot, last.pk)


def list_reviews(node_id: int, first_slot: int, end_slot: int) -> list[ReviewLine]:
    """The node's reviews in `[first_slot, end_slot)`, newest first, those that follow each other joined."""
    hours = {"hour__gte": hour_of_slot(first_slot), "hour__lte": hour_of_slot(end_slot - 1)}
    rows = _all().filter(node_id=node_id, end_slot__gt=first_slot, first_slot__lt=end_slot, **hours)
    found: list[ReviewLine] = []
    last: dict[tuple[str, str], int] = {}
    for one in _lines(rows.order_by("first_slot", "pk")):
        first, end = max(one.first_slot, first_slot), min(one.end_slot, end_slot)
        at = last.get((one.subject, one.code), -1)
        if at >= 0 and found[at].end_slot == first:
            found[at] = replace(found[at], end_slot=end)
        else:
            last[one.subject, one.code] = len(found)
            found.append(replace(one, first_slot=first, end_slot=end))
    return sorted(found, key=lambda line: (-line.first_slot, line.subject, line.code))[:MOST_REVIEWS]


@dataclass(frozen=True)
class ReviewCount:
    """How many subjects a code asks to look at, on which nodes (the first few, of so many), when last."""

    code: str
    subjects: int
    nodes: int
    names: tuple[str, ...]
    last_ms: int

    @property
    def title(self) -> str:
        """What the code is called."""
        return title_of(self.code)


NAMED = 3


def recent_reviews(now: datetime) -> list[ReviewCount]:
    """What asked for a look in the last 24 hours, per code, most subjects first. One query."""
    since = slot_of(to_ms(now - RECENT))
    rows = _all().filter(end_slot__gt=since, hour__gte=hour_of_slot(since))
    by_code: dict[str, list[tuple[str, str, int]]] = {}
    for code, node, subject, end in rows.values_list("code", "node__name", "subject").annotate(Max("end_slot")):
        by_code.setdefault(code, []).append((node, subject, end))
    found = []
    for code, seen in by_code.items():
        names = sorted({node for node, _, _ in seen})
        last = max(end for _, _, end in seen) * SLOT_MS
        found.append(ReviewCount(code, len(seen), len(names), tuple(names[:NAMED]), last))
    return sorted(found, key=lambda one: (-one.subjects, one.code))
