"""What a proposed rule would have made of the last day, within a few seconds, for the page that proposes it.

Nothing is written. The whole history is compared in the background (`fleet.services_comparisons`).
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from django.db.models import F, Sum

from fleet.comparing import Comparison, Proposal, compare
from fleet.dated import hour_at
from fleet.domain.rules import RulesError, amendment
from fleet.domain.slots import HOUR_MS
from fleet.models import Node, NodeHour
from fleet.selectors_live import title_of
from fleet.services_dated import DatedInvalid

HOURS = 24
BUDGET_SECONDS = 4.0
MOST_NODES = 200


@dataclass(frozen=True)
class Line:
    """What changes of one node: hours of GPUs and ports, lost GPU-weight in seconds before and after, incidents."""

    node: Node
    hours: int
    seconds: int
    lost_before_s: int
    lost_after_s: int
    incidents: tuple[str, ...]


@dataclass(frozen=True)
class Preview:
    """`looked` of `total` nodes that reported in the last 24 hours were folded again; those that lost most first."""

    lines: tuple[Line, ...]
    rules: tuple[str, ...]
    looked: int
    total: int

    @property
    def is_whole(self) -> bool:
        """Whether every node was looked at."""
        return self.looked == self.total


def preview_amendment(now: datetime, code: str, changes: dict[str, object]) -> Preview:
    """Of an amendment. Raises DatedInvalid for what no rule may say."""
    try:
        one = amendment(code, changes, "proposed", (hour_at(now) - HOURS + 1) * HOUR_MS)
    except RulesError as error:
        raise DatedInvalid("changes", str(error)) from error
    return _preview(now, Proposal(hour_at(now) - HOURS + 1, None, (one,)))


def preview_rule_set(now: datetime, version: str) -> Preview:
    """Of the adoption of a rule set. Raises DatedInvalid."""
    return _preview(now, Proposal(hour_at(now) - HOURS + 1, version))


def _preview(now: datetime, proposal: Proposal) -> Preview:
    until = hour_at(now) + 1
    seen = NodeHour.objects.filter(hour__gte=proposal.from_hour, hour__lt=until, node__merged_into=None)
    lost = Sum(F("down_s") + F("degraded_s") + F("pending_s") + F("contested_s") + F("edge_s"))
    order = list(
        seen.values("node_id").annotate(lost=lost).order_by("-lost", "node_id").values_list("node_id", flat=True)
    )
    nodes = Node.objects.select_related("cluster").in_bulk(order[:MOST_NODES])
    ends, looked = time.monotonic() + BUDGET_SECONDS, 0
    lines: list[Line] = []
    rules: set[str] = set()
    for pk in order[:MOST_NODES]:
        if looked and time.monotonic() > ends:
            break
        try:
            found = compare(proposal, until, [nodes[pk]])
        except RulesError as error:
            raise DatedInvalid("changes", str(error)) from error
        looked += 1
        rules.update(one.code for one in found.changes if one.is_weighty)
        lines += _lines(found)
    lines.sort(key=lambda one: (-abs(one.lost_after_s - one.lost_before_s), one.node.name))
    return Preview(tuple(lines), tuple(sorted(rules)), looked, len(order))


def _lines(found: Comparison) -> Sequence[Line]:
    out = []
    for one in found.nodes:
        incidents = []
        for change in one.incidents:
            facts, rules = (change.after, found.new) if change.after is not None else (change.before, found.old)
            assert facts is not None
            incidents.append(f"{change.kind}: {title_of(facts.leading_code(rules))}")
        out.append(
            Line(
                one.node,
                len(one.hours),
                sum(change.seconds for change in one.hours),
                *one.lost_s,
                tuple(incidents),
            )
        )
    return out
