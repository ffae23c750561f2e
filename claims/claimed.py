"""The hours that a claim rests on: those of each counted incident on each of its nodes, with their batches."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db.models import Q

from claims.domain.month_runs import VerdictRun
from claims.node_months import months_between
from claims.verify.folding import fold_window
from fleet import evidence
from fleet.bodies import load_row
from fleet.dated import dated_for
from fleet.domain.context import Dated
from fleet.domain.slots import HOUR_MS, SLOTS_PER_HOUR
from fleet.domain.state import NodeState
from fleet.folding import decoded
from fleet.models import NodeHour

MARGIN_HOURS = 1  # after a window: the evidence that closes its last stretch


@dataclass(frozen=True)
class Window:
    """The hours `first_hour..last_hour` of a node with the batches that touch them; the last one is the margin.

    `state`: the node's closing state before them (empty: none); `dated`: what the org's dated rows say.
    """

    node: str
    node_id: int
    first_hour: int
    last_hour: int
    months: list[str]
    batches: list[evidence.Batch]
    state: bytes
    dated: Dated

    def fold(self, dated: Dated) -> dict[str, list[VerdictRun]]:
        """The runs of its hours under these dated rows."""
        opening = NodeState.from_bytes(self.state) if self.state else None
        hours = {one.sha256: (one.first_hour, one.last_hour) for one in self.batches}
        batches = [decoded(one) for one in self.batches]
        return fold_window(opening, self.first_hour, self.last_hour, batches, dated, hours)

    @property
    def moved(self) -> list[str]:
        """The batches that stand in other hours than they say."""
        return sorted(one.sha256.hex() for one in self.batches if one.reason == "moved")

    @property
    def slots(self) -> tuple[int, int]:
        """`[first, end)` without the margin."""
        return self.first_hour * SLOTS_PER_HOUR, (self.last_hour - MARGIN_HOURS + 1) * SLOTS_PER_HOUR


def find_windows(result: Mapping[str, Any], node_months: Sequence[Mapping[str, Any]]) -> Iterator[Window]:
    """The windows of a report's result, touching ones joined; `node_months` as in its inputs."""
    nodes = {int(one["id"]): one["node"] for one in node_months}
    kept = {(one["id"], one["month"]) for one in node_months}
    hours = _hours(result, nodes)
    dated_of = dated_for(list(hours))
    for node_id, wanted in sorted(hours.items()):
        dated = dated_of(node_id)
        for low, high in _stretches(sorted(wanted)):
            last = high + MARGIN_HOURS
            months = months_between(low * HOUR_MS, (last + 1) * HOUR_MS)
            found = [one for one in evidence.batches_of([node_id], low - 1, last + 1) if one.has_bytes]
            yield Window(
                nodes[node_id],
                node_id,
                low,
                last,
                [month for month in months if (str(node_id), month) in kept],
                found,
                _state_before(node_id, low),
                dated,
            )


def _hours(result: Mapping[str, Any], nodes: Mapping[int, str]) -> dict[int, set[int]]:
    found = result["assessment"].get("result")
    hours: dict[int, set[int]] = {}
    if found is None:
        return hours
    for unit in found["units"]:
        for one in unit["incidents"]:
            names = {name.partition("/")[0] for name in one["subjects"] or [unit["name"]]}
            a, b = (int(datetime.fromisoformat(one[key]).timestamp()) for key in ("start_utc", "end_utc"))
            for node_id, name in nodes.items():
                if name in names:
                    hours.setdefault(node_id, set()).update(range(a // 3600, (b - 1) // 3600 + 1))
    if result["contract"]["kind"] == "weighted":  # it has no list of outages: every hour that lost something
        first = int(found["period"]["first_slot"])
        end = first + int(found["period"]["slots"])
        lossy = NodeHour.objects.filter(
            node_id__in=list(nodes), hour__gte=first // SLOTS_PER_HOUR, hour__lt=-(-end // SLOTS_PER_HOUR)
        ).filter(Q(down_s__gt=0) | Q(degraded_s__gt=0))
        for node_id, hour in lossy.values_list("node_id", "hour"):
            hours.setdefault(node_id, set()).add(hour)
    return hours


def _stretches(hours: list[int]) -> list[tuple[int, int]]:
    out: list[tuple[int, int]] = []
    for hour in hours:
        if out and hour <= out[-1][1] + MARGIN_HOURS + 1:
            out[-1] = (out[-1][0], hour)
        else:
            out.append((hour, hour))
    return out


def _state_before(node_id: int, hour: int) -> bytes:
    """The closing state of the newest earlier hour that has one, in the format of this release."""
    found = NodeHour.objects.filter(node_id=node_id, hour__lt=hour).order_by("-hour").values_list("body", flat=True)
    for body in found[:48]:
        row = load_row(body)
        if row.closing_state:
            return NodeState.from_bytes(row.closing_state, is_sealed=True).to_bytes()
    return b""
