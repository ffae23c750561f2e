"""The org's dated rows as the fold takes them: rule set and context of each node's hours, witnesses of its silences.

The declared rows of an org are few and are kept in memory, by a stamp that every write of such a row changes: a chunk
of batches asks one number. Only what concerns a silence or a probed node asks for more.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field, replace
from datetime import datetime
from itertools import groupby
from typing import Any

from django.db import connection

from fleet.domain.context import EMPTY, Context, Dated, Span, merged
from fleet.domain.rules import LATEST, Rules, amend, amendment, load_rules
from fleet.domain.slots import HOUR_MS, SLOT_MS, VOUCH_MS, hour_of
from fleet.models import (
    Amendment,
    DatedStamp,
    DeviceAssignment,
    ExpectedHardware,
    ProbeRun,
    ProbeTarget,
    RuleAdoption,
)
from fleet.peers import peer_spans

#: A stretch between two samples that vouch for each other may begin so long before its hour.
EDGE_MS = 3 * SLOT_MS
#: A silence on one boot shorter than this asks no peers: they report once a minute and may miss one.
PEERS_AFTER_MS = 120_000
MAX_ORGS = 256  # kept in memory


def ms_of(at: datetime) -> int:
    """An instant as ms since 1970 UTC."""
    return round(at.timestamp() * 1000)


@dataclass(frozen=True)
class Declared:
    """Expected hardware in force on `[from_ms, until_ms)`; `pk` says which of several is the newest."""

    pk: int
    from_ms: int
    until_ms: int | None
    context: Context

    def is_in_force(self, hour: int) -> bool:
        """Whether it holds in any part of this hour: an hour has one answer."""
        return self.from_ms < (hour + 1) * HOUR_MS and (self.until_ms is None or self.until_ms > hour * HOUR_MS)


@dataclass(frozen=True)
class Amended:
    """An amendment with its dates. Its end is no part of what a row's version names: it may be set later."""

    pk: int
    until_ms: int | None
    one: Any  # fleet.domain.rules.Amendment, without an end

    def is_in_force(self, at_ms: int) -> bool:
        """Whether it holds at this instant."""
        return bool(self.one.from_ms <= at_ms) and (self.until_ms is None or at_ms < self.until_ms)


@dataclass
class RuleBook:
    """Which rule set is in force when: adoptions (from ms, version) by date, amendments in the order entered."""

    adoptions: list[tuple[int, str]] = field(default_factory=list)
    amendments: list[Amended] = field(default_factory=list)
    _made: dict[tuple[str, tuple[int, ...]], Rules] = field(default_factory=dict)
    _hours: dict[int, Rules] = field(default_factory=dict)

    def at(self, hour: int) -> Rules:
        """The rule set of this hour (hours since 1970 UTC): what is in force at its beginning. Raises RulesError."""
        found = self._hours.get(hour)
        if found is None:
            if len(self._hours) > 4096:
                self._hours.clear()
            found = self._hours[hour] = self._at(hour * HOUR_MS)
        return found

    def base(self, at_ms: int) -> str:
        """The version adopted last at this instant; the newest that is here where nothing was adopted."""
        in_force = [version for from_ms, version in self.adoptions if from_ms <= at_ms]
        return in_force[-1] if in_force else LATEST

    def in_force(self, at_ms: int) -> list[Amended]:
        """The amendments in force at this instant."""
        return [one for one in self.amendments if one.is_in_force(at_ms)]

    def _at(self, at_ms: int) -> Rules:
        version, chosen = self.base(at_ms), self.in_force(at_ms)
        key = (version, tuple(one.pk for one in chosen))
        found = self._made.get(key)
        if found is None:
            found = self._made[key] = amend(load_rules(version), [one.one for one in chosen])
        return found

    def edges(self) -> list[int]:
        """Every instant (ms) at which something comes into force or ends, sorted."""
        marks = {from_ms for from_ms, _ in self.adoptions}
        for one in self.amendments:
            marks.update(at for at in (one.one.from_ms, one.until_ms) if at is not None)
        return sorted(marks)


