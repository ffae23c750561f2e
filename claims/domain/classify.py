"""From facts and overlays to the slots in which a subject, then a unit, is down, per reading (contract.md 1 to 8)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from claims.domain.contract import Contract, Unit
from claims.domain.facts import HEARD, UNREACHABLE, WITNESS_CODES, FactRun, Facts, Reason, Standing, ancestors, parent
from claims.domain.rows import CUSTOMER_BLINDNESS, ENTITLEMENT, MAINTENANCE, RECORD, STOPPED, TICKET, Overlays, Row
from claims.domain.spans import Span, Spans, at_least, clip, intersect, normalise, size, subtract, union
from claims.errors import InputsError

LOWER, NOMINAL, UPPER = "lower", "nominal", "upper"
READINGS = (LOWER, NOMINAL, UPPER)


class Slots(NamedTuple):
    """Where a subject or unit is down in each reading, and unknown in the nominal one. Spans of absolute slots.

    `upper_seen`: the part of the upper reading that rests on a reason, not on blindness.
    """

    lower: Spans
    nominal: Spans
    upper: Spans
    unknown: Spans
    customer_unknown: Spans
    upper_seen: Spans

    def down(self, reading: str) -> Spans:
        """The down slots of a reading."""
        return self.lower if reading == LOWER else self.nominal if reading == NOMINAL else self.upper


@dataclass(frozen=True, slots=True)
class UnitSlots:
    """A unit's slots with what was taken away; all of it reaches beyond the period.

    `down_excluded`, `down_unentitled`: down slots of the lower reading that an exclusion took, or that nobody owed.
    """

    unit: Unit
    slots: Slots
    entitled: Spans
    excluded: Spans
    down_members: Mapping[str, Slots]
    down_excluded: Spans
    down_unentitled: Spans


class _Mark(NamedTuple):
    """What a slot with some facts is for one contract."""

    lower: bool
    nominal: bool
    upper: bool
    seen: bool
    unknown: bool
    by_record: bool  # held: counts inside any record
    by_provider: bool  # possibly unreachable or lost: counts inside the provider's own record
    customer: bool


_UP = _Mark(False, False, False, False, False, False, False, False)
_BAD = (Standing.CERTAIN, Standing.EDGE_BAD, Standing.HELD)


def eligible(contract: Contract, reason: Reason) -> bool:
    """Whether the category is listed, the party is neither the customer nor nobody, and the weight is one that the
    contract lists, but no share of a port (contract.md 1); a weighted contract takes every weight.
    """
    return (
        reason.category in contract.counts
        and reason.party in ("infrastructure", "ambiguous")
        and (not contract.binary or (reason.weight in contract.weights and not reason.is_share))
    )


def party_counts(contract: Contract, reason: Reason) -> bool:
    """Whether the reason's party counts outside the upper reading (contract.md 2). Of one whose rule names an owner
    the contract alone decides: the infrastructure's where it says that the provider owns that, else ambiguous.
    """
    is_theirs = contract.owns(reason.owner) if reason.owner else reason.party == "infrastructure"
    return is_theirs or bool(contract.ambiguous_counts)


class Classifier:
    """Classifies the subjects of one computation, each once."""

    def __init__(
        self,
        contract: Contract,
        facts: Mapping[str, Sequence[FactRun]],
        overlays: Overlays,
        witnessed: Mapping[str, Spans] | None,
        looked_at: Span,
    ) -> None:
        self._contract = contract
        self._facts = facts
        self._overlays = overlays
        self._witnessed = witnessed
        self._range = looked_at
        self._marks: dict[int, _Mark] = {}
        self._kept: list[Facts] = []
        self._subjects: dict[str, Slots] = {}
        self._only_reach = set(contract.counts) == {UNREACHABLE}
        self._reach = UNREACHABLE in contract.counts

    def subject(self, name: str) -> Slots:
        """The subject's own slots; what no run covers is unknown."""
        found = self._subjects.get(name)
        if found is None:
            found = self._subjects[name] = self._classify(name)
        return found

    def unit(self, unit: Unit, within: str) -> UnitSlots:
        """The unit's slots with its members judged by their minimum (contract.md 8). `within`: the unit itself, or
        the one whose entitlement it shares.
        """
        entitled = self._entitled(unit, within)
        excluded = self._excluded(unit.name)
        own = self._own(unit)
        members: dict[str, Slots] = {}
        if unit.members:
            required = self._contract.required(unit)
            if required is None:
                raise InputsError(f"{unit.name}: the contract does not say how many must be healthy.", "min_healthy")
            members = {name: self._member(name, unit) for name in unit.members}
            own = _join(_minimum(list(members.values()), len(unit.members) - required + 1), own)
        owed = Slots(*(intersect(spans, entitled) for spans in own))
        return UnitSlots(
            unit,
            Slots(*(subtract(spans, excluded) for spans in owed)),
            entitled,
            excluded,
            members,
            intersect(owed.lower, excluded),
            subtract(own.lower, entitled),
        )

    def _own(self, unit: Unit) -> Slots:
        """Reasons of the unit's own subject and of what it lies in."""
        out = _NOTHING
        for name in ancestors(unit.name):
            if self._needed(name, unit):
                slots = self.subject(name)
                # Reachability is the node's: a blind place says nothing about it.
                blind = (name == unit.name or self._reach) and not (self._only_reach and parent(name))
                out = _join(out, slots if blind else _without_blindness(slots))
        return out

    def _needed(self, name: str, unit: Unit) -> bool:
        """Whether a subject without any fact is unknown rather than not looked at.

        A unit without members stands on its own subject. A node also does where reachability counts.
        """
        if name in self._facts:
            return True
        return (name == unit.name and not unit.members) or (
            self._reach and self._contract.scope in ("gpu", "node") and not parent(name)
        )

    def _member(self, name: str, unit: Unit) -> Slots:
        """A member's slots: absent outside its entitlement, up under an exclusion."""
        slots = self.subject(name)
        if self._only_reach and parent(name) and parent(name) in self._facts:
            slots = _without_blindness(slots)
        for above in ancestors(name)[1:]:
            if above != unit.name and above in self._facts:
                other = self.subject(above)
                slots = _join(slots, other if self._reach else _without_blindness(other))
        spans = self._present(name, unit.name)
        gone = self._excluded(name)
        return Slots(*(subtract(intersect(one, spans), gone) for one in slots))

    def _present(self, name: str, unit: str) -> Spans:
        """Where a resource is entitled: inside the rows that name it, what it lies in, and its unit; else nowhere."""
        out: Spans = [self._range]
        named = False
        for one in dict.fromkeys((*ancestors(name), unit)):
            rows = self._overlays.of(ENTITLEMENT, one)
            if rows:
                named = True
                out = intersect(out, normalise(row.span for row in rows))
        return subtract(out, self._overlays.spans(STOPPED, name)) if named else []

    def _entitled(self, unit: Unit, within: str) -> Spans:
        """Where the unit is owed: by its own rows, else where any of its members is."""
        if not unit.members or any(self._overlays.of(ENTITLEMENT, one) for one in ancestors(unit.name)):
            return self._present(unit.name, within)
        members = normalise(span for name in unit.members for span in self._present(name, unit.name))
        return subtract(members, self._overlays.spans(STOPPED, unit.name))

    def _excluded(self, name: str) -> Spans:
        """Slots under an exclusion of the contract that names the resource or what it lies in."""
        out: list[Span] = []
        for kind in self._contract.excludes or ():
            if self._overlays.has(kind):
                out += [row.span for row in self._overlays.rows(kind, name) if self.accepts(row)]
        return normalise(out)

    def accepts(self, row: Row) -> bool:
        """Whether an exclusion's notice was long enough (sla.md trap 19)."""
        hours = self._contract.maintenance_notice_h
        if row.kind != MAINTENANCE or not hours:
            return True
        return row.notice_s is not None and row.notice_s >= hours * 3600

    def _classify(self, name: str) -> Slots:
        marks: dict[_Mark, list[Span]] = {}
        at, stop = self._range
        gaps: list[Span] = []
        for first, end, facts in self._facts.get(name, ()):
            if first > at:
                gaps.append((at, min(first, stop)))
            at = max(at, end)
            mark = self._marks.get(id(facts))
            if mark is None:
                mark = self._marks[id(facts)] = self._mark(facts)
                self._kept.append(facts)
            if mark is not _UP:
                marks.setdefault(mark, []).append((first, end))
        if at < stop:
            gaps.append((at, stop))
        lower: list[Span] = []
        nominal: list[Span] = []
        upper: list[Span] = list(gaps)
        seen: list[Span] = []
        unknown: list[Span] = list(gaps)
        customer: list[Span] = []
        for mark, spans in marks.items():
            if mark.lower:
                lower += spans
            if mark.nominal:
                nominal += spans
            if mark.upper:
                upper += spans
            if mark.seen:
                seen += spans
            if mark.unknown:
                unknown += spans
            if mark.customer:
                customer += spans
            if mark.by_record or mark.by_provider:
                inside = intersect(normalise(spans), self._records(name, mark.by_record))
                lower += inside
                nominal += inside
                upper += inside
        down = clip(normalise(nominal), *self._range)
        dark = clip(normalise(unknown), *self._range)
        above: Spans = clip(normalise(upper), *self._range)
        if self._only_reach and self._witnessed is not None and not parent(name):
            dark = list(union(dark, subtract([self._range], self._witnessed.get(name, []))))
            above = union(above, dark)
        dark = list(subtract(dark, down))
        rows = self._overlays.spans(CUSTOMER_BLINDNESS, name) if self._overlays.has(CUSTOMER_BLINDNESS) else []
        return Slots(
            clip(normalise(lower), *self._range),
            down,
            above,
            dark,
            intersect(dark, normalise([*customer, *rows])),
            clip(normalise(seen), *self._range),
        )

    def _records(self, name: str, tickets: bool) -> list[Span]:
        """Records that name the place or its node, between opening and closing: the provider's own, or any."""
        spans = [row.span for row in self._overlays.rows(RECORD, name) if tickets or row.provider_word]
        if tickets:
            spans += [row.span for row in self._overlays.rows(TICKET, name)]
        return normalise(spans)

    def _mark(self, facts: Facts) -> _Mark:
        lower = nominal = upper = by_record = by_provider = False
        for reason in facts.reasons:
            if not eligible(self._contract, reason):
                continue
            upper = True
            if not party_counts(self._contract, reason):
                continue
            lower = lower or reason.standing is Standing.CERTAIN
            nominal = nominal or reason.standing in _BAD
            by_record = by_record or reason.standing is Standing.HELD
            by_provider = by_provider or (reason.standing is not Standing.CERTAIN and reason.code in WITNESS_CODES)
        blind = facts.blind and not (self._only_reach and facts.cause in HEARD)
        unknown = blind and not nominal
        if not upper and not unknown:
            return _UP
        customer = unknown and facts.cause == "customer"
        return _Mark(lower, nominal, upper or blind, upper, unknown, by_record, by_provider, customer)


