"""Everything that the page of one node shows: its strips, its agent, its last values, who sits in which place."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from typing import Any

import msgspec

from agent import wire
from fleet.bodies import load_row
from fleet.decode import decode_trusted
from fleet.domain.slots import SLOTS_PER_HOUR, first_slot
from fleet.domain.verdicts import UNKNOWN_PROVISIONAL
from fleet.evidence import newest_of, oldest_of
from fleet.models import Node
from fleet.reading import AnyPeriod, NodeRow
from fleet.selectors import drawn_from_slot, read_nodes, visible_clusters, with_strips
from fleet.selectors_hours import Stretch, Window, load_bodies, merge, runs_of
from fleet.selectors_incidents import IncidentLine, of_node
from fleet.selectors_live import Gpu, state_word, to_ms
from fleet.strip_drawing import Strip, draw

MOST_PORT_STRIPS = 32
REMEMBERED = 8000  # node hours whose ports were read, about 1 kB each
SOURCES = {
    "nvml": "GPU readings (NVML)",
    "ib": "network ports",
    "kmsg": "kernel log",
    "pci": "PCI bus",
}
SOURCE_WORDS = {
    "ok": "read",
    "absent": "not on this node",
    "blind": "not readable: Xids cannot be seen",
    "error": "fails",
    "timeout": "does not answer",
    "lost": "lost lines",
}


@dataclass(frozen=True)
class PortRow:
    """A port now and over the period; `name` as the node calls it."""

    name: str
    port: Gpu
    values: Any
    strip: Strip | None


@dataclass(frozen=True)
class SourceLine:
    """One source of the agent: its name, its status in words, whether something cannot be seen because of it."""

    name: str
    status: str
    words: str
    is_blind: bool


@dataclass(frozen=True)
class Newest:
    """The newest batch: when it came, what it said of the clock and its sources, the last sample's GPUs and ports."""

    received_ms: int
    sha256: str
    lag_ms: int
    clock: str
    clock_error_ms: int | None
    has_suspect_clock: bool
    seq: int | None
    boot_at_ms: int | None
    sample_ms: int
    sources: tuple[SourceLine, ...]
    gpus: tuple[Any, ...]
    ports: tuple[Any, ...]
    unknown_keys: tuple[str, ...]


@dataclass(frozen=True)
class Swap:
    """A place whose GPU is another than at the beginning of the period."""

    bus_id: str
    before: str
    after: str


@dataclass(frozen=True)
class NodePage:
    """A reading of one node at `as_of_ms`. The names are those of `Fleet`, so that parts of pages fit both."""

    as_of_ms: int
    period: AnyPeriod
    window: Window
    drawn_from: int
    row: NodeRow
    ports: tuple[PortRow, ...]
    more_ports: int
    newest: Newest | None
    incidents: tuple[IncidentLine, ...]
    swaps: tuple[Swap, ...]
    identity: str
    first_seen_ms: int

    @property
    def open_incidents(self) -> tuple[IncidentLine, ...]:
        """Those that go on."""
        return tuple(line for line in self.incidents if line.is_open)

    @property
    def blind_sources(self) -> tuple[SourceLine, ...]:
        """Sources because of which something cannot be seen."""
        return tuple(line for line in self.newest.sources if line.is_blind) if self.newest else ()


def find_node(node_id: int, within: Collection[str] | None) -> Node | None:
    """A node of a cluster that the asker may see; for a merged one the node that it became."""
    if node_id >= 2**63:
        return None
    rows = Node.objects.select_related("cluster", "merged_into__cluster").filter(pk=node_id, cluster__removed_at=None)
    found = (rows.filter(cluster__name__in=within) if within else rows).first()
    return found.merged_into if found is not None and found.merged_into is not None else found


def get_node_page(now: datetime, period: AnyPeriod, node: Node) -> NodePage:
    """One node over the period; the caller has looked whether the asker may see it."""
    window = period.window(now)
    clusters = {node.cluster_id: visible_clusters(node.cluster.name)[node.cluster_id]}
    rows = read_nodes(now, window, clusters, [node.pk])
    drawn_from = drawn_from_slot(rows, window)
    bodies = load_bodies(window, [node.pk])
    (row,) = with_strips(rows, period, window, drawn_from, node.pk, bodies)
    newest = read_newest(node.pk, window.first_hour)
    listed = row.now.ports[:MOST_PORT_STRIPS]
    return NodePage(
        as_of_ms=to_ms(now),
        period=period,
        window=window,
        drawn_from=drawn_from,
        row=row,
        ports=_ports(row, listed, newest, window, drawn_from, bodies.get(node.pk, {})),
        more_ports=len(row.now.ports) - len(listed),
        newest=newest,
        incidents=of_node(now, node.pk, window.first_slot),
        swaps=_swaps(node.pk, window, newest),
        identity=node.identity,
        first_seen_ms=to_ms(node.first_seen_at),
    )


