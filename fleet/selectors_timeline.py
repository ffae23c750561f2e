"""One GPU, one hour, slot by slot: its runs, the other GPUs of its node beside it, and one slot explained."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from fleet.bodies import load_row
from fleet.domain.explain import Explained, explain
from fleet.domain.incidents import BURST_MS
from fleet.domain.rules import load_rules
from fleet.domain.slots import SLOT_MS, SLOTS_PER_HOUR, first_slot, hour_of_slot
from fleet.domain.strips import HourRow
from fleet.domain.verdicts import UNKNOWN_PROVISIONAL, State, Verdict
from fleet.models import Node
from fleet.node_events import EventLine, devices_at, line_of
from fleet.reading import Period
from fleet.selectors import read_nodes, visible_clusters
from fleet.selectors_api_explain import Explanation, get_explanation
from fleet.selectors_api_facts import Fact, odd_ports
from fleet.selectors_hours import Window, load_bodies
from fleet.selectors_live import MARKS, Gpu, state_word, throttle_words, title_of, to_ms
from fleet.selectors_reviews import ReviewLine, list_reviews

READINGS = (  # key, label, unit, divisor
    ("temperature", "temperature", "°C", 1),
    ("sm_clock", "SM clock", "MHz", 1),
    ("sm_clock_max", "SM clock, greatest", "MHz", 1),
    ("power", "power", "W", 1000),
    ("power_limit", "power limit", "W", 1000),
    ("gpu_utilization", "GPU busy", "%", 1),
    ("memory_used", "memory used", "GiB", 1 << 30),
    ("ecc_corrected", "ECC corrected", "", 1),
    ("ecc_uncorrected", "ECC uncorrected", "", 1),
    ("pcie_gen", "PCIe generation", "", 1),
    ("pcie_width", "PCIe lanes", "", 1),
    ("nvlink_inactive", "NVLinks inactive", "", 1),
    ("recovery_action", "recovery action", "", 1),
)
SHORT = {"nvml": "NVML", "ib": "ports", "kmsg": "kernel log", "pci": "PCI"}


@dataclass(frozen=True)
class Cell:
    """A stretch of equal verdicts within the hour; slots 0..240 of the hour, instants in ms."""

    first: int
    end: int
    first_ms: int
    end_ms: int
    word: str
    mark: str
    verdict: Verdict
    reasons: tuple[str, ...]
    is_chosen: bool
    is_early: bool = False

    @property
    def width(self) -> int:
        """Slots."""
        return self.end - self.first


@dataclass(frozen=True)
class Lane:
    """One GPU's hour."""

    gpu: Gpu
    uuid: str
    cells: tuple[Cell, ...]
    is_chosen: bool

    @property
    def words(self) -> str:
        """The text alternative: each stretch that is not plainly available."""
        odd = [cell for cell in self.cells if cell.word not in ("available", "none")]
        return "; ".join(f"{cell.word} {cell.width * 15} s" for cell in odd[:12]) or "available, as far as it goes"


@dataclass(frozen=True)
class Sample:
    """A sample as received: its instant, its batch, and what it said of this GPU (None: not listed)."""

    ms: int
    sha256: str
    received_ms: int
    is_clock_good: bool
    is_within: bool
    is_listed: bool
    readings: tuple[tuple[str, str], ...]
    sources: tuple[tuple[str, str], ...]
    pci: str = ""
    ports: tuple[str, ...] = ()
    nvml_error: int | None = None
    nvml: str = "ok"
    agent: str = ""  # where the samples are of more than one installation
    boot: Boot | None = None  # where it is of another boot than the first of the samples


@dataclass(frozen=True)
class Boot:
    """What a sample's batch says of its boot and of how the one before ended."""

    began_ms: int | None
    last_shutdown: str
    last_alive_ms: int | None