_NOTHING = Slots([], [], [], [], [], [])


def _without_blindness(slots: Slots) -> Slots:
    """Only what is known of a subject: its blindness says nothing about another one."""
    return slots._replace(upper=slots.upper_seen, unknown=[], customer_unknown=[])


def _join(one: Slots, other: Slots) -> Slots:
    """Down where either is; unknown where either is and neither is down."""
    if one is _NOTHING:
        return other
    if other is _NOTHING:
        return one
    nominal = union(one.nominal, other.nominal)
    unknown = subtract(union(one.unknown, other.unknown), nominal)
    return Slots(
        union(one.lower, other.lower),
        nominal,
        union(one.upper, other.upper),
        unknown,
        intersect(union(one.customer_unknown, other.customer_unknown), unknown),
        union(one.upper_seen, other.upper_seen),
    )


def _minimum(members: Sequence[Slots], count: int) -> Slots:
    """Down where at least `count` members are; unknown where the unknown ones could make it so.

    `count` = members − minimum + 1, so an absent member lowers the required number by one and drops out.
    """
    nominal = at_least([m.nominal for m in members], count)
    dark = at_least([union(m.nominal, m.unknown) for m in members], count)
    unknown = subtract(dark, nominal)
    without_customer = at_least([union(m.nominal, subtract(m.unknown, m.customer_unknown)) for m in members], count)
    return Slots(
        at_least([m.lower for m in members], count),
        nominal,
        at_least([m.upper for m in members], count),
        unknown,
        subtract(unknown, without_customer),
        at_least([m.upper_seen for m in members], count),
    )