def _ports(
    row: NodeRow,
    ports: Iterable[Gpu],
    newest: Newest | None,
    window: Window,
    drawn_from: int,
    bodies: Mapping[int, bytes],
) -> tuple[PortRow, ...]:
    """The ports with their strips. A port is known by its GUID's hash, else by device and number."""
    values = {(p.guid_hash or f"{p.device}/{p.port}"): p for p in (newest.ports if newest else ())}
    listed = list(ports)
    strips: dict[str, list[Stretch]] = {port.uuid: [] for port in listed}
    if listed:
        for hour in range(window.first_hour, window.last_hour + 1):
            body, base = bodies.get(hour), first_slot(hour)
            lines = None if body is None else read_ports(body)
            for key, stretches in strips.items():
                if lines is None:
                    stretches.append(Stretch(base, base + SLOTS_PER_HOUR, "unknown", 1, 1, 1))
                else:
                    runs = lines.get(key, ())
                    stretches += [
                        Stretch(base + a, base + b, word, 1, 1, int(word == "unknown")) for a, b, word in runs
                    ]
    out = []
    for port in listed:
        value = values.get(port.uuid)
        cut = [
            Stretch(max(s.first, row.bounds.first_slot), min(s.end, row.bounds.end_slot), s.word, 1, 1, s.gone)
            for s in strips[port.uuid]
            if max(s.first, row.bounds.first_slot) < min(s.end, row.bounds.end_slot)
        ]
        begins, ends = row.bounds.drawn
        judged = min((one.first for one in cut if one.word != "unknown"), default=begins)  # before: not expected yet
        strip = draw(merge(cut), drawn_from, window.now_slot, max(begins, judged), ends)
        out.append(PortRow(f"{value.device} port {value.port}" if value else port.uuid, port, value, strip))
    return tuple(sorted(out, key=lambda one: one.name))


def subject_stretches(row: Any, subject: str) -> list[Stretch]:
    """One subject's closed stretches of an hour, absolute slots."""
    out = []
    for run in row.runs(subject):
        if run.verdict != UNKNOWN_PROVISIONAL:
            word = state_word(str(run.verdict.state), run.verdict.nominal)
            out.append(Stretch(run.first_slot, run.end_slot, word, 1, 1, int(word == "unknown")))
    return out


@lru_cache(maxsize=REMEMBERED)
def read_ports(body: bytes) -> dict[str, tuple[tuple[int, int, str], ...]]:
    """Port → its closed runs (first, end, word) of a stored node hour, slots 0..240; a pure function of its bytes."""
    row = load_row(body)
    start = row.hour * SLOTS_PER_HOUR
    return {
        subject[2:]: tuple(
            (first, end, state_word(verdict.state.value, verdict.nominal))
            for first, end, verdict in runs_of(row, subject, start)
            if verdict != UNKNOWN_PROVISIONAL
        )
        for subject in row.subjects()
        if subject.startswith("p:")
    }


def read_newest(node_id: int, first_hour: int) -> Newest | None:
    """What the newest batch of a node says; None when none came since `first_hour`. Two queries."""
    found = newest_of(node_id, first_hour)
    if found is None:
        return None
    received_at, raw = found.received_at, found.raw()
    batch = decode_trusted(raw)
    if not batch.intervals:
        return None
    last = max(batch.intervals, key=lambda interval: interval.ts)
    clock = last.clock
    return Newest(
        received_ms=to_ms(received_at),
        sha256=found.sha256.hex(),
        lag_ms=max(0, to_ms(received_at) - last.ts),
        clock=clock.status if clock else "unknown",
        clock_error_ms=clock.error_ms if clock else None,
        has_suspect_clock=found.row.has_suspect_clock,
        seq=found.row.seq,
        boot_at_ms=batch.boot_at,
        sample_ms=last.ts,
        sources=tuple(
            SourceLine(
                SOURCES.get(name, name), status, SOURCE_WORDS.get(status, status), status not in ("ok", "absent")
            )
            for name, status in sorted((last.sources or {}).items())
        ),
        gpus=tuple(last.gpus),
        ports=tuple(last.ib_ports),
        unknown_keys=tuple(unknown_keys(raw)),
    )


def unknown_keys(raw: bytes) -> list[str]:
    """Keys of a batch that the contract does not list, sorted; a newer agent sends such, we keep and skip them."""
    found: set[str] = set()

    def walk(value: Any, table: str) -> None:
        fields = {field.key: field for field in wire.TABLES[table]}
        for key, item in value.items() if isinstance(value, dict) else ():
            field = fields.get(key)
            if field is None:
                found.add(str(key)[:64])
            elif field.of:
                for one in item if isinstance(item, list) else [item]:
                    walk(one, field.of)

    walk(msgspec.msgpack.decode(raw), "BATCH")
    return sorted(found)


def _swaps(node_id: int, window: Window, newest: Newest | None) -> tuple[Swap, ...]:
    """Places that held another GPU in the period's first batch than in its newest. Three queries."""
    if newest is None:
        return ()
    found = oldest_of(node_id, window.first_hour, window.last_hour)
    batch = decode_trusted(found.raw()) if found else None
    if batch is None or not batch.intervals:
        return ()
    before = {gpu.pci_bus_id: gpu.uuid for gpu in batch.intervals[0].gpus if gpu.pci_bus_id}
    after = {gpu.pci_bus_id: gpu.uuid for gpu in newest.gpus if gpu.pci_bus_id}
    return tuple(
        Swap(bus, before[bus], after[bus]) for bus in sorted(before) if bus in after and after[bus] != before[bus]
    )