@dataclass(frozen=True)
class Timeline:
    """The page: an hour of a node's GPUs and the slot in question, explained."""

    as_of_ms: int
    node: Node
    gpu: Gpu
    uuid: str
    hour: int
    slot: int
    lanes: tuple[Lane, ...]
    lane: Lane
    explanation: Explanation
    reasons: tuple[Explained, ...]
    word: str
    mark: str
    samples: tuple[Sample, ...]
    events: tuple[EventLine, ...]
    is_future: bool
    reviews: tuple[ReviewLine, ...] = ()

    @property
    def is_early(self) -> bool:
        """Whether the slot lies before its first sample."""
        return any(cell.is_early and cell.is_chosen for cell in self.lane.cells)

    @property
    def has_idle_ports(self) -> bool:
        """Whether a port is not plainly up in the slot and no reason stands here for it."""
        asks = any(reason.code.startswith("IB_") for reason in self.reasons)
        return not asks and any(one.ports for one in self.within)

    @property
    def within(self) -> tuple[Sample, ...]:
        """The samples that lie in the slot."""
        return tuple(one for one in self.samples if one.is_within)

    @property
    def beside(self) -> tuple[Sample, ...]:
        """The samples around the slot."""
        return tuple(one for one in self.samples if not one.is_within)

    @property
    def css(self) -> str:
        """The class of the verdict: the state, or `mark` for what lowers nothing yet."""
        return "mark" if self.mark and self.word == "available" else self.word

    @property
    def slot_ms(self) -> int:
        """The slot's first instant."""
        return self.slot * SLOT_MS

    @property
    def slot_end_ms(self) -> int:
        """The instant at which it ends."""
        return (self.slot + 1) * SLOT_MS

    @property
    def hour_ms(self) -> int:
        """The hour's first instant."""
        return first_slot(self.hour) * SLOT_MS

    @property
    def hour_end_ms(self) -> int:
        """The instant at which it ends."""
        return first_slot(self.hour + 1) * SLOT_MS

    @property
    def offset(self) -> int:
        """The slot's place within its hour."""
        return self.slot - first_slot(self.hour)


def get_timeline(now: datetime, node: Node, place: int, slot: int) -> Timeline | None:
    """The hour of this slot; None if the node has no such place. The caller has looked whether the asker may see it."""
    window = Period.DAY.window(now)
    rows = read_nodes(now, window, visible_clusters(node.cluster.name), [node.pk])
    live = rows[0].now if rows else None
    gpu = next((gpu for gpu in live.gpus if gpu.place == place), None) if live else None
    explanation = get_explanation(now, node.pk, place, slot)
    if live is None or gpu is None or explanation is None:
        return None
    hour = hour_of_slot(slot)
    bodies = load_bodies(Window(hour, hour, slot), [node.pk]).get(node.pk, {})
    row = load_row(bodies[hour]) if hour in bodies else None
    devices = devices_at([(node.pk, hour)]).get((node.pk, hour), {})
    lanes = []
    for one in live.gpus:
        uuid = devices.get(f"g{one.place}", ("", ""))[0] or one.uuid
        chosen = one.place == place
        lanes.append(Lane(one, uuid, _cells(row, f"g{one.place}", hour, slot, to_ms(now)), chosen))
    lane = next(lane for lane in lanes if lane.is_chosen)
    bus_id = devices.get(f"g{place}", ("", ""))[1] or gpu.bus_id
    by_bus = {
        (devices.get(f"g{one.place}", ("", ""))[1] or one.bus_id): (one.place, other.uuid)
        for one, other in zip(live.gpus, lanes, strict=True)
    }
    verdict = explanation.run.verdict
    return Timeline(
        as_of_ms=to_ms(now),
        node=node,
        gpu=gpu,
        uuid=lane.uuid,
        hour=hour,
        slot=slot,
        lanes=tuple(lanes),
        lane=lane,
        explanation=explanation,
        reasons=explanation.reasons if explanation.run.rules else explain(verdict, load_rules()),
        reviews=tuple(one for one in list_reviews(node.pk, slot, slot + 1) if one.subject in (f"g{place}", "n")),
        word=state_word(str(verdict.state), verdict.nominal),
        mark=str(verdict.state) if verdict.state in MARKS else "",
        samples=tuple(_samples(explanation.samples, lane.uuid, bus_id, slot)),
        events=tuple(_bursts(line_of(fact, by_bus) for fact in explanation.events)),
        is_future=slot * SLOT_MS > to_ms(now),
    )