def windows(contract: Contract, overlays: Overlays, unit: UnitSlots, down: Spans, reading: str) -> Spans:
    """The down slots that lie between clock start and clock end (contract.md 10); all of them where it is measured.

    A ticket that names the unit or what it lies in covers its slots; one that names a member covers those in which
    that member is down. Without a ticket nothing counts.
    """
    if contract.clock_start == "measured":
        return _until_closed(overlays, unit, down) if contract.clock_end == "ticket" else down
    out: list[Span] = []
    for row in overlays.rows(TICKET, unit.unit.name):
        out += _of_ticket(contract, row, down)
    for name, slots in unit.down_members.items():
        for row in overlays.of(TICKET, name):
            out += intersect(normalise(_of_ticket(contract, row, down)), slots.down(reading))
    return intersect(down, normalise(out))


def _until_closed(overlays: Overlays, unit: UnitSlots, down: Spans) -> Spans:
    """A clock that starts by itself and ends with the ticket: each down run up to the last closing of the tickets that
    touch it; one without a ticket ends where it is measured.
    """
    rows = overlays.rows(TICKET, unit.unit.name)
    for name in unit.down_members:
        rows += overlays.of(TICKET, name)
    out = []
    for a, b in down:
        closings = [row.end for row in rows if row.first_slot < b and row.end > a]
        out.append((a, min(b, max(closings, default=b))))
    return out


def _of_ticket(contract: Contract, row: Row, down: Spans) -> list[Span]:
    start = row.first_slot if contract.clock_start == "ticket" else row.acknowledged_slot
    if start is None:
        return []
    if contract.clock_ends_with_ticket():
        return [(start, row.end)]
    return [(max(a, start), b) for a, b in down if a < row.end and b > start]


def pauses(contract: Contract, overlays: Overlays, unit: UnitSlots) -> list[Span]:
    """Stop-clock spans of every ticket that names the unit, what it lies in, or a member."""
    if not contract.stop_clock or not overlays.has(TICKET):
        return []
    rows = overlays.rows(TICKET, unit.unit.name)
    for name in unit.down_members:
        rows += overlays.of(TICKET, name)
    return normalise(span for row in rows for span in row.pauses)


def known_share(owed: Spans, unknown: Spans) -> tuple[int, int]:
    """(known slots, owed slots) of the coverage (contract.md 6)."""
    return size(owed) - size(intersect(unknown, owed)), size(owed)
