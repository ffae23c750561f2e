"""The unit of storage: one row per (node, hour) with every subject's strip, the verdict table and the rollups.

Row bytes: `GPH2`, the lengths of header (4 bytes, big-endian) and tail (2 bytes), the header (UTF-8 JSON), the tail of
its identities (packed.py), the input digest (32 bytes), each different strip once (240 bytes, or 480 where the table
has more than 256 verdicts; in the order in which the header's subjects first need them), the closing state. Verdicts
and subjects are sorted, so the bytes don't depend on the order of insertion. Index 0 of the table is always the slot
that no evidence has closed yet.

The header: hour, version, final, closed_by, the verdicts from index 1 on (their number and codes, then columns: state,
nominal as the difference from the one before, lower and upper from the nominal, certain and possible as places in the
codes), the subjects (GPUs: their number, or their indexes where some are left out; other names; ports), each subject's
strip. Rollups are added up from the strips.
"""

from __future__ import annotations

import json
import sys
from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple, Union

from fleet.domain.packed import Reader, Writer, column, spread
from fleet.domain.slots import SLOT_S, SLOTS_PER_HOUR, first_slot
from fleet.domain.verdicts import STATE_RANK, UNKNOWN_PROVISIONAL, State, Verdict

MAGIC = b"GPH2"
NARROW = 256  # distinct verdicts that one byte a slot can name
Strip = Union[bytearray, "array[int]"]  # the array's type cannot be subscripted at run time
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
        "_wide",
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
        self._strips: dict[str, Strip] = {}
        self._wide = False  # two bytes a slot: more distinct verdicts than a byte can name

    def put(self, subject: str, first: int, end: int, verdict: Verdict) -> None:
        """Give the part of `[first, end)` (absolute slots) that lies in this hour this verdict; later calls win."""
        base = first_slot(self.hour)
        a, b = max(0, first - base), min(SLOTS_PER_HOUR, end - base)
        if a >= b:
            return
        strip = self._strips.get(subject)
        if strip is None:
            strip = self._strips[subject] = _blank(SLOTS_PER_HOUR, self._wide)
        index = self._index.get(verdict)
        if index is None:
            if len(self._table) == NARROW and not self._wide:
                self._make_room()
                strip = self._strips[subject]
            index = len(self._table)
            self._table.append(verdict)
            self._index[verdict] = index
        if b - a == 1:
            strip[a] = index
        else:
            for at in range(a, b) if self._wide else ():
                strip[at] = index
            if isinstance(strip, bytearray):
                strip[a:b] = bytes((index,)) * (b - a)

    def clear_from(self, slot: int) -> None:
        """Take back what was said of this slot (absolute) and those after it."""
        a = max(0, slot - first_slot(self.hour))
        if a < SLOTS_PER_HOUR:
            for strip in self._strips.values():
                if isinstance(strip, bytearray):
                    strip[a:] = bytes(SLOTS_PER_HOUR - a)
                else:
                    strip[a:] = array("H", bytes(2 * (SLOTS_PER_HOUR - a)))

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
        row._wide = self._wide
        row._strips = {subject: strip[:] for subject, strip in self._strips.items()}
        return row

    @property
    def is_empty(self) -> bool:
        """Whether nothing is said of any slot and no item was folded."""
        return not self.closing_state and not any(any(strip) for strip in self._strips.values())

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
            strip = _blank(SLOTS_PER_HOUR, False)
        base, start = first_slot(self.hour), 0
        for i in range(1, SLOTS_PER_HOUR + 1):
            if i == SLOTS_PER_HOUR or strip[i] != strip[start]:
                yield StripRun(base + start, base + i, self._table[strip[start]])
                start = i

    def distinct(self) -> list[Verdict]:
        """The verdicts that stand in this hour's table, each once."""
        return list(self._table)

    def reasons(self) -> set[str]:
        """Every reason, certain or possible, in the table of this hour."""
        return {code for verdict in self._table for code in (*verdict.certain, *verdict.possible)}

    def rollup(self, subject: str) -> Rollup:
        """The subject's hour in integers."""
        return _rollup(self._numbers(self._strips.get(subject) or bytearray(SLOTS_PER_HOUR)))

    def rollups(self) -> dict[str, Rollup]:
        """Every subject's hour in integers. Equal strips, as those of a node's healthy GPUs, are summed up once."""
        known: dict[bytes, Rollup] = {}
        found = {}
        for subject in self.subjects():
            strip = bytes(self._strips[subject])
            rollup = known.get(strip)
            if rollup is None:
                rollup = known[strip] = self.rollup(subject)
            found[subject] = rollup
        return found

    def _numbers(self, strip: Strip) -> list[int]:
        """[seconds per state in the order of State, nominal, lower, upper sums, down, degraded]."""
        numbers = [0] * (len(_STATES) + 5)
        for index, count in Counter(strip).items():
            verdict = self._table[index]
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
        return numbers

    def _make_room(self) -> None:
        """Drop verdicts that no slot uses any more; where that does not help, take two bytes a slot."""
        used = set().union(*(set(strip) for strip in self._strips.values())) | {0}
        self._retable([i for i in range(len(self._table)) if i in used])
        if len(self._table) == NARROW:
            self._wide = True
            self._strips = {s: array("H", list(strip)) for s, strip in self._strips.items()}

    def _retable(self, keep: list[int]) -> None:
        """Keep these verdicts in this order; the strips are as narrow as that allows."""
        move = dict(zip(keep, range(len(keep)), strict=True))
        self._wide = len(keep) > NARROW
        kind: Callable[[Iterable[int]], Strip] = _wide_strip if self._wide else bytearray
        self._strips = {s: kind(move.get(i, 0) for i in strip) for s, strip in self._strips.items()}
        self._table = [self._table[i] for i in keep]
        self._index = {v: i for i, v in enumerate(self._table)}

    def to_bytes(self) -> bytes:
        """The canonical bytes, not compressed."""
        return b"".join(self.parts())

    def parts(self) -> tuple[bytes, bytes, bytes, bytes]:
        """The canonical bytes by their kinds: the header, identities and digest, the strips, the closing state."""
        subjects = sorted(s for s, strip in self._strips.items() if any(strip))
        used = set().union(*(set(self._strips[s]) for s in subjects)) if subjects else set()
        keep = [0, *sorted((used - {0}), key=lambda i: _sort_key(self._table[i]))]
        if keep != list(range(len(self._table))) or len(subjects) != len(self._strips):
            self._strips = {s: self._strips[s] for s in subjects}
            self._retable(keep)
        places: dict[bytes, int] = {}
        which = [places.setdefault(_raw(self._strips[subject]), len(places)) for subject in subjects]
        ids = Writer()
        header = json.dumps(
            [
                self.hour,
                self.rules_version,
                int(self.final),
                self.closed_by,
                _pack_table(self._table[1:]),
                _pack_subjects(subjects, ids),
                column(which),
            ],
            separators=(",", ":"),
            ensure_ascii=False,
            check_circular=False,
        ).encode()
        strips = b"".join(places)
        tail = ids.tail()
        size = len(header).to_bytes(4, "big") + len(tail).to_bytes(2, "big")
        return MAGIC + size + header, tail + self.input_digest, strips, self.closing_state

    @classmethod
    def from_bytes(cls, raw: bytes) -> HourRow:
        """The row with these bytes. Raises ValueError for bytes that are no row."""
        header, subjects, which, at = _header(raw)
        hour, version, final, closed_by, table = header[:5]
        row = cls(hour, version)
        row.final, row.closed_by = bool(final), closed_by
        row.input_digest = raw[at : at + 32]
        at += 32
        row._table += _read_table(table)
        row._index = {verdict: i for i, verdict in enumerate(row._table)}
        row._wide = len(row._table) > NARROW
        size = SLOTS_PER_HOUR * 2 if row._wide else SLOTS_PER_HOUR
        for subject, place in zip(subjects, which, strict=True):
            part = raw[at + place * size : at + (place + 1) * size]
            row._strips[subject] = _read_wide(part) if row._wide else bytearray(part)
        row.closing_state = raw[at + (max(which, default=-1) + 1) * size :]
        return row


