"""The fleet as JSON and CSV: the page's numbers for programs. Weights are 0..100, instants RFC 3339, UTC."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from fleet.attention import Trouble
from fleet.hour_sums import Sums
from fleet.reading import ClusterRows, Fleet, NodeRow
from fleet.selectors_live import Gpu, from_ms
from orgs.sheets import as_csv as sheet

COLUMNS = (
    "as_of",
    "period",
    "from",
    "to",
    "cluster",
    "simulated",
    "node",
    "gpu",
    "uuid",
    "pci_bus_id",
    "model",
    "state",
    "marks",
    "weight",
    "claims_weight",
    "upper_loss_weight",
    "since",
    "reasons",
    "party",
    "last_sample",
    "agent_version",
    "node_availability_percent",
    "node_coverage_percent",
    "node_gpu_hours_lost",
)


MOST_TROUBLES = 200  # of a fleet whose nodes are not listed


def as_json(fleet: Fleet, most_nodes: int | None = None) -> dict[str, Any]:
    """JSON-ready: figures of the whole fleet, clusters with the nodes that the filter asks for.

    A fleet of more than `most_nodes` gets no nodes and its worst troubles only: `nodes_listed` says so.
    """
    is_listed = most_nodes is None or fleet.node_count <= most_nodes
    return {
        "as_of": when(fleet.as_of_ms),
        "period": {
            "name": fleet.period.key,
            "from": when(fleet.window.first_slot * 15_000),
            "to": when(fleet.window.now_slot * 15_000),
        },
        "simulated": bool(fleet.simulated) and not fleet.has_real,
        "gpus": {"total": fleet.gpu_count, **fleet.counts},
        "nodes": {"total": fleet.node_count, "silent": fleet.silent},
        **figures(fleet.sums),
        "dropped_batches": fleet.dropped_total,
        "nodes_listed": is_listed,
        "open_incidents": fleet.open_count,
        "trouble_count": len(fleet.troubles),
        "troubles": [_trouble(trouble) for trouble in fleet.troubles[: None if is_listed else MOST_TROUBLES]],
        "clusters": [_cluster(cluster, is_listed) for cluster in (*fleet.clusters, *fleet.more_clusters)],
    }


def figures(sums: Sums) -> dict[str, Any]:
    """Floored percentages as text beside the exact integers that they come from; null where nothing is known."""
    return {
        "availability_percent": floored(sums.nominal, 100 * sums.known),
        "availability_lower_loss_percent": floored(sums.lower, 100 * sums.all),
        "availability_higher_loss_percent": floored(sums.upper, 100 * sums.all),
        "coverage_percent": floored(sums.known, sums.all),
        "sums": sums.as_seconds(),
    }


def floored(part: int, whole: int, digits: int = 2) -> str | None:
    """`part / whole` in per cent, cut off after `digits` and never rounded up: `100` only if nothing is missing."""
    if whole <= 0:
        return None
    if part >= whole:
        return "100"
    units = part * 100 * 10**digits // whole
    return f"{units // 10**digits}.{units % 10**digits:0{digits}d}" if digits else str(units)


def when(ms: int | None) -> str | None:
    """RFC 3339, UTC, to the second."""
    return None if ms is None else from_ms(ms).strftime("%Y-%m-%dT%H:%M:%SZ")


def _cluster(cluster: ClusterRows, is_listed: bool) -> dict[str, Any]:
    return {
        "name": cluster.name,
        "simulated": cluster.is_simulated,
        "node_count": cluster.node_count,
        "gpu_count": cluster.gpu_count,
        **figures(cluster.sums),
        "nodes": [node_json(row) for row in cluster.nodes] if is_listed else [],
    }


def node_json(row: NodeRow) -> dict[str, Any]:
    """A node: what it is now, its figures over the period, its GPUs now."""
    return {
        "id": row.id,
        "cluster": row.cluster,
        "name": row.name,
        "simulated": row.is_simulated,
        "state": row.now.word,
        "silent": row.now.is_silent,
        "last_sample": when(row.last_sample_ms),
        "agent_version": row.agent_version,
        "driver_version": row.now.driver or None,
        "dropped_batches": row.dropped_total,
        **figures(row.sums),
        "gpus": [_gpu(gpu) for gpu in row.now.gpus],
    }


def _gpu(gpu: Gpu) -> dict[str, Any]:
    return {
        "index": gpu.place,
        "uuid": gpu.uuid or None,
        "pci_bus_id": gpu.bus_id or None,
        "model": gpu.model or None,
        "state": gpu.word,
        "marks": list(gpu.marks),
        "weight": gpu.weight,
        "lower_loss_weight": gpu.lower,
        "higher_loss_weight": gpu.upper,
        "since": when(gpu.since_ms),
        "causes": list(gpu.causes),
        "reasons": [
            {
                "code": condition.code,
                "title": condition.title,
                "party": condition.party,
                "weight": condition.weight,
                "certain": condition.is_certain,
                "since": when(condition.since_ms),
                "action": condition.action or None,
            }
            for condition in gpu.conditions
        ],
    }


def _trouble(trouble: Trouble) -> dict[str, Any]:
    return {
        "cluster": trouble.cluster,
        "node": trouble.node,
        "gpus": [{"index": place, "uuid": uuid or None} for place, uuid in trouble.subjects],
        "state": trouble.word,
        "code": trouble.code,
        "title": trouble.what,
        "also": list(trouble.also),
        "mark": trouble.mark or None,
        "text": trouble.text,
        "action": trouble.action or None,
        "party": trouble.party,
        "since": when(trouble.since_ms),
    }


def as_csv(fleet: Fleet) -> str:
    """One line per GPU of the nodes that the filter asks for; cells that a spreadsheet would run are made inert."""
    return sheet(COLUMNS, _lines(fleet))


def _lines(fleet: Fleet) -> Iterator[list[Any]]:
    head = [
        when(fleet.as_of_ms),
        fleet.period.key,
        when(fleet.window.first_slot * 15_000),
        when(fleet.window.now_slot * 15_000),
    ]
    for cluster in (*fleet.clusters, *fleet.more_clusters):
        for row in cluster.nodes:
            tail = [
                when(row.last_sample_ms),
                row.agent_version,
                floored(row.sums.nominal, 100 * row.sums.known),
                floored(row.sums.known, row.sums.all),
                f"{row.sums.lost_gpu_hours:.3f}",
            ]
            for gpu in row.now.gpus:
                reasons = [condition.code for condition in gpu.conditions] or list(gpu.causes)
                yield [
                    *head,
                    cluster.name,
                    "yes" if cluster.is_simulated else "no",
                    row.name,
                    gpu.place,
                    gpu.uuid,
                    gpu.bus_id,
                    gpu.model,
                    gpu.word,
                    " ".join(gpu.marks),
                    gpu.weight,
                    gpu.lower,
                    gpu.upper,
                    when(gpu.since_ms),
                    " ".join(reasons),
                    gpu.conditions[0].party if gpu.conditions else "",
                    *tail,
                ]