@dataclass
class OrgDated:
    """The declared rows of one org, as of a stamp."""

    stamp: int
    book: RuleBook
    hardware: dict[int, list[Declared]]
    assigned: dict[int, tuple[tuple[int, int], ...]]  # node → (place, at ms), by instant
    probed: frozenset[int]  # nodes that ever had a probe
    _firsts: dict[tuple[int, int], Context] = field(default_factory=dict)

    def declared(self, node_id: int, hour: int, is_first: bool = False) -> Context:
        """What is declared of a node in this hour; the same object every time."""
        rows = self.hardware.get(node_id)
        if not rows:
            return EMPTY
        in_force = [row for row in rows if row.is_in_force(hour)]
        if not in_force:
            return EMPTY
        newest = max(in_force, key=lambda row: row.pk)
        # A place is owed from the declaration on, unknown until seen (fold.md 16); it ends nothing that is in strips.
        if not is_first or newest.from_ms > hour * HOUR_MS:
            return newest.context
        key = (newest.pk, newest.from_ms)
        found = self._firsts.get(key)
        if found is None:
            found = self._firsts[key] = replace(newest.context, entitled_from_ms=newest.from_ms)
        return found


_known: dict[str, OrgDated] = {}


def forget() -> None:
    """Forget what is kept in memory of every org."""
    _known.clear()


def get_org_dated(stamp: int | None = None) -> OrgDated:
    """The declared rows of the current org, as of this stamp: one query while nothing of them was written, none where
    the caller has read the stamp.
    """
    schema = connection.schema_name  # type: ignore[attr-defined]
    if stamp is None:
        stamp = DatedStamp.objects.values_list("value", flat=True).first() or 0
    found = _known.get(schema)
    if found is None or found.stamp != stamp:
        if len(_known) >= MAX_ORGS:
            _known.clear()
        found = _known[schema] = _read(stamp)
    return found


def _read(stamp: int) -> OrgDated:
    hardware: dict[int, list[Declared]] = defaultdict(list)
    for row in ExpectedHardware.objects.filter(withdrawn_at=None):
        until = None if row.until_at is None else ms_of(row.until_at)
        hardware[row.node_id].append(Declared(row.pk, ms_of(row.from_at), until, context_of(row)))
    assigned: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for node_id, place, at in DeviceAssignment.objects.filter(withdrawn_at=None).values_list("node_id", "place", "at"):
        assigned[node_id].append((place, ms_of(at)))
    return OrgDated(
        stamp,
        read_book(),
        dict(hardware),
        {node_id: tuple(sorted(rows, key=lambda row: (row[1], row[0]))) for node_id, rows in assigned.items()},
        frozenset(ProbeTarget.objects.values_list("node_id", flat=True)),
    )


def read_book() -> RuleBook:
    """The org's adoptions and amendments that are not withdrawn."""
    adoptions = RuleAdoption.objects.filter(withdrawn_at=None).order_by("from_at", "pk")
    rows = Amendment.objects.filter(withdrawn_at=None).order_by("pk")
    return RuleBook([(ms_of(row.from_at), row.version) for row in adoptions], [amended_of(row) for row in rows])


def amended_of(row: Amendment) -> Amended:
    """The row with its dates. Raises RulesError for a change that no rule can have."""
    return Amended(row.pk, None if row.until_at is None else ms_of(row.until_at), amendment_of(row))


def amendment_of(row: Amendment) -> Any:
    """The row as the rules take it, without its end, which may be set later. Raises RulesError."""
    return amendment(row.code, row.changes, row.reason, ms_of(row.from_at))


def context_of(row: ExpectedHardware) -> Context:
    """What the fold needs of an expected-hardware row."""
    ports = None if row.ports is None else tuple((port["key"], port.get("gpu")) for port in row.ports)
    return Context(gpus=row.gpus, ports=ports, owns_driver=row.owns_driver, owns_fabric=row.owns_fabric)


def dated_for(node_ids: Collection[int], org: OrgDated | None = None) -> Callable[[int], NodeDated]:
    """A function: what dated rows say of one of these nodes. At most two queries, one for probed ones."""
    known = org or get_org_dated()
    failed = _failed_runs([node_id for node_id in node_ids if node_id in known.probed])
    made: dict[int, NodeDated] = {}

    def of(node_id: int) -> NodeDated:
        if node_id not in made:
            made[node_id] = NodeDated(known, node_id, failed.get(node_id, ()))
        return made[node_id]

    return of


def _failed_runs(node_ids: Collection[int]) -> dict[int, tuple[Span, ...]]:
    """Node → spans in which its probe failed: whole slots from the first to the last of at least two failed rounds."""
    out: dict[int, tuple[Span, ...]] = {}
    if not node_ids:
        return out
    runs = ProbeRun.objects.filter(node_id__in=node_ids, outcome=ProbeRun.Outcome.FAILED)
    rows = runs.order_by("node_id", "first_at").values_list("node_id", "target_id", "first_at", "last_at", "rounds")
    for node_id, mine in groupby(rows, key=lambda row: row[0]):
        out[node_id] = failed_spans((target, ms_of(a), ms_of(b), rounds) for _, target, a, b, rounds in mine)
    return out


