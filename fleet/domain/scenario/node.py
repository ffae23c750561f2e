"""A node's inbox and rows in memory, driven as a worker drives them: advance, mark dirty, re-fold."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from fleet.domain.context import EMPTY, Context, Dated, dated_of
from fleet.domain.fold import silence
from fleet.domain.node_hours import ConditionEvent, ReceivedBatch, advance, rows_needed
from fleet.domain.refold import refold_from
from fleet.domain.rules import Rules, load_rules
from fleet.domain.runs import Emission
from fleet.domain.slots import HOUR_MS, SLOT_MS, first_slot, hour_of_slot
from fleet.domain.state import NodeState
from fleet.domain.strips import HourRow, StripRun
from fleet.domain.verdicts import Verdict


class Node:
    """One node of a fleet without a database."""

    def __init__(self, context: Context = EMPTY, rules: Rules | Dated | None = None) -> None:
        self.context, self.rules = context, rules or load_rules()
        self.state: bytes | None = None
        self.rows: dict[int, bytes] = {}
        self.inbox: dict[bytes, ReceivedBatch] = {}
        self.touched: dict[bytes, tuple[int, int]] = {}
        self.dirty: set[int] = set()
        self.events: list[ConditionEvent] = []
        self._cache: dict[int, tuple[bytes, dict[str, list[Verdict]]]] = {}

    def deliver(self, batches: Iterable[ReceivedBatch]) -> None:
        """One chunk: new bytes go through advance, late ones mark hours dirty."""
        new = []
        for batch in batches:
            if batch.sha256 not in self.inbox:
                self.inbox[batch.sha256] = batch
                new.append(batch)
        state = self.newest()
        rows = {h: HourRow.from_bytes(self.rows[h]) for h in rows_needed(state) if h in self.rows}
        done = advance(state, rows, new, self.rules, self.context)
        self.touched.update(done.touched)
        for late in done.late:
            self.dirty.update(range(late.first_hour, late.last_hour + 1))
        self.dirty.update(done.dirty)
        self._store(done.rows, done.state)
        self.events += done.events

    def _store(self, rows: dict[int, HourRow], state: NodeState | None) -> None:
        for hour, row in rows.items():
            raw = row.to_bytes()
            assert HourRow.from_bytes(raw).to_bytes() == raw
            self.rows[hour] = raw
        if state is not None:
            self.state = state.to_bytes()
            assert NodeState.from_bytes(self.state).to_bytes() == self.state

    def row(self, hour: int) -> HourRow | None:
        """The hour's row."""
        return HourRow.from_bytes(self.rows[hour]) if hour in self.rows else None

    def load(self, hour: int) -> list[ReceivedBatch]:
        """Every batch that touches the hour or its neighbours."""
        return [self.inbox[s] for s, (a, b) in self.touched.items() if a <= hour + 1 and b >= hour - 1]

    def newest(self) -> NodeState | None:
        """The state after everything."""
        return NodeState.from_bytes(self.state) if self.state else None

    def newest_rules(self) -> Rules:
        """The rules of the newest item's hour."""
        state = self.newest()
        return dated_of(self.rules, self.context).rules(state.watermark_ms // HOUR_MS if state else 0)

    def runs(self, hour: int) -> list[tuple[str, StripRun]]:
        """(subject, run) of everything that the hour's row says."""
        row = HourRow.from_bytes(self.rows[hour])
        return [(subject, run) for subject in row.subjects() for run in row.runs(subject)]

    def open_subjects(self) -> set[str]:
        """The subjects of the slots that nothing has closed."""
        state = self.newest()
        return set() if state is None else {e.subject for e in self._silence(state, state.open_slot + 1)}

    def _silence(self, state: NodeState, end_slot: int) -> list[Emission]:
        dated, hour = dated_of(self.rules, self.context), state.watermark_ms // HOUR_MS
        return silence(state, end_slot * SLOT_MS, dated.rules(hour), dated.context(hour))

    def settle(self, everything: bool = False) -> None:
        """Re-fold the dirty hours, oldest first."""
        if everything and self.touched:
            self.dirty.add(min(a for a, _ in self.touched.values()))
        while self.dirty:
            dirty = min(self.dirty)
            last = max([*(b for _, b in self.touched.values()), *self.rows])
            done = refold_from(
                *(dirty, last, self._closings, self.load, self.row, self.rules, self.context),
                *(None if everything else dirty, self.touched.get),
            )
            self.touched.update(done.touched)
            hours = range(done.first_hour, done.end_hour)
            self.events = [e for e in self.events if e.at_ms // HOUR_MS not in hours] + done.events
            self._store(done.rows, None if done.converged else done.state)
            for gone in done.gone:
                del self.rows[gone]
            self.dirty = {h for h in self.dirty if h >= max(done.end_hour, dirty + 1)}

    def _closings(self, before: int) -> Iterator[tuple[int, NodeState]]:
        for hour in sorted((h for h in self.rows if h < before), reverse=True):
            closing = HourRow.from_bytes(self.rows[hour]).closing_state
            if closing:
                yield hour, NodeState.from_bytes(closing)

    def verdicts(self, subject: str, first: int, end: int, until_slot: int | None = None) -> list[Verdict | None]:
        """Verdicts of absolute slots; what nothing closed comes from `silence` up to `until_slot`."""
        out: dict[int, Verdict] = {}
        for slot in range(first, end):
            row = self._cached(hour_of_slot(slot))
            if row is not None and subject in row:
                out[slot] = row[subject][slot - first_slot(hour_of_slot(slot))]
        state = self.newest()
        if state is not None:
            for e in self._silence(state, until_slot if until_slot is not None else state.open_slot + 1):
                if e.subject == subject:
                    for slot in range(max(first, e.first_slot), min(end, e.end_slot)):
                        out[slot] = e.verdict
        return [out.get(slot) for slot in range(first, end)]

    def _cached(self, hour: int) -> dict[str, list[Verdict]] | None:
        if hour not in self.rows:
            return None
        raw, known = self.rows[hour], self._cache.get(hour)
        if known is None or known[0] is not raw:
            row = HourRow.from_bytes(raw)
            known = self._cache[hour] = (raw, {s: row.verdicts(s) for s in row.subjects()})
        return known[1]