def _pack_table(table: list[Verdict]) -> list[Any]:
    codes = sorted({code for verdict in table for code in (*verdict.certain, *verdict.possible)})
    at = {code: i for i, code in enumerate(codes)}
    nominals = [-1 if v.nominal is None else v.nominal for v in table]
    return [
        len(table),
        codes,
        column([STATE_ORDER[v.state] for v in table]),
        column([n - before for before, n in pairwise([0, *nominals])]),
        column([v.lower - n for v, n in zip(table, nominals, strict=True)]),
        column([v.upper - n for v, n in zip(table, nominals, strict=True)]),
        column([[at[code] for code in v.certain] for v in table]),
        column([[at[code] for code in v.possible] for v in table]),
    ]


def _read_table(packed: list[Any]) -> list[Verdict]:
    count, codes, *columns = packed
    nominal = 0
    table = []
    for state, step, lower, upper, certain, possible in zip(*(spread(c, count) for c in columns), strict=True):
        nominal += step
        table.append(
            Verdict(
                _STATES[state],
                None if nominal < 0 else nominal,
                nominal + lower,
                nominal + upper,
                tuple(codes[i] for i in certain),
                tuple(codes[i] for i in possible),
            )
        )
    return table


def _pack_subjects(subjects: list[str], ids: Writer) -> list[Any]:
    gpus = [int(s[1:]) for s in subjects if s[0] == "g"]
    ports = [ids.code(s[2:]) for s in subjects if s[:2] == "p:"]
    others = [s for s in subjects if s[0] != "g" and s[:2] != "p:"]
    whole = len(gpus) == max(gpus, default=-1) + 1
    return [len(gpus) if whole else gpus, others, len(ports), column(ports)]


