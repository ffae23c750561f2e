"""What pages show of comparisons of rules."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from django.db.models import Count, F, Func, Sum

from fleet.domain.slots import SLOT_MS
from fleet.models import RuleComparison, RuleComparisonNode
from fleet.selectors_live import title_of

SHOWN_NODES = 100
SHOWN_INCIDENTS = 20  # of a node
SHOWN_HOURS = 48  # of a node


@dataclass(frozen=True)
class ChangedNode:
    """A node's part of a comparison, the first of its incidents and hours in words."""

    row: RuleComparisonNode
    incidents: tuple[dict[str, Any], ...]
    hours: tuple[dict[str, Any], ...]


@dataclass(frozen=True)
class ComparisonPage:
    """A comparison with its sums over the nodes that differ; the nodes whose loss changes most."""

    row: RuleComparison
    nodes: int
    hours: int
    seconds: int
    lost_before_s: int
    lost_after_s: int
    incidents: int
    lines: tuple[ChangedNode, ...]

    @property
    def percent(self) -> int:
        """How far it is, 0 to 100."""
        return 100 * self.row.nodes_done // max(1, self.row.nodes_total)

    @property
    def moved(self) -> list[dict[str, Any]]:
        """The rules that differ in what moves a verdict, without their sources."""
        return [
            {**one, "title": title_of(one["code"]), "keys": [key for key in one["keys"] if key["key"] != "sources"]}
            for one in self.row.rules
            if one["moves_verdicts"]
        ]

    @property
    def from_ms(self) -> int:
        """Where the hours compared begin."""
        return self.row.from_hour * 3_600_000

    @property
    def until_ms(self) -> int:
        """Where they end."""
        return self.row.until_hour * 3_600_000


def list_comparisons() -> list[RuleComparison]:
    """The comparisons that are kept, newest first."""
    return list(RuleComparison.objects.all())


def get_comparison(pk: int) -> ComparisonPage | None:
    """A comparison; None where there is none of that number. Three queries."""
    row = RuleComparison.objects.filter(pk=pk).first() if pk < 2**63 else None
    if row is None:
        return None
    names = ("hours", "seconds", "lost_before_s", "lost_after_s", "incidents")
    sums = row.nodes.aggregate(nodes=Count("pk"), **{f"sum_{name}": Sum(name) for name in names})
    size = Func(F("lost_after_s") - F("lost_before_s"), function="abs")
    found = row.nodes.select_related("node__cluster").order_by(size.desc(), "-seconds", "node__name")[:SHOWN_NODES]
    hours, seconds, before, after, incidents = (sums[f"sum_{name}"] or 0 for name in names)
    lines = tuple(map(_line, found))
    return ComparisonPage(row, sums["nodes"], hours, seconds, before, after, incidents, lines)


def stream_nodes(row: RuleComparison) -> Iterator[dict[str, Any]]:
    """The whole of every node that differs, for a download."""
    yield from row.nodes.order_by("node_id").values_list("body", flat=True).iterator(chunk_size=50)


def _line(row: RuleComparisonNode) -> ChangedNode:
    incidents = []
    for one in row.body["incidents"][:SHOWN_INCIDENTS]:
        side = one["after"] or one["before"]
        lost = [other["lost_gpu_seconds"] if other else 0 for other in (one["before"], one["after"])]
        incidents.append(
            {
                "kind": one["kind"],
                "title": title_of(side["code"]),
                "from_ms": side["first_slot"] * SLOT_MS,
                "parties": [other["party"] if other else None for other in (one["before"], one["after"])],
                "lost": lost,
                "why": one["why"],
            }
        )
    hours = [
        {
            **one,
            "from_ms": one["hour"] * 3_600_000,
            "place": int(one["subject"][1:]) if one["subject"].startswith("g") else None,
            "lost": (one["nominal"]["before"] - one["nominal"]["after"]) // 100
            - (one["known_s"]["before"] - one["known_s"]["after"]),
        }
        for one in row.body["hours"][:SHOWN_HOURS]
    ]
    return ChangedNode(row, tuple(incidents), tuple(hours))