def failed_spans(runs: Iterable[tuple[int, int, int, int]]) -> tuple[Span, ...]:
    """(target, first ms, last ms, rounds) as whole slots. Runs of one target at most 37.5 s apart are one, and one that
    failed a single time is none: a packet may get lost.
    """
    by_target: dict[int, list[list[int]]] = defaultdict(list)
    for target, first, last, rounds in sorted(runs, key=lambda run: run[1]):
        mine = by_target[target]
        if mine and first - mine[-1][1] <= VOUCH_MS:
            mine[-1][1] = max(mine[-1][1], last)
            mine[-1][2] += rounds
        else:
            mine.append([first, last, rounds])
    spans: list[Span] = []
    for first, last, rounds in sorted(run for runs in by_target.values() for run in map(tuple, runs)):
        if rounds < 2:
            continue
        a, b = first // SLOT_MS * SLOT_MS, (last // SLOT_MS + 1) * SLOT_MS
        if spans and a <= spans[-1][1]:
            spans[-1] = (spans[-1][0], max(spans[-1][1], b))
        else:
            spans.append((a, b))
    return tuple(spans)


class NodeDated(Dated):
    """What dated rows say of one node, hour by hour."""

    def __init__(self, org: OrgDated, node_id: int, failed: tuple[Span, ...] = ()) -> None:
        self.org, self.node_id, self.failed = org, node_id, failed
        self._contexts: dict[tuple[int, bool], Context] = {}
        self._peers: dict[tuple[int, int, int | None], tuple[Span, ...] | None] = {}

    def rules(self, hour: int) -> Rules:
        """See Dated."""
        return self.org.book.at(hour)

    def context(self, hour: int, is_first: bool = False) -> Context:
        """See Dated: declared hardware, assignments of this hour, and where its probe failed with its peers there."""
        key = (hour, is_first)
        found = self._contexts.get(key)
        if found is None:
            assigned = self.org.assigned.get(self.node_id)
            declared = self.org.declared(self.node_id, hour, is_first)
            first, end = hour * HOUR_MS, (hour + 1) * HOUR_MS
            failed = _cut(self.failed, first - EDGE_MS, end)
            mine = tuple(row for row in assigned or () if first <= row[1] < end)
            peers = self._peers_over(failed, None) if failed else None
            if failed or mine:
                declared = replace(declared, probe_failed=failed, peers_alive=peers, assigned=mine)
            found = self._contexts[key] = declared
        return found

    def witnessed(
        self, context: Context, from_ms: int, to_ms: int, seen_ms: int | None, rebooted: bool = False
    ) -> Context:
        """See Dated: the probe and the peers over the whole silence, and assignments within it."""
        failed = merged((*context.probe_failed, *_cut(self.failed, from_ms - EDGE_MS, to_ms)))
        mine = tuple(row for row in self.org.assigned.get(self.node_id, ()) if from_ms < row[1] <= to_ms)
        mine = tuple(sorted({*context.assigned, *mine}, key=lambda row: (row[1], row[0])))
        peers = context.peers_alive
        if rebooted or to_ms - from_ms >= PEERS_AFTER_MS or failed:
            found = self._peers_of(from_ms, to_ms, seen_ms)
            peers = merged((*found, *(peers or ()))) if found is not None else peers
        if (failed, peers, mine) == (context.probe_failed, context.peers_alive, context.assigned):
            return context
        return replace(context, probe_failed=failed, peers_alive=peers, assigned=mine)

    def _peers_over(self, spans: Iterable[Span], seen_ms: int | None) -> tuple[Span, ...] | None:
        found = [self._peers_of(a, b, seen_ms) for a, b in spans]
        return None if any(one is None for one in found) else merged(span for one in found for span in one or ())

    def _peers_of(self, from_ms: int, to_ms: int, seen_ms: int | None) -> tuple[Span, ...] | None:
        key = (from_ms, to_ms, seen_ms)
        if key not in self._peers:
            self._peers[key] = peer_spans(self.node_id, *key)
        return self._peers[key]


def _cut(spans: Iterable[Span], from_ms: int, to_ms: int) -> tuple[Span, ...]:
    cut = ((max(a, from_ms), min(b, to_ms)) for a, b in spans)
    return tuple((a, b) for a, b in cut if a < b)


def hour_at(at: datetime) -> int:
    """The hour (since 1970 UTC) in which an instant lies."""
    return hour_of(ms_of(at))
