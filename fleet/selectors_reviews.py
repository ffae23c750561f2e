"""What asks for a person's look: codes whose rule says so, GPUs that work though a rule says down, contradictions.

Beside each stands who looked at it (`ReviewLook`); what was looked at asks no more, but is listed as such.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from django.db.models import Exists, Max, OuterRef, Q, QuerySet

from fleet.domain.slots import SLOT_MS, SLOT_S, hour_of_slot, slot_of
from fleet.models import Node, Review, ReviewLook
from fleet.selectors import visible_clusters
from fleet.selectors_live import reason_of, title_of, to_ms

MOST_REVIEWS = 50
CONTESTED = "It was busy and drew more than half its power meanwhile, so nothing is lowered: contested."
RECENT = timedelta(hours=24)  # what the consoles count


@dataclass(frozen=True)
class ReviewLine:
    """One review: `place` where it is about a GPU, else `subject` names the port or the node (`n`). Absolute slots.

    `look`: that somebody looked at it, None while nobody did. `uuid`: of the GPU that sat there as the hour of its
    beginning ended; empty where that is not known.
    """

    node_id: int
    node: str
    cluster: str
    subject: str
    code: str
    first_slot: int
    end_slot: int
    uuid: str = ""
    look: ReviewLook | None = None

    @property
    def key(self) -> str:
        """What it is about, for a form: node, code, subject and an instant in it, never a row's id."""
        return f"{self.node_id}.{self.first_slot}.{self.code}.{self.subject}"

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
    def why(self) -> str:
        """What makes it ask where the explanation doesn't say so: the device worked although the rule says down."""
        reason = reason_of(self.code)
        return CONTESTED if reason and reason.lowers and not reason.review else ""

    @property
    def lasted_s(self) -> int:
        """How long it went on, in seconds."""
        return (self.end_slot - self.first_slot) * SLOT_S

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
    """What is asked for. Absolute slots: what overlaps `[since_slot, until_slot)`; `clusters` by id, None = all."""

    scope: str = ""
    clusters: Collection[int] | None = None
    cluster: str = ""
    node_id: int | None = None
    code: str = ""
    since_slot: int | None = None
    until_slot: int | None = None
    is_looked_at: bool | None = None


def _lines(found: Iterable[Review]) -> list[ReviewLine]:
    rows = list(found)
    looks: dict[tuple[int, str, str], list[ReviewLook]] = defaultdict(list)
    for look in ReviewLook.objects.filter(node__in={one.node_id for one in rows}, taken_back_at=None):
        looks[look.node_id, look.subject, look.code].append(look)
    return [
        ReviewLine(
            *(one.node_id, one.node.name, one.node.cluster.name, one.subject, one.code),
            *(one.first_slot, one.end_slot, one.uuid),
            next(
                (
                    look
                    for look in looks[one.node_id, one.subject, one.code]
                    if look.first_slot < one.end_slot and one.first_slot < look.end_slot
                ),
                None,
            ),
        )
        for one in rows
    ]


def looked_at() -> Exists:
    """Of a row of `Review`: whether somebody looked at it."""
    same = ReviewLook.objects.filter(node=OuterRef("node"), subject=OuterRef("subject"), code=OuterRef("code"))
    return Exists(
        same.filter(taken_back_at=None, first_slot__lt=OuterRef("end_slot"), end_slot__gt=OuterRef("first_slot"))
    )


def _all() -> QuerySet[Review]:
    return Review.objects.select_related("node__cluster").filter(node__cluster__removed_at=None, node__merged_into=None)


def page_of_reviews(
    wanted: ReviewFilter, after: tuple[int, ...] | None, size: int
) -> tuple[list[ReviewLine], tuple[int, int] | None]:
    """(a page, the newest beginning first, each within its hour; the place after which the next begins)."""
    found = _all()
    if wanted.clusters is not None:
        found = found.filter(node__cluster__in=wanted.clusters)
    if wanted.is_looked_at is not None:
        found = found.filter(looked_at() if wanted.is_looked_at else ~looked_at())
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


def sees_nodes(ids: Collection[int], within: str | Collection[str] | None) -> bool:
    """Whether all of these are nodes of clusters that the asker may see (as `visible_clusters` takes them)."""
    return Node.objects.filter(pk__in=ids, cluster__in=visible_clusters(within)).count() == len(ids)


def find_look(pk: int, within: str | Collection[str] | None) -> ReviewLook | None:
    """A mark of a node of a cluster that the asker may see, taken back or not."""
    if pk >= 2**63:
        return None
    rows = ReviewLook.objects.select_related("node").filter(pk=pk, node__cluster__in=visible_clusters(within))
    found: ReviewLook | None = rows.first()
    return found


def list_reviews(node_id: int, first_slot: int, end_slot: int) -> list[ReviewLine]:
    """The node's reviews in `[first_slot, end_slot)`, those that follow each other joined: newest first, and first of
    all what nobody looked at."""
    hours = {"hour__gte": hour_of_slot(first_slot), "hour__lte": hour_of_slot(end_slot - 1)}
    rows = _all().filter(node_id=node_id, end_slot__gt=first_slot, first_slot__lt=end_slot, **hours)
    lines = (
        replace(one, first_slot=max(one.first_slot, first_slot), end_slot=min(one.end_slot, end_slot))
        for one in _lines(rows.order_by("first_slot", "pk"))
    )
    return joined(lines)[:MOST_REVIEWS]


def joined(lines: Iterable[ReviewLine]) -> list[ReviewLine]:
    """Reviews, given oldest first, with those that follow each other as one: what nobody looked at, newest, first."""
    found: list[ReviewLine] = []
    last: dict[tuple[int, str, str], int] = {}
    for one in lines:
        key = (one.node_id, one.subject, one.code)
        at = last.get(key, -1)
        if at >= 0 and found[at].end_slot == one.first_slot:
            found[at] = replace(found[at], end_slot=one.end_slot, look=found[at].look or one.look)
        else:
            last[key] = len(found)
            found.append(one)
    found.sort(key=lambda line: (line.look is not None, -line.first_slot, line.node, line.subject, line.code))
    return found


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


def count_asking(now: datetime, within: Collection[str] = (), node_id: int | None = None) -> int:
    """How many subjects asked for a look in the last 24 hours and got none, each once per code. One query.

    `within` names the clusters; nothing: all.
    """
    since = slot_of(to_ms(now - RECENT))
    rows = _all().filter(~looked_at(), end_slot__gt=since, hour__gte=hour_of_slot(since))
    if within:
        rows = rows.filter(node__cluster__name__in=within)
    if node_id is not None:
        rows = rows.filter(node=node_id)
    return rows.order_by().values("node", "subject", "code").distinct().count()


def recent_reviews(now: datetime) -> list[ReviewCount]:
    """What asked for a look in the last 24 hours and got none, per code, most subjects first. One query."""
    since = slot_of(to_ms(now - RECENT))
    rows = _all().filter(~looked_at(), end_slot__gt=since, hour__gte=hour_of_slot(since))
    by_code: dict[str, list[tuple[str, str, int]]] = {}
    for code, node, subject, end in rows.values_list("code", "node__name", "subject").annotate(Max("end_slot")):
        by_code.setdefault(code, []).append((node, subject, end))
    found = []
    for code, seen in by_code.items():
        names = sorted({node for node, _, _ in seen})
        last = max(end for _, _, end in seen) * SLOT_MS
        found.append(ReviewCount(code, len(seen), len(names), tuple(names[:NAMED]), last))
    return sorted(found, key=lambda one: (-one.subjects, one.code))