def _read_subjects(packed: list[Any], ids: Reader) -> list[str]:
    gpus, others, ports, codes = packed
    names = [f"g{i}" for i in (range(gpus) if isinstance(gpus, int) else gpus)]
    return sorted([*names, *others, *(f"p:{ids.text(code)}" for code in spread(codes, ports))])


def _blank(slots: int, wide: bool) -> Strip:
    return array("H", bytes(2 * slots)) if wide else bytearray(slots)


def _wide_strip(indexes: Iterable[int]) -> Strip:
    return array("H", indexes)


def _raw(strip: Strip) -> bytes:
    """The strip's bytes; two bytes a slot are little-endian."""
    if isinstance(strip, bytearray):
        return bytes(strip)
    if sys.byteorder == "big":
        strip = strip[:]
        strip.byteswap()
    return strip.tobytes()


def _read_wide(raw: bytes) -> Strip:
    strip = array("H", raw)
    if sys.byteorder == "big":
        strip.byteswap()
    return strip


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
    """The rollups of a row's bytes; each different strip is added up once."""
    row = HourRow.from_bytes(raw)
    done: dict[bytes, Rollup] = {}
    out = {}
    for subject, strip in row._strips.items():
        key = bytes(strip)
        found = done.get(key)
        if found is None:
            found = done[key] = row.rollup(subject)
        out[subject] = found
    return out


def _header(raw: bytes) -> tuple[list[Any], list[str], list[int], int]:
    """(header, subjects, their strips, where the input digest begins). Raises ValueError for bytes that are no row."""
    if raw[:4] != MAGIC:
        raise ValueError("not a node hour")
    end = 10 + int.from_bytes(raw[4:8], "big")
    header = json.loads(raw[10:end])
    at = end + int.from_bytes(raw[8:10], "big")
    subjects = _read_subjects(header[5], Reader(raw[end:at]))
    return header, subjects, spread(header[6], len(subjects)), at


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
