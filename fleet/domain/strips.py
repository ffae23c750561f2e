"""The unit of storage: one row per (node, hour) with every subject's strip, the verdict table and the rollups.

Row bytes: `GPH1`, the header's length (4 bytes, big-endian), the header (UTF-8 JSON), the input digest (32 bytes), one
strip of 240 bytes per subject in the header's order, the closing state. Verdicts and subjects are sorted, so the bytes
don't depend on the order of insertion. Index 0 of the table is always the slot that no evidence has closed yet.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from fleet.domain.slots import SLOT_S, SLOTS_PER_HOUR, first_slot
from fleet.domain.verdicts import STATE_RANK, UNKNOWN_PROVISIONAL, State, Verdict

MAGIC = b"GPH1"
MAX_VERDICTS = 255
_STATES = tuple(State)


@dataclass(frozen=True, slots=True)
class Rollup:
    """One subject's hour in integers: seconds per state (they add up to 3600), sums of weight times seconds (weights
    0..100; `nominal_ws` over the seconds that are not unknown), seconds down (nominal 0) and degraded (1..99).
    """

    seconds: dict[State, int]
    nominal_ws: int
    lower_ws: int
    upper_ws: int
    down_s: int
    degraded_s: int

    @property
    def known_s(self) -> int:
        """Seconds that are not unknown: the coverage."""
        return 3600 - self.seconds[State.UNKNOWN]


class StripRun(NamedTuple):
    """A verdict for the absolute slots `[first_slot, end_slot)`."""

    first_slot: int
    end_slot: int
    verdict: Verdict


class HourRow:
    """One node's hour. `final`: the first evidence after the hour has closed its last stretch; `closed_by`: the hour of
    that evidence; `closing_state`: the state's bytes after the hour's last item, empty when it has none.
    """

    __slots__ = (
        "_index",
        "_strips",
        "_table",
        "closed_by",
        "closing_state",
        "final",
        "hour",
        "input_digest",
        "rules_version",
    )

    def __init__(self, hour: int, rules_version: str = "") -> None:
        self.hour = hour
        self.final = False
        self.closed_by: int | None = None
        self.input_digest = bytes(32)
        self.rules_version = rules_version
        self.closing_state = b""
        self._table: list[Verdict] = [UNKNOWN_PROVISIONAL]
        self._index: dict[Verdict, int] = {UNKNOWN_PROVISIONAL: 0}
        self._strips: dict[str, bytearray] = {}

    def put(self, subject: str, first: int, end: int, verdict: Verdict) -> None:
        """Give the part of `[first, end)` (absolute slots) that lies in this hour this verdict; later calls win."""
        base = first_slot(self.hour)
        a, b = max(0, first - base), min(SLOTS_PER_HOUR, end - base)
        if a >= b:
            return
        strip = self._strips.get(subject)
        if strip is None:
            strip = self._strips[subject] = bytearray(SLOTS_PER_HOUR)
        index = self._index.get(verdict)
        if index is None:
            if len(self._table) > MAX_VERDICTS:
                self._prune()
            index = len(self._table)
            if index > MAX_VERDICTS:
                raise OverflowError(f"hour {self.hour} has more than {MAX_VERDICTS} distinct verdicts")
            self._table.append(verdict)
            self._index[verdict] = index
        if b - a == 1:
            strip[a] = index
        else:
            strip[a:b] = bytes((index,)) * (b - a)

    def clear_from(self, slot: int) -> None:
        """Take back what was said of this slot (absolute) and those after it."""
        a = max(0, slot - first_slot(self.hour))
        if a < SLOTS_PER_HOUR:
            for strip in self._strips.values():
                strip[a:] = bytes(SLOTS_PER_HOUR - a)

    def copy_from(self, other: HourRow, slot: int) -> None:
        """Take the other row's verdicts of this slot (absolute) and those after it."""
        for subject in other.subjects():
            for run in other.runs(subject):
                if run.end_slot > slot and run.verdict is not UNKNOWN_PROVISIONAL:
                    self.put(subject, max(slot, run.first_slot), run.end_slot, run.verdict)

    def copy(self) -> HourRow:
        """An independent copy."""
        row = HourRow(self.hour, self.rules_version)
        row.final, row.closed_by = self.final, self.closed_by
        row.input_digest, row.closing_state = self.input_digest, self.closing_state
        row._table, row._index = list(self._table), dict(self._index)
        row._strips = {subject: bytearray(strip) for subject, strip in self._strips.items()}
        return row

    def subjects(self) -> list[str]:
        """The subjects that have a verdict in this hour, sorted."""
        return sorted(s for s, strip in self._strips.items() if any(strip))

    def verdicts(self, subject: str) -> list[Verdict]:
        """The subject's 240 verdicts; UNKNOWN_PROVISIONAL where nothing was said."""
        strip = self._strips.get(subject)
        if strip is None:
            return [UNKNOWN_PROVISIONAL] * SLOTS_PER_HOUR
        return [self._table[i] for i in strip]

    def runs(self, subject: str) -> Iterator[StripRun]:
        """The subject's strip as runs of equal verdicts, absolute slots."""
        strip = self._strips.get(subject)
        if strip is None:
            strip = bytearray(SLOTS_PER_HOUR)
        base, start = first_slot(self.hour), 0
        for i in range(1, SLOTS_PER_HOUR + 1):
            if i == SLOTS_PER_HOUR or strip[i] != strip[start]:
                yield StripRun(base + start, base + i, self._table[strip[start]])
                start = i

    def rollup(self, subject: str) -> Rollup:
        """The subject's hour in integers."""
        return _rollup(self._numbers(self._strips.get(subject) or bytearray(SLOTS_PER_HOUR)))

    def rollups(self) -> dict[str, Rollup]:
        """Every subject's hour in integers."""
        return {subject: self.rollup(subject) for subject in self.subjects()}

    def _numbers(self, strip: bytearray) -> list[int]:
        """[seconds per state in the order of State, nominal, lower, upper sums, down, degraded]."""
        numbers = [0] * (len(_STATES) + 5)
        left = SLOTS_PER_HOUR
        for index, verdict in enumerate(self._table):
            count = strip.count(index)
            if not count:
                continue
            seconds = count * SLOT_S
            numbers[STATE_ORDER[verdict.state]] += seconds
            nominal = verdict.nominal
            if nominal is not None:
                numbers[6] += nominal * seconds
                if nominal == 0:
                    numbers[9] += seconds
                elif nominal < 100:
                    numbers[10] += seconds
            numbers[7] += verdict.lower * seconds
            numbers[8] += verdict.upper * seconds
            left -= count
            if not left:
                break
        return numbers

    def _prune(self) -> None:
        """Drop verdicts that no slot uses any more."""
        used = set().union(*(set(strip) for strip in self._strips.values())) | {0}
        keep = [i for i in range(len(self._table)) if i in used]
        self._retable(keep)

    def _retable(self, keep: list[int]) -> None:
        move = bytearray(256)
        for new, old in enumerate(keep):
            move[old] = new
        table = bytes(move)
        self._strips = {s: bytearray(strip.translate(table)) for s, strip in self._strips.items()}
        self._table = [self._table[i] for i in keep]
        self._index = {v: i for i, v in enumerate(self._table)}

    def to_bytes(self) -> bytes:
        """The canonical bytes, not compressed."""
        subjects = sorted(s for s, strip in self._strips.items() if any(strip))
        used = set().union(*(set(self._strips[s]) for s in subjects)) if subjects else set()
        keep = [0, *sorted((used - {0}), key=lambda i: _sort_key(self._table[i]))]
        if keep != list(range(len(self._table))) or len(subjects) != len(self._strips):
            self._strips = {s: self._strips[s] for s in subjects}
            self._retable(keep)
        rollups: dict[bytes, list[int]] = {}
        numbers = []
        for subject in subjects:
            strip = bytes(self._strips[subject])
            found = rollups.get(strip)
            if found is None:
                found = rollups[strip] = self._numbers(self._strips[subject])
            numbers.append(found)
        header = json.dumps(
            [
                self.hour,
                self.rules_version,
                int(self.final),
                self.closed_by,
                self._table[1:],
                subjects,
                numbers,
            ],
            separators=(",", ":"),
            ensure_ascii=False,
            check_circular=False,
        ).encode()
        strips = b"".join(self._strips[s] for s in subjects)
        return b"".join((MAGIC, len(header).to_bytes(4, "big"), header, self.input_digest, strips, self.closing_state))

    @classmethod
    def from_bytes(cls, raw: bytes) -> HourRow:
        """The row with these bytes. Raises ValueError for bytes that are no row."""
        if raw[:4] != MAGIC:
            raise ValueError("not a node hour")
        length = int.from_bytes(raw[4:8], "big")
        at = 8 + length
        hour, version, final, closed_by, table, subjects, _ = json.loads(raw[8:at])
        row = cls(hour, version)
        row.final, row.closed_by = bool(final), closed_by
        row.input_digest = raw[at : at + 32]
        at += 32
        for state, nominal, lower, upper, certain, possible in table:
            verdict = Verdict(State(state), nominal, lower, upper, tuple(certain), tuple(possible))
            row._index[verdict] = len(row._table)
            row._table.append(verdict)
        for subject in subjects:
            row._strips[subject] = bytearray(raw[at : at + SLOTS_PER_HOUR])
            at += SLOTS_PER_HOUR
        row.closing_state = raw[at:]
        return row


STATE_ORDER = {state: i for i, state in enumerate(_STATES)}


def _rollup(numbers: list[int]) -> Rollup:
    return Rollup(
        {state: numbers[i] for i, state in enumerate(_STATES)},
        numbers[6],
        numbers[7],
        numbers[8],
        numbers[9],
        numbers[10],
    )


def read_rollups(raw: bytes) -> dict[str, Rollup]:
    """The rollups of a row's bytes, without its strips."""
    length = int.from_bytes(raw[4:8], "big")
    header = json.loads(raw[8 : 8 + length])
    return {subject: _rollup(numbers) for subject, numbers in zip(header[5], header[6], strict=True)}


def _sort_key(verdict: Verdict) -> tuple[int, int, int, int, tuple[str, ...], tuple[str, ...]]:
    nominal = -1 if verdict.nominal is None else verdict.nominal
    return (
        STATE_RANK[verdict.state],
        -nominal,
        -verdict.lower,
        -verdict.upper,
        verdict.certain,
        verdict.possible,
    )
