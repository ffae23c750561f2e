"""What a node's fold remembers: only what can change a later verdict, in canonical bytes.

The bytes are UTF-8 JSON of nested arrays in a fixed order, its identities packed behind it; equal states, equal bytes.
Callers treat a NodeState as opaque and never change it; the fold works on a copy.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any, TypeVar

from fleet.domain.clocks import NO_FIT, Fit, kept_clocks, pack_fit, pack_other, read_fit, read_other, with_clock
from fleet.domain.packed import Reader, Writer, column, spread
from fleet.domain.slots import SLOT_MS
from fleet.domain.state_formats import upgraded

FORMAT = 4


class OtherFormat(ValueError):
    """Bytes of a state that another version of the fold wrote; `is_older`: than this one."""

    def __init__(self, found: int) -> None:
        super().__init__(f"state format {found} is not {FORMAT}")
        self.is_older = found < FORMAT


#: Classes of a subject's last sample.
GOOD, LOST, ABSENT, NEVER, BLIND = 0, 1, 2, 3, 4

#: A segment: (code, kind, a, b, weight). Kind C spans instants [a, b] in ms; all others slots [a, b).
#: B own bad sample, C cover between two pieces of bad evidence, E (0, 100, 0) edge, H held, K contested,
#: M possible note, N note, O own-slot reason, P pending, Q possible, T touched, X contradicting
#: installations, W the weight of its code's cover before the rules changed, I<instance> the slices of an
#: own-slot reason's MIG instance.
Segment = tuple[str, str, int, int, int]


@dataclass(slots=True)
class Condition:
    """An open condition of a subject.

    `run_from`..`last`: the chain of bad evidence that covers what lies between (ms; -1 = none). `stance`: what the
    last sample said: B bad, E opened by an event since, K contested, P pending, Q possible, S counted, U not read.
    `seen`, `powered`: counts that refute or end it. `old`: a boot has passed. `parts`: (instance, slices) under MIG.
    """

    code: str
    weight: int
    since: int
    confirmed: bool = True
    stance: str = "E"
    run_from: int = -1
    last: int = -1
    seen: int = 0
    powered: int = 0
    old: bool = False
    opened: bool = False
    parts: tuple[tuple[str, int], ...] = ()


@dataclass(slots=True)
class Subject:
    """A GPU's place, a port or the node: class and cause of its last sample, what touches its open slot."""

    kind: int = GOOD
    cause: str = ""  # cause of unknown of the last sample
    slot_cause: str = ""  # cause of unknown of the open slot
    conditions: list[Condition] = field(default_factory=list)
    segments: list[Segment] = field(default_factory=list)

    @property
    def busy(self) -> bool:
        """Whether anything but health is known of it."""
        return bool(self.kind or self.conditions or self.segments or self.slot_cause)

    def find(self, code: str) -> Condition | None:
        """Its open condition with this code."""
        for condition in self.conditions:
            if condition.code == code:
                return condition
        return None


@dataclass(slots=True)
class Place(Subject):
    """A GPU's place: the device in it, its bus id; `ecc` its last uncorrected count.

    `width`: the most PCIe lanes it had; `links`: the fewest inactive NVLinks (-1 = none said).
    """

    uuid: str = ""
    bus: str = ""
    has_action: bool = False
    ecc: int = 0
    width: int = 0
    links: int = -1


@dataclass(slots=True)
class PortState(Subject):
    """A port by its key. `active_ms`: from when it counts as ACTIVE, 0 when not (or no longer asked); `near`: bus ids
    of its GPUs.

    `last_weight`, `last_code`: what its last read sample said, for the time in which it is unknown.
    """

    key: str = ""
    expected: bool = False
    active_ms: int = 0
    near: tuple[str, ...] = ()
    last_weight: int = 100
    last_code: str = ""


#: An item's place in the order: instant, 0 event / 1 sample, agent_id, seq, position, event's position.
Key = tuple[int, int, str, int, int, int]


