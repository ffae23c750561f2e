"""Fleet statistics: time between interruptions, time to repair, lost GPU-hours, repeat offenders. Sums over incidents.

An *interruption* is a GPU that an incident took down (least weight 0); a *degradation* one that it lowered. A fault of
several nodes is one fault with many interruptions. What counts are incidents that begin in the period, each as a whole.
The time between interruptions is the *known* GPU time divided by their number: time of which nothing is known speaks
neither for nor against the hardware.

A node or device is a *repeat offender* when it had `LEAST_FAULTS` faults of its own (a fault of several nodes is
nobody's own) and the rate of all others makes so many a matter of less than one in a hundred, for the worst of all of
them (Poisson, Bonferroni).
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median

from fleet.domain.slots import SLOT_S

LEAST_FAULTS = 3
CHANCE = 0.01


@dataclass(frozen=True)
class GpuShare:
    """What an incident did to one GPU: its UUID (empty if unknown), model, place, least weight, GPU-seconds lost."""

    uuid: str
    model: str
    place: int
    weight: int
    lost_s: int


@dataclass(frozen=True)
class Fault:
    """An incident of one node. `fault` is the same for all nodes of a cluster-wide one."""

    fault: int
    node: int
    code: str
    is_shared: bool
    first_slot: int
    end_slot: int
    is_open: bool
    lost_s: int
    gpus: tuple[GpuShare, ...]


@dataclass
class Line:
    """One line of a table. `known_s`: GPU-seconds of known time, 0 where a line has no time of its own (a reason)."""

    known_s: int = 0
    faults: set[int] = field(default_factory=set)
    interruptions: int = 0
    degradations: int = 0
    lost_s: int = 0
    repairs: list[int] = field(default_factory=list)
    open: int = 0
    own: set[int] = field(default_factory=set)
    expected: float = 0.0
    is_offender: bool = False

    def add(self, fault: Fault, gpus: Sequence[GpuShare], lost_s: int) -> None:
        """Count an incident with these of its GPUs."""
        self.faults.add(fault.fault)
        if not fault.is_shared:
            self.own.add(fault.fault)
        self.interruptions += sum(gpu.weight == 0 for gpu in gpus)
        self.degradations += sum(0 < gpu.weight < 100 for gpu in gpus)
        self.lost_s += lost_s
        if fault.is_open:
            self.open += 1
        else:
            self.repairs.append((fault.end_slot - fault.first_slot) * SLOT_S)

    @property
    def between_s(self) -> int | None:
        """Known GPU-seconds per interruption, rounded down; None without an interruption or without known time."""
        return self.known_s // self.interruptions if self.interruptions and self.known_s else None

    @property
    def mean_repair_s(self) -> int | None:
        """Mean seconds from an incident's beginning to its end, of those that ended."""
        return sum(self.repairs) // len(self.repairs) if self.repairs else None

    @property
    def median_repair_s(self) -> int | None:
        """Their median: one fault of weeks does not hide how it usually goes."""
        return int(median(self.repairs)) if self.repairs else None


@dataclass(frozen=True)
class Statistics:
    """All tables. Keys: a code, a model, a node's id, a device's UUID."""

    whole: Line
    reasons: Mapping[str, Line]
    models: Mapping[str, Line]
    nodes: Mapping[int, Line]
    devices: Mapping[str, Line]


def statistics(
    faults: Iterable[Fault],
    known_by_node: Mapping[int, int],
    known_by_model: Mapping[str, int],
    known_by_device: Mapping[str, int],
) -> Statistics:
    """The tables of these incidents over this known time (GPU-seconds)."""
    whole = Line(known_s=sum(known_by_node.values()))
    reasons: dict[str, Line] = defaultdict(Line)
    models: dict[str, Line] = {model: Line(known) for model, known in known_by_model.items()}
    nodes: dict[int, Line] = {node: Line(known) for node, known in known_by_node.items()}
    devices: dict[str, Line] = {device: Line(known) for device, known in known_by_device.items()}
    for fault in faults:
        for line in (whole, reasons[fault.code], nodes.setdefault(fault.node, Line())):
            line.add(fault, fault.gpus, fault.lost_s)
        for model in {gpu.model for gpu in fault.gpus}:
            mine = [gpu for gpu in fault.gpus if gpu.model == model]
            models.setdefault(model, Line()).add(fault, mine, sum(gpu.lost_s for gpu in mine))
        for gpu in fault.gpus:
            if gpu.uuid:
                devices.setdefault(gpu.uuid, Line()).add(fault, [gpu], gpu.lost_s)
    mark_offenders(nodes.values())
    mark_offenders(devices.values())
    return Statistics(whole, dict(reasons), models, nodes, devices)


def mark_offenders(lines: Iterable[Line]) -> None:
    """Set `expected` and `is_offender`: compared with the rate of all the others, over its own known time."""
    listed = list(lines)
    faults, known = sum(len(one.own) for one in listed), sum(one.known_s for one in listed)
    for one in listed:
        others = known - one.known_s
        rate = (faults - len(one.own)) / others if others > 0 else 0.0
        one.expected = rate * one.known_s
        # without any fault elsewhere the rate is not 0 but unknown: half a fault can't be told from none
        mean = max(one.expected, 0.5 * one.known_s / others if others > 0 else math.inf)
        is_much = len(one.own) >= LEAST_FAULTS and one.known_s > 0
        one.is_offender = is_much and at_least_chance(len(one.own), mean) < CHANCE / len(listed)


def at_least_chance(count: int, mean: float) -> float:
    """The chance of `count` or more where `mean` are expected (Poisson). 1 for a mean that is not finite."""
    if not math.isfinite(mean):
        return 1.0
    below = sum(math.exp(k * math.log(mean) - mean - math.lgamma(k + 1)) for k in range(count)) if mean > 0 else 1.0
    return max(0.0, 1.0 - below)
