"""Prometheus' text format, and the metrics of a fleet in it. Names and meanings stand in `METRICS` and docs/api.md.

Bounded: a fixed number of series per GPU and node, no reason, batch or person in a label. Fleets of more than
`MAX_GPUS` keep their series per node and cluster and say so.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction

from fleet.selectors_api import NodeLine
from fleet.selectors_live import WORDS, Gpu

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
MAX_GPUS = 20_000

#: name → (type, help)
METRICS = {
    "goodput_gpu_weight_ratio": ("gauge", "Weight of a GPU now, 0 to 1; absent while it is unknown."),
    "goodput_gpu_weight_lower_loss_ratio": ("gauge", "The same as claims read it: unknown counts as 1."),
    "goodput_gpu_weight_higher_loss_ratio": ("gauge", "The same with the higher loss: unknown counts as 0."),
    "goodput_gpu_state": ("gauge", "1 for the state that a GPU is in now, 0 for the others."),
    "goodput_gpu_coverage_ratio": ("gauge", "Share of the last full hour in which a GPU's state is known."),
    "goodput_gpu_info": ("gauge", "1; the device that sits in the place now."),
    "goodput_node_weight_ratio": ("gauge", "Mean weight of a node's known GPUs now; absent while none is known."),
    "goodput_node_state": ("gauge", "1 for the worst state among a node's GPUs, 0 for the others."),
    "goodput_node_gpus": ("gauge", "GPUs of a node."),
    "goodput_node_availability_ratio": ("gauge", "Nominal availability over known time of the last 24 hours."),
    "goodput_node_coverage_ratio": ("gauge", "Share of the last 24 hours that is known."),
    "goodput_node_open_incidents": ("gauge", "Open incidents of a node."),
    "goodput_node_silent": ("gauge", "1 when a node was not heard for three minutes."),
    "goodput_node_last_sample_timestamp_seconds": ("gauge", "Instant of the newest sample."),
    "goodput_node_last_received_timestamp_seconds": ("gauge", "When the agent was last heard."),
    "goodput_node_dropped_batches_total": ("counter", "Batches that the agent had to evict, as it counts."),
    "goodput_node_info": ("gauge", "1; the agent and driver of a node."),
    "goodput_cluster_gpus": ("gauge", "GPUs of a cluster by state."),
    "goodput_cluster_open_incidents": ("gauge", "Open incidents of a cluster; a cluster-wide one counts once."),
    "goodput_metrics_truncated": ("gauge", "1 when there are too many GPUs for series of their own."),
}


@dataclass(frozen=True)
class NodeFigures:
    """Sums of a node over the last 24 hours, GPU-seconds, and per GPU's index the known seconds of the last hour."""

    nominal: int = 0
    known: int = 0
    counted: int = 0
    last_hour: Mapping[int, int] | None = None


def escape(value: str) -> str:
    """A label's value as it stands between the quotes."""
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


class Page:
    """Collects samples by metric and writes them with their help and type."""

    def __init__(self) -> None:
        self._lines: dict[str, list[str]] = {name: [] for name in METRICS}

    def add(self, name: str, value: int | Fraction, labels: Mapping[str, str]) -> None:
        """One sample."""
        inner = ",".join(f'{key}="{escape(text)}"' for key, text in labels.items())
        number = str(value) if isinstance(value, int) else repr(float(value))
        self._lines[name].append(f"{name}{{{inner}}} {number}" if inner else f"{name} {number}")

    def text(self) -> str:
        """The page; metrics without a sample are left out."""
        out: list[str] = []
        for name, lines in self._lines.items():
            if lines:
                kind, about = METRICS[name]
                out += [f"# HELP {name} {about}", f"# TYPE {name} {kind}", *lines]
        return "\n".join(out) + "\n"


def as_text(nodes: list[NodeLine], figures: Mapping[int, NodeFigures]) -> str:
    """The metrics of these nodes."""
    page = Page()
    is_truncated = sum(len(line.now.gpus) for line in nodes) > MAX_GPUS
    clusters: dict[str, list[NodeLine]] = {}
    for line in nodes:
        clusters.setdefault(line.cluster, []).append(line)
        _add_node(page, line, figures.get(line.id, NodeFigures()))
        if not is_truncated:
            known = figures.get(line.id, NodeFigures()).last_hour or {}
            for gpu in line.now.gpus:
                _add_gpu(page, line, gpu, known.get(gpu.place, 0))
    for name, lines in clusters.items():
        for word in WORDS:
            page.add("goodput_cluster_gpus", sum(n.now.count(word) for n in lines), {"cluster": name, "state": word})
        page.add("goodput_cluster_open_incidents", sum(n.own_incidents for n in lines), {"cluster": name})
    page.add("goodput_metrics_truncated", int(is_truncated), {})
    return page.text()


def _names(line: NodeLine) -> dict[str, str]:
    return {"cluster": line.cluster, "node": line.name, "node_id": str(line.id)}


def _add_node(page: Page, line: NodeLine, sums: NodeFigures) -> None:
    labels, now = _names(line), line.now
    weights = [gpu.weight for gpu in now.gpus if gpu.weight is not None]
    if weights:
        page.add("goodput_node_weight_ratio", Fraction(sum(weights), 100 * len(weights)), labels)
    for word in WORDS:
        page.add("goodput_node_state", int(word == now.word), {**labels, "state": word})
    page.add("goodput_node_gpus", len(now.gpus), labels)
    if sums.known:
        page.add("goodput_node_availability_ratio", Fraction(sums.nominal, 100 * sums.known), labels)
    if sums.counted:
        page.add("goodput_node_coverage_ratio", Fraction(min(sums.known, sums.counted), sums.counted), labels)
    page.add("goodput_node_open_incidents", line.open_incidents, labels)
    page.add("goodput_node_silent", int(now.is_silent), labels)
    if line.last_sample_ms is not None:
        page.add("goodput_node_last_sample_timestamp_seconds", Fraction(line.last_sample_ms, 1000), labels)
    if line.last_received_ms is not None:
        page.add("goodput_node_last_received_timestamp_seconds", Fraction(line.last_received_ms, 1000), labels)
    page.add("goodput_node_dropped_batches_total", line.dropped_total, labels)
    simulated = "true" if line.is_simulated else "false"
    more = {"agent_version": line.agent_version, "driver_version": now.driver, "simulated": simulated}
    page.add("goodput_node_info", 1, {**labels, **more})


def _add_gpu(page: Page, line: NodeLine, gpu: Gpu, known_s: int) -> None:
    labels = {**_names(line), "gpu": str(gpu.place)}
    if gpu.weight is not None:
        page.add("goodput_gpu_weight_ratio", Fraction(gpu.weight, 100), labels)
    page.add("goodput_gpu_weight_lower_loss_ratio", Fraction(gpu.lower, 100), labels)
    page.add("goodput_gpu_weight_higher_loss_ratio", Fraction(gpu.upper, 100), labels)
    for word in WORDS:
        page.add("goodput_gpu_state", int(word == gpu.word), {**labels, "state": word})
    page.add("goodput_gpu_coverage_ratio", Fraction(known_s, 3600), labels)
    page.add("goodput_gpu_info", 1, {**labels, "uuid": gpu.uuid, "model": gpu.model, "pci_bus_id": gpu.bus_id})
