"""What pages show of comparisons of rules."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from django.db.models import Count, F, Func, IntegerField, JSONField, Sum

from fleet.domain.slots import HOUR_MS, SLOT_MS
from fleet.models import RuleComparison, RuleComparisonNode
from fleet.selectors_live import title_of

SHOWN_NODES = 100
SHOWN_INCIDENTS = 20  # of a node
SHOWN_HOURS = 48  # of a node


@dataclass(frozen=True)
class ChangedNode:
    """A node's part of a comparison, the first of its incidents and hours (of so many) in words."""

    row: RuleComparisonNode
    incidents: tuple[dict[str, Any], ...]
    hours: tuple[dict[str, Any], ...]
    all_hours: int


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
        return self.row.from_hour * HOUR_MS

    @property
    def until_ms(self) -> int:
        """Where they end."""
        return self.row.until_hour * HOUR_MS


def list_comparisons() -> list[RuleComparison]:
    """The comparisons that are kept, newest first."""
    return list(RuleComparison.objects.all())


def find_comparison(pk: int) -> RuleComparison | None:
    """A comparison; None where there is none of that number."""
    return RuleComparison.objects.filter(pk=pk).first() if pk < 2**63 else None


def get_comparison_page(row: RuleComparison) -> ComparisonPage:
    """What a page shows of it. Two queries, which leave most of the bodies in the database."""
    names = ("hours", "seconds", "lost_before_s", "lost_after_s", "incidents")
    sums = row.nodes.aggregate(nodes=Count("pk"), **{f"sum_{name}": Sum(name) for name in names})
    size = Func(F("lost_after_s") - F("lost_before_s"), function="abs")
    found = row.nodes.select_related("node__cluster").defer("body")
    found = found.annotate(
        first_incidents=_first("incidents", SHOWN_INCIDENTS),
        first_hours=_first("hours", SHOWN_HOURS),
        all_hours=Func(F("body__hours"), function="jsonb_array_length", output_field=IntegerField()),
    ).order_by(size.desc(), "-seconds", "node__name")[:SHOWN_NODES]
    hours, seconds, before, after, incidents = (sums[f"sum_{name}"] or 0 for name in names)
    lines = tuple(map(_line, found))
    return ComparisonPage(row, sums["nodes"], hours, seconds, before, after, incidents, lines)


def stream_nodes(row: RuleComparison) -> Iterator[dict[str, Any]]:
    """The whole of every node that differs, for a download."""
    yield from row.nodes.order_by("node_id").values_list("body", flat=True).iterator(chunk_size=50)


def _first(key: str, most: int) -> Func:
    template = f"jsonb_path_query_array(%(expressions)s, '$.{key}[0 to {most - 1}]')"
    return Func(F("body"), template=template, output_field=JSONField())


def _line(row: Any) -> ChangedNode:
    """`row` with what `get_comparison_page` annotates."""
    incidents = []
    for one in row.first_incidents:
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
            "from_ms": one["hour"] * HOUR_MS,
            "place": int(one["subject"][1:]) if one["subject"].startswith("g") else None,
            "lost": (one["nominal"]["before"] - one["nominal"]["after"]) // 100
            - (one["known_s"]["before"] - one["known_s"]["after"]),
        }
        for one in row.first_hours
    ]
    return ChangedNode(row, tuple(incidents), tuple(hours), row.all_hours)