@dataclass(slots=True)
class NodeState:
    """The state of one node's fold after some item; see the module."""

    watermark: Key
    open_slot: int
    last_ms: int
    boot_id: str = ""
    boot_at: int = 0
    fit: Fit = NO_FIT
    agents: dict[str, int] = field(default_factory=dict)
    reload: bool = False
    sources: tuple[str, str, str] = ("ok", "ok", "ok")  # nvml, ib, kmsg
    admin: list[tuple[str, int]] = field(default_factory=list)
    node: Subject = field(default_factory=Subject)
    places: list[Place] = field(default_factory=list)
    ports: list[PortState] = field(default_factory=list)
    segment_number: int = 0
    others: dict[str, Fit] = field(default_factory=dict)  # placements of other boots heard not long ago, by boot_id
    raw: bytes | None = field(default=None, compare=False, repr=False)  # its bytes, of a state that changes no more

    @property
    def watermark_ms(self) -> int:
        """The instant of the newest folded item, ms."""
        return self.watermark[0]

    @property
    def last_sample_ms(self) -> int:
        """The instant of the newest folded sample, ms."""
        return self.last_ms

    def fit_of(self, boot: str) -> Fit | None:
        """What is known of this boot's clock, None = nothing (any more)."""
        return self.fit if boot == self.fit[0] else self.others.get(boot)

    @property
    def fits(self) -> tuple[Fit, ...]:
        """What is known of every boot's clock, the newest sample's first."""
        return (self.fit, *self.others.values())

    def learn(self, fit: Fit, ms: int, is_taken: bool = True) -> None:
        """Take over what a sample at `ms` says of its boot's clock; a boot that is not taken stays one of the others.

        Of boots whose hours lie in each other each goes on from its own clock, in whatever pieces they come.
        """
        boot, old = fit[0], self.fit
        if boot == old[0]:
            self.fit = fit
        elif is_taken:
            self.others.pop(boot, None)
            self.others, self.fit = with_clock(self.others, old), fit
        else:
            self.others = with_clock(self.others, fit)
        if self.others:
            self.others = kept_clocks(self.others, ms)

    def to_bytes(self) -> bytes:
        """The canonical bytes: the JSON's length (3 bytes, big-endian), the JSON, the tail of its identities."""
        if self.raw is not None:
            return self.raw
        ids = Writer()
        mark, last = self.watermark, self.last_ms
        buses = {p.bus: i for i, p in enumerate(self.places) if p.bus}
        head = [
            FORMAT,
            last,
            (mark[0] - last, mark[1], ids.code(mark[2]), *mark[3:]),
            self.open_slot - last // SLOT_MS,
            ids.code(self.boot_id),
            self.boot_at,
            (1 if self.fit[0] == self.boot_id else [ids.code(self.fit[0])], *pack_fit(self.fit, last)),
            [(1 if a == mark[2] else [ids.code(a)], ms - last) for a, ms in sorted(self.agents.items())],
            int(self.reload),
            0 if self.sources == ("ok", "ok", "ok") else self.sources,
            sorted(self.admin),
            self.segment_number,
            _common(self.node, last, self.open_slot),
            _pack_places(self, ids),
            _pack_ports(self, buses, ids),
            [pack_other(ids.code(boot), fit, last) for boot, fit in sorted(self.others.items())],
        ]
        text = json.dumps(head, separators=(",", ":"), ensure_ascii=False, check_circular=False).encode()
        return len(text).to_bytes(3, "big") + text + ids.tail()

    @staticmethod
    def text_of(raw: bytes) -> bytes:
        """The bytes of a state without the tail of its identities."""
        return raw[: 3 + int.from_bytes(raw[:3], "big")]

    @classmethod
    def from_bytes(cls, raw: bytes, is_sealed: bool = False) -> NodeState:
        """The state with these bytes; of a sealed hour older formats as well. Raises OtherFormat."""
        end = 3 + int.from_bytes(raw[:3], "big")
        written = json.loads(raw[3:end])
        tree = upgraded(written) if is_sealed else written
        if tree[0] != FORMAT:
            raise OtherFormat(tree[0])
        ids = Reader(raw[end:])
        (_, last, mark, slot, boot_code, boot_at, fit, agents, reload, sources, admin, number, node) = tree[:13]
        watermark = (mark[0] + last, mark[1], ids.text(mark[2]), mark[3], mark[4], mark[5])
        boot_id = ids.text(boot_code)
        fit_boot = boot_id if fit[0] == 1 else ids.text(fit[0][0])
        state = cls(
            watermark,
            slot + last // SLOT_MS,
            last,
            boot_id,
            boot_at,
            read_fit(fit_boot, fit, last),
            {watermark[2] if a == 1 else ids.text(a[0]): ms + last for a, ms in agents},
            bool(reload),
            tuple(sources or ("ok", "ok", "ok")),
            [(bus, ms) for bus, ms in admin],
            _fill(Subject(), node, last, slot + last // SLOT_MS),
            _read_places(tree[13], last, slot + last // SLOT_MS, ids),
            segment_number=number,
        )
        state.ports = _read_ports(tree[14], state, ids)
        others = ((ids.text(packed[0]), packed) for packed in tree[15])
        state.others = {boot: read_other(boot, packed, last) for boot, packed in others}
        state.raw = raw if tree is written else None
        return state

    def copy(self) -> NodeState:
        """An independent copy, equal to what its bytes say: in their order, which no later step may depend on."""
        return NodeState(
            self.watermark,
            self.open_slot,
            self.last_ms,
            self.boot_id,
            self.boot_at,
            self.fit,
            dict(sorted(self.agents.items())),
            self.reload,
            self.sources,
            sorted(self.admin),
            Subject(*_copied(self.node)),
            [Place(*_copied(p), p.uuid, p.bus, p.has_action, p.ecc, p.width, p.links) for p in self.places],
            [
                PortState(
                    *_copied(p), p.key, p.expected, 0 if p.expected else p.active_ms, p.near, p.last_weight, p.last_code
                )
                for p in self.ports
            ],
            self.segment_number,
            dict(sorted(self.others.items())),
        )


_EMPTY: list[Any] = []
S = TypeVar("S", bound=Subject)


def _copied(subject: Subject) -> tuple[int, str, str, list[Condition], list[Segment]]:
    """The fields that every subject has, its lists made new."""
    conditions = [
        Condition(
            *(c.code, c.weight, c.since, c.confirmed, c.stance, c.run_from, c.last, c.seen, c.powered, c.old, c.opened),
            c.parts,
        )
        for c in sorted(subject.conditions, key=lambda c: (c.code, c.since))
    ]
    cause = subject.cause if subject.busy else ""  # of a good sample it says nothing
    return subject.kind, cause, subject.slot_cause, conditions, sorted(set(subject.segments))


def _common(subject: Subject, last: int, slot: int) -> list[Any]:
    """What every subject has, its times from the last sample and the open slot; an empty array when it is healthy."""
    common: list[Any] = _EMPTY
    if subject.kind or subject.conditions or subject.segments or subject.slot_cause:
        common = [
            subject.kind,
            subject.cause,
            subject.slot_cause,
            [
                (
                    c.code,
                    c.weight,
                    c.since - last,
                    int(c.confirmed),
                    c.stance,
                    None if c.run_from == -1 else c.run_from - last,
                    None if c.last == -1 else c.last - last,
                    c.seen,
                    c.powered,
                    int(c.old),
                    int(c.opened),
                    c.parts,
                )
                for c in sorted(subject.conditions, key=lambda c: (c.code, c.since))
            ],
            [
                (code, kind, a - last, b - last, w) if kind == "C" else (code, kind, a - slot, b - slot, w)
                for code, kind, a, b, w in sorted(set(subject.segments))
            ],
        ]
    return common


def _fill(subject: S, common: list[Any], last: int, slot: int) -> S:
    if common:
        subject.kind, subject.cause, subject.slot_cause = common[0], common[1], common[2]
        subject.conditions = [
            Condition(
                c[0],
                c[1],
                c[2] + last,
                bool(c[3]),
                c[4],
                -1 if c[5] is None else c[5] + last,
                -1 if c[6] is None else c[6] + last,
                c[7],
                c[8],
                bool(c[9]),
                bool(c[10]),
                tuple((a, b) for a, b in c[11]),
            )
            for c in common[3]
        ]
        subject.segments = [
            (code, kind, a + last, b + last, w) if kind == "C" else (code, kind, a + slot, b + slot, w)
            for code, kind, a, b, w in common[4]
        ]
    return subject


def _pack_places(state: NodeState, ids: Writer) -> list[Any]:
    """The number of places, then a column per field."""
    places, last, slot = state.places, state.last_ms, state.open_slot
    return [
        len(places),
        column([_common(p, last, slot) for p in places]),
        column([ids.code(p.uuid) for p in places]),
        column([p.bus for p in places]),
        column([int(p.has_action) for p in places]),
        column([p.ecc for p in places]),
        column([p.width for p in places]),
        column([p.links for p in places]),
    ]


def _read_places(packed: list[Any], last: int, slot: int, ids: Reader) -> list[Place]:
    count, *columns = packed
    return [
        _fill(
            Place(uuid=ids.text(uuid), bus=bus, has_action=bool(has_action), ecc=ecc, width=width, links=links),
            common,
            last,
            slot,
        )
        for common, uuid, bus, has_action, ecc, width, links in zip(*(spread(c, count) for c in columns), strict=True)
    ]


def _pack_ports(state: NodeState, buses: dict[str, int], ids: Writer) -> list[Any]:
    """The number of ports, then a column per field; a GPU near a port by its place, counted from the port's own."""
    ports, last, slot = state.ports, state.last_ms, state.open_slot
    return [
        len(ports),
        column([_common(p, last, slot) for p in ports]),
        column([ids.code(p.key) for p in ports]),
        column([1 if p.expected else -p.active_ms for p in ports]),
        column([[buses[bus] - i if bus in buses else bus for bus in p.near] for i, p in enumerate(ports)]),
        column([p.last_weight for p in ports]),
        column([p.last_code for p in ports]),
    ]


def _read_ports(packed: list[Any], state: NodeState, ids: Reader) -> list[PortState]:
    count, *columns = packed
    places, last, slot = state.places, state.last_ms, state.open_slot
    ports = []
    for i, row in enumerate(zip(*(spread(c, count) for c in columns), strict=True)):
        common, key, active, near, weight, code = row
        port = PortState(
            key=ids.text(key),
            expected=active > 0,
            active_ms=0 if active > 0 else -active,
            near=tuple(places[i + bus].bus if isinstance(bus, int) else bus for bus in near),
            last_weight=weight,
            last_code=code,
        )
        ports.append(_fill(port, common, last, slot))
    return ports
