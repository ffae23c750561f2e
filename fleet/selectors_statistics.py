"""Reads of fleet statistics: incidents that begin in a span, and its known time as availability reads it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from fleet.domain.rules import load_rules
from fleet.domain.slots import SLOT_S
from fleet.domain.statistics import Fault, GpuShare, Line, Statistics, statistics
from fleet.selectors_api import NodeLine, Span, Wanted, iter_nodes
from fleet.selectors_api_availability import Tally, get_availability
from fleet.selectors_incidents import IncidentLine, lines_of, visible_incidents
from fleet.selectors_live import title_of

MOST_INCIDENTS = 2000  # whose hardware is looked up, the newest; more are said to be left out
BY = ("reason", "model", "node", "device")
COLUMNS = (
    *("by", "key", "title", "party", "cluster", "places", "known_gpu_seconds", "faults", "interruptions"),
    *("degradations", "gpu_seconds_between_interruptions", "repaired", "mean_repair_s", "median_repair_s", "open"),
    *("lost_gpu_seconds", "own_faults", "expected_faults", "repeat_offender"),
)
NO_MODEL = "model unknown"


@dataclass(frozen=True)
class Row:
    """A line of a table with what names it. `id` is a node's, for its link."""

    by: str
    key: str
    title: str
    party: str
    cluster: str
    places: tuple[str, ...]
    line: Line
    id: int | None = None

    @property
    def lost_ws(self) -> int:
        """Weight × GPU-seconds lost, as the pages' filter takes it."""
        return 100 * self.line.lost_s

    def values(self) -> dict[str, Any]:
        """For a download and the API, in the order of COLUMNS."""
        line = self.line
        return dict(
            zip(
                COLUMNS,
                (
                    *(self.by, self.key, self.title, self.party or None, self.cluster or None, "; ".join(self.places)),
                    *(line.known_s, len(line.faults), line.interruptions, line.degradations, line.between_s),
                    *(len(line.repairs), line.mean_repair_s, line.median_repair_s, line.open, line.lost_s),
                    *(len(line.own), round(line.expected, 3), line.is_offender),
                ),
                strict=True,
            )
        )


@dataclass(frozen=True)
class FleetStatistics:
    """All tables of a span. `rolled_up_lost_s`: what the rollups of the span lost, in known time, from any cause."""

    span: Span
    figures: Statistics
    tally: Tally
    gpus: int
    left_out: int
    tables: dict[str, list[Row]]

    @property
    def offenders(self) -> list[Row]:
        """Repeat offenders, those with most faults first."""
        found = [row for by in ("node", "device") for row in self.tables[by] if row.line.is_offender]
        return sorted(found, key=lambda row: (-len(row.line.own), row.by, row.key))

    @property
    def rolled_up_lost_s(self) -> int:
        """GPU-seconds lost in the nominal reading, over all known time of the span."""
        return (100 * self.tally.known - self.tally.nominal) // 100

    @property
    def rolled_up_lost_ws(self) -> int:
        """The same as weight × GPU-seconds."""
        return 100 * self.tally.known - self.tally.nominal

    @property
    def lost_ws(self) -> int:
        """Weight × GPU-seconds lost to the incidents."""
        return 100 * self.figures.whole.lost_s


def get_statistics(now: datetime, span: Span, wanted: Wanted, within: Collection[str] | None = None) -> FleetStatistics:
    """The statistics of a span. `within`: clusters that somebody may see (nothing: all)."""
    availability = get_availability(now, span, "node", wanted)
    nodes = {line.id: line for line in iter_nodes(now, wanted) if not within or line.cluster in within}
    tallies = {one.key["node_id"]: one.tally for one in availability.groups if one.key["node_id"] in nodes}
    whole = Tally()
    for tally in tallies.values():
        whole.add(tally)
    found = visible_incidents(within).filter(
        withdrawn_at=None, first_slot__gte=span.first_slot, first_slot__lt=span.end_slot, node_id__in=nodes
    )
    count = found.count()
    lines = lines_of(now, found.order_by("-first_slot", "-pk")[:MOST_INCIDENTS], whole=False)
    models = {gpu.uuid: gpu.model for line in nodes.values() for gpu in line.now.gpus if gpu.uuid and gpu.model}
    known_by_model, known_by_device = _known(nodes, tallies)
    figures = statistics(
        [_fault(line, models) for line in lines],
        {node: tally.known for node, tally in tallies.items()},
        known_by_model,
        known_by_device,
    )
    return FleetStatistics(
        span=span,
        figures=figures,
        tally=whole,
        gpus=sum(len(line.now.gpus) for line in nodes.values()),
        left_out=count - len(lines),
        tables=_tables(figures, nodes, lines),
    )


def _known(nodes: dict[int, NodeLine], tallies: dict[int, Tally]) -> tuple[dict[str, int], dict[str, int]]:
    """(model → known GPU-seconds, UUID → those of the place that it sits in now): a node's time in equal shares."""
    by_model: dict[str, int] = defaultdict(int)
    by_device: dict[str, int] = {}
    for pk, line in nodes.items():
        share = tallies[pk].known // max(1, len(line.now.gpus)) if pk in tallies else 0
        for gpu in line.now.gpus:
            by_model[gpu.model or NO_MODEL] += share
            if gpu.uuid:
                by_device[gpu.uuid] = share
    return dict(by_model), by_device


def _fault(line: IncidentLine, models: dict[str, str]) -> Fault:
    row = line.row
    parts = {part["subject"]: part for part in row.parts}
    gpus = tuple(
        GpuShare(
            uuid=one.device,
            model=models.get(one.device, NO_MODEL),
            place=one.index or 0,
            weight=parts[one.subject]["weight"],
            lost_s=parts[one.subject]["lost"] * SLOT_S // 100,
        )
        for one in line.affected
        if one.kind == "gpu"
    )
    return Fault(
        fault=row.part_of_id or row.pk,
        node=row.node_id,
        code=row.code,
        is_shared=row.part_of_id is not None or row.nodes_together > 1,
        first_slot=row.first_slot,
        end_slot=row.end_slot,
        is_open=row.is_open,
        lost_s=row.lost_gpu_seconds,
        gpus=gpus,
    )


def _tables(figures: Statistics, nodes: dict[int, NodeLine], lines: tuple[IncidentLine, ...]) -> dict[str, list[Row]]:
    """Each table, what lost most first; devices only those that had a fault."""
    rules = load_rules()
    places: dict[str, list[str]] = defaultdict(list)
    for line in reversed(lines):
        for one in line.affected:
            place = f"GPU {one.index} of {line.row.node.name}"
            if one.kind == "gpu" and one.device and place not in places[one.device]:
                places[one.device].append(place)
    rows: dict[str, list[Row]] = {by: [] for by in BY}
    for code, figure in figures.reasons.items():
        party = rules.reasons[code].party if code in rules.reasons else ""
        rows["reason"].append(Row("reason", code, title_of(code), party, "", (), figure))
    for model, figure in figures.models.items():
        rows["model"].append(Row("model", model, model, "", "", (), figure))
    for pk, figure in figures.nodes.items():
        node = nodes[pk]
        rows["node"].append(Row("node", node.name, node.name, "", node.cluster, (), figure, pk))
    for uuid, figure in figures.devices.items():
        if figure.faults:
            rows["device"].append(Row("device", uuid, uuid, "", "", tuple(places[uuid]), figure))
    for table in rows.values():
        table.sort(key=lambda row: (-row.line.lost_s, -len(row.line.faults), row.key))
    return rows