def _cells(row: HourRow | None, subject: str, hour: int, slot: int, now_ms: int) -> tuple[Cell, ...]:
    base = first_slot(hour)
    if row is None:
        runs = [(base, base + SLOTS_PER_HOUR, Verdict(State.UNKNOWN, None, 100, 0, ("NO_DATA",)))]
    else:
        runs = [(run.first_slot, run.end_slot, run.verdict) for run in row.runs(subject)]
    cells = []
    for at, (first, end, verdict) in enumerate(runs):
        # what follows is closed: nothing was heard yet
        is_early = verdict == UNKNOWN_PROVISIONAL and at < len(runs) - 1
        is_open = is_early or (verdict == UNKNOWN_PROVISIONAL and end * SLOT_MS > now_ms - 180_000)
        word = "none" if is_open else state_word(str(verdict.state), verdict.nominal)
        cells.append(
            Cell(
                first=first - base,
                end=end - base,
                first_ms=first * SLOT_MS,
                end_ms=end * SLOT_MS,
                word=word,
                mark=str(verdict.state) if str(verdict.state) in MARKS else "",
                verdict=verdict,
                reasons=tuple(title_of(code) for code in (*verdict.certain, *verdict.possible)),
                is_chosen=first <= slot < end,
                is_early=is_early,
            )
        )
    return tuple(cells)


def _bursts(events: Iterable[EventLine]) -> list[EventLine]:
    """Events with those that repeat another one of the same GPU within three minutes added to it."""
    found: list[EventLine] = []
    last: dict[tuple[str, int | None, str], tuple[int, int]] = {}
    for one in events:
        key = (one.title, one.place, one.bus_id)
        at, ms = last.get(key, (-1, 0))
        if at >= 0 and one.ms - ms <= BURST_MS:
            found[at] = replace(found[at], count=found[at].count + one.count)
        else:
            at = len(found)
            found.append(one)
        last[key] = (at, one.ms)
    return found


def _samples(facts: Sequence[Fact], uuid: str, bus_id: str, slot: int) -> list[Sample]:
    several = len({fact.batch.agent_id for fact in facts}) > 1
    out = []
    for fact in facts:
        one = _sample(fact, uuid, bus_id, slot)
        batch = fact.batch
        if batch.boot_id != facts[0].batch.boot_id:
            one = replace(one, boot=Boot(batch.boot_at, batch.last_shutdown or "", batch.last_alive))
        out.append(replace(one, agent=(batch.agent_id or "")[:12]) if several else one)
    return out


def _sample(fact: Fact, uuid: str, bus_id: str, slot: int) -> Sample:
    gpus = list(fact.interval.gpus)
    gpu = next((g for g in gpus if g.uuid == uuid), None) or next((g for g in gpus if g.pci_bus_id == bus_id), None)
    return Sample(
        ms=fact.ms,
        sha256=fact.sha256.hex(),
        received_ms=to_ms(fact.received_at),
        is_clock_good=fact.is_clock_good,
        is_within=fact.ms // SLOT_MS == slot,
        is_listed=gpu is not None,
        readings=readings_of(gpu) if gpu is not None else (),
        sources=tuple(
            (SHORT.get(name, name), status) for name, status in sorted((fact.interval.sources or {}).items())
        ),
        pci=(fact.interval.pci or {}).get(bus_id, ""),
        ports=tuple(map(_port_words, odd_ports(fact.interval))),
        nvml_error=fact.interval.nvml_error,
        nvml=(fact.interval.sources or {}).get("nvml", "ok"),
    )


def _port_words(port: dict[str, Any]) -> str:
    """`port mlx5_0/1 DOWN (Disabled)`, `port mlx5_0/1 ACTIVE, went down and up × 2`."""
    phys = f" ({port['phys_state']})" if port["phys_state"] else ""
    downs = f", went down × {port['link_downed']}" if port["link_downed"] else ""
    return f"port {port['name']} {port['state']}{phys}{downs}"


def readings_of(gpu: Any) -> tuple[tuple[str, str], ...]:
    """What a sample says of a GPU, as (label, value with unit); what is absent is left out, never 0."""
    out = []
    for key, label, unit, divisor in READINGS:
        value = getattr(gpu, key)
        if value is not None:
            shown = f"{value / divisor:.1f}" if divisor != 1 else str(value)
            out.append((label, f"{shown} {unit}".rstrip()))
    if gpu.throttle_reasons is not None:
        hexed = f"0x{gpu.throttle_reasons:x}"
        out.append(("clocks event reasons", f"{hexed}: {throttle_words(gpu.throttle_reasons)}"))
    spent = {name: ms for name, ms in (gpu.throttle_time or {}).items() if ms}
    if spent:
        words = ", ".join(f"{name.replace('_', ' ')} {ms / 1000:.1f} s" for name, ms in sorted(spent.items()))
        out.append(("throttled since the last", words))
    if gpu.row_remap is not None:
        flags = [name for name in ("pending", "failed") if getattr(gpu.row_remap, name)]
        out.append(("row remapping", ", ".join(flags) or "nothing pending"))
    return tuple(out)
