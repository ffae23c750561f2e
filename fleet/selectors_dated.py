"""Reads of dated rows for pages and the API: expected hardware beside what is there, probes, maintenance windows."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from django.db.models import Q, QuerySet

from fleet.domain.slots import SLOT_S, SLOTS_PER_HOUR
from fleet.models import DeviceAssignment, ExpectedHardware, MaintenanceWindow, Node, NodeLive, ProbeRun, ProbeTarget
from fleet.reading import NodeRow
from fleet.selectors import natural, visible_clusters

MOST_NODES = 500  # of a page
RUNS = 20


@dataclass(frozen=True)
class Seen:
    """What a node's newest samples show: the devices in its places, its expected ports."""

    gpus: int
    devices: tuple[str, ...]
    bus_ids: tuple[str, ...]
    ports: tuple[str, ...]


@dataclass(frozen=True)
class HardwareLine:
    """A node, the declaration in force, what is there, and what differs, in words."""

    node: Node
    cluster: str
    declared: ExpectedHardware | None
    seen: Seen
    differences: tuple[str, ...]
    probe: ProbeTarget | None
    last_run: ProbeRun | None


@dataclass(frozen=True)
class HardwarePage:
    """Lines by cluster and name; `hidden` more were not read."""

    lines: tuple[HardwareLine, ...]
    hidden: int
    clusters: tuple[str, ...]


def seen_of(summary: dict[str, Any]) -> Seen:
    """What the live summary of a node shows."""
    subjects = summary.get("subjects", ())
    gpus = [one for one in subjects if one.get("kind") == "gpu"]
    held = [one for one in gpus if one.get("device")]
    return Seen(
        len(held),
        tuple(one["device"] for one in held),
        tuple(one["bus_id"] for one in held if one.get("bus_id")),
        tuple(one["device"] for one in subjects if one.get("kind") == "port" and one.get("device")),
    )


def differences(declared: ExpectedHardware | None, seen: Seen) -> tuple[str, ...]:
    """What the declaration names and the node does not show, and the other way round; sentences for people."""
    if declared is None:
        return ()
    out = []
    if declared.gpus is not None and declared.gpus != seen.gpus:
        out.append(
            f"{seen.gpus} of {declared.gpus} GPUs were ever seen"
            if seen.gpus < declared.gpus
            else f"{seen.gpus} GPUs are there, {declared.gpus} expected"
        )
    there = {*seen.devices, *seen.bus_ids}
    away = [one for one in declared.devices if one not in there]
    if away:
        out.append(f"not there: {', '.join(away[:4])}{' …' if len(away) > 4 else ''}")
    if declared.devices and declared.gpus is not None and len(declared.devices) == declared.gpus:
        named = set(declared.devices)
        pairs = list(zip(seen.devices, seen.bus_ids, strict=False))
        strange = [uuid for uuid, bus in pairs if uuid not in named and bus not in named]
        if strange:
            out.append(f"not declared: {', '.join(strange[:4])}{' …' if len(strange) > 4 else ''}")
    return tuple(out)


def in_force(rows: Iterable[ExpectedHardware], now: datetime) -> ExpectedHardware | None:
    """The declaration that counts now: the newest of those in force."""
    alive = [
        row
        for row in rows
        if row.withdrawn_at is None and row.from_at <= now and (row.until_at is None or row.until_at > now)
    ]
    return max(alive, key=lambda row: row.pk, default=None)


def get_hardware_page(now: datetime, within: Collection[str] | None, search: str = "") -> HardwarePage:
    """The nodes that somebody may see, those that differ first. Four queries."""
    clusters = visible_clusters(within)
    lives = NodeLive.objects.select_related("node").filter(node__cluster_id__in=clusters, node__merged_into=None)
    lives = lives.filter(node__retired_at=None).only("node", "summary")
    if search:
        lives = lives.filter(Q(node__name__icontains=search) | Q(node__label__icontains=search))
    found = sorted(lives, key=lambda live: (natural(clusters[live.node.cluster_id].name), natural(live.node.name)))
    rows: dict[int, list[ExpectedHardware]] = {}
    for row in ExpectedHardware.objects.filter(node__cluster_id__in=clusters, withdrawn_at=None):
        rows.setdefault(row.node_id, []).append(row)
    probes = {row.node_id: row for row in ProbeTarget.objects.filter(until_at=None, withdrawn_at=None)}
    newest = ProbeRun.objects.filter(target_id__in=[row.pk for row in probes.values()]).order_by(
        "target_id", "-last_at"
    )
    runs = {run.node_id: run for run in newest.distinct("target_id")}
    lines = []
    for live in found:
        declared, seen = in_force(rows.get(live.node_id, ()), now), seen_of(live.summary)
        lines.append(
            HardwareLine(
                live.node,
                clusters[live.node.cluster_id].name,
                declared,
                seen,
                differences(declared, seen),
                probes.get(live.node_id),
                runs.get(live.node_id),
            )
        )
    lines.sort(key=lambda line: not line.differences)
    names = tuple(sorted((cluster.name for cluster in clusters.values()), key=natural))
    return HardwarePage(tuple(lines[:MOST_NODES]), max(0, len(lines) - MOST_NODES), names)


@dataclass(frozen=True)
class NodeHardware:
    """Everything that was declared of one node, newest first."""

    node: Node
    seen: Seen
    declared: ExpectedHardware | None
    differences: tuple[str, ...]
    rows: tuple[ExpectedHardware, ...]
    assignments: tuple[DeviceAssignment, ...]
    probes: tuple[tuple[ProbeTarget, tuple[ProbeRun, ...]], ...]


def get_node_hardware(now: datetime, node: Node) -> NodeHardware:
    """One node's dated rows and its probes with their newest runs."""
    live = getattr(node, "live", None)
    seen = seen_of(live.summary if live else {})
    rows = tuple(ExpectedHardware.objects.filter(node=node).order_by("-pk"))
    declared = in_force(rows, now)
    probes = []
    for target in ProbeTarget.objects.filter(node=node).order_by("-pk")[:RUNS]:
        probes.append((target, tuple(target.runs.order_by("-last_at")[:RUNS])))
    return NodeHardware(
        node,
        seen,
        declared,
        differences(declared, seen),
        rows,
        tuple(DeviceAssignment.objects.filter(node=node).order_by("-pk")),
        tuple(probes),
    )


@dataclass(frozen=True)
class NodeNote:
    """What the node's page says of its declaration and its probe."""

    declared: ExpectedHardware | None
    differences: tuple[str, ...]
    run: ProbeRun | None


def get_node_note(now: datetime, row: NodeRow) -> NodeNote:
    """The declaration in force, what differs from it, the newest result of a probe that still looks. Two queries."""
    declared = in_force(ExpectedHardware.objects.filter(node_id=row.id, withdrawn_at=None), now)
    runs = ProbeRun.objects.filter(node_id=row.id, last_at__gt=now - timedelta(hours=2), target__until_at=None)
    run = runs.select_related("target").order_by("-last_at").first()
    held = [gpu for gpu in row.now.gpus if gpu.uuid]
    seen = Seen(len(held), tuple(gpu.uuid for gpu in held), tuple(gpu.bus_id for gpu in held if gpu.bus_id), ())
    return NodeNote(declared, differences(declared, seen), run)


def windows_over(
    node: Node, from_at: datetime, until_at: datetime, place: int | None = None
) -> list[MaintenanceWindow]:
    """The windows that touch `[from_at, until_at)` of a node; with `place` those of that GPU, else of any of it."""
    rows = MaintenanceWindow.objects.filter(
        Q(node=None) | Q(node=node), cluster_id=node.cluster_id, starts_at__lt=until_at, ends_at__gt=from_at
    ).filter(withdrawn_at=None)
    if place is not None:
        rows = rows.filter(Q(place=None) | Q(place=place))
    return list(rows.order_by("starts_at", "pk"))


def list_windows(within: Collection[str] | None) -> QuerySet[MaintenanceWindow]:
    """The windows of the clusters that somebody may see, the latest first, withdrawn ones too."""
    return (
        MaintenanceWindow.objects.filter(cluster_id__in=visible_clusters(within))
        .select_related("cluster", "node")
        .order_by("-starts_at", "-pk")
    )


@dataclass(frozen=True)
class WindowLine:
    """A window as a page shows it: `state` is under way, to come, over or withdrawn."""

    row: MaintenanceWindow
    where: str
    state: str
    first: int = 0  # slots of the hour that a timeline shows, `[first, first + width)`
    width: int = 0
    is_here: bool = True  # it holds the slot that is explained


def window_lines(now: datetime, rows: Iterable[MaintenanceWindow]) -> list[WindowLine]:
    """Windows in words."""
    out = []
    for row in rows:
        where = row.cluster.label or row.cluster.name
        if row.node is not None:
            where = f"{row.node.label or row.node.name}{'' if row.place is None else f' GPU {row.place}'}"
        out.append(WindowLine(row, where, window_state(row, now)))
    return out


def window_state(row: MaintenanceWindow, now: datetime) -> str:
    """`withdrawn`, `to come`, `under way` or `over`."""
    if row.withdrawn_at is not None:
        return "withdrawn"
    if row.starts_at > now:
        return "to come"
    return "under way" if row.ends_at > now else "over"


def windows_of_hour(now: datetime, node: Node, hour_ms: int, place: int, slot_ms: int) -> list[WindowLine]:
    """The windows of a node in one hour, cut to its slots; `is_here` for those of this place and slot."""
    begin = datetime.fromtimestamp(hour_ms / 1000, UTC)
    at = datetime.fromtimestamp(slot_ms / 1000, UTC)
    out = []
    for line in window_lines(now, windows_over(node, begin, begin + timedelta(hours=1))):
        row = line.row
        first = max(0, int((row.starts_at - begin).total_seconds()) // SLOT_S)
        end = min(SLOTS_PER_HOUR, -(-int((row.ends_at - begin).total_seconds()) // SLOT_S))
        is_here = row.place in (None, place) and row.starts_at < at + timedelta(seconds=SLOT_S) and row.ends_at > at
        out.append(replace(line, first=first, width=end - first, is_here=is_here))
    return out
