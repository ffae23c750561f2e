"""The GPU rollup of a node hour as a row of integers: what pages sum over thousands of hours without opening a body.

All are GPU-slots of the hour, or weights 0..100 × GPU-slots. Slots that nothing has closed yet stand in `open_slots`
alone.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from fleet.domain.slots import SLOT_S
from fleet.domain.strips import HourRow
from fleet.domain.verdicts import UNKNOWN_PROVISIONAL, State


class HourSums(NamedTuple):
    """In the order of NodeHour's columns. `known` + `unknown` + `open_slots` = 240 × `gpus`."""

    gpus: int
    open_slots: int
    known: int
    unknown: int
    nominal: int
    lower: int
    upper: int
    down: int
    degraded: int
    held: int


NO_HOURS = HourSums(0, 0, 0, 0, 0, 0, 0, 0, 0, 0)


def columns_of(row: HourRow) -> HourSums:
    """The sums over the row's GPUs."""
    gpus = open_slots = known = unknown = nominal = lower = upper = down = degraded = held = 0
    for subject in row.subjects():
        if subject[0] != "g":
            continue
        rollup = row.rollup(subject)
        blank = _open_slots(row, subject) if rollup.seconds[State.UNKNOWN] else 0
        away = rollup.seconds[State.HELD] // SLOT_S
        gpus += 1
        open_slots += blank
        known += rollup.known_s // SLOT_S
        unknown += rollup.seconds[State.UNKNOWN] // SLOT_S - blank
        nominal += rollup.nominal_ws // SLOT_S
        lower += rollup.lower_ws // SLOT_S - UNKNOWN_PROVISIONAL.lower * blank
        upper += rollup.upper_ws // SLOT_S - UNKNOWN_PROVISIONAL.upper * blank
        held += away
        down += rollup.down_s // SLOT_S - away
        degraded += rollup.degraded_s // SLOT_S
    return HourSums(gpus, open_slots, known, unknown, nominal, lower, upper, down, degraded, held)


def _open_slots(row: HourRow, subject: str) -> int:
    return sum(end - first for first, end, verdict in row.runs(subject) if verdict == UNKNOWN_PROVISIONAL)


@dataclass(frozen=True, slots=True)
class Sums:
    """GPU-slots of a span and their weights. `known` + `unknown` = all that count; weights are 0..100 × GPU-slots."""

    known: int = 0
    unknown: int = 0
    nominal: int = 0
    lower: int = 0
    upper: int = 0
    down: int = 0
    degraded: int = 0
    held: int = 0

    def __add__(self, other: Sums) -> Sums:
        return Sums(
            self.known + other.known,
            self.unknown + other.unknown,
            self.nominal + other.nominal,
            self.lower + other.lower,
            self.upper + other.upper,
            self.down + other.down,
            self.degraded + other.degraded,
            self.held + other.held,
        )

    @property
    def all(self) -> int:
        """Every GPU-slot that counts."""
        return self.known + self.unknown

    @property
    def known_full(self) -> int:
        """What `nominal` would be without any loss."""
        return 100 * self.known

    @property
    def all_full(self) -> int:
        """What `lower` and `upper` would be without any loss."""
        return 100 * self.all

    @property
    def lost_ws(self) -> int:
        """Weight × GPU-slots that were lost in known time."""
        return 100 * self.known - self.nominal

    @property
    def lost_gpu_hours(self) -> float:
        """GPU-hours lost in known time, for display."""
        return self.lost_ws / 100 * SLOT_S / 3600

    def as_seconds(self) -> dict[str, int]:
        """The same as integers for programs: GPU-seconds and weight × GPU-seconds."""
        return {
            "known_seconds": self.known * SLOT_S,
            "unknown_seconds": self.unknown * SLOT_S,
            "down_seconds": self.down * SLOT_S,
            "degraded_seconds": self.degraded * SLOT_S,
            "held_seconds": self.held * SLOT_S,
            "nominal_weight_seconds": self.nominal * SLOT_S,
            "lower_loss_weight_seconds": self.lower * SLOT_S,
            "higher_loss_weight_seconds": self.upper * SLOT_S,
        }


ZERO = Sums()


def total(many: Iterable[Sums]) -> Sums:
    """The sum of sums."""
    known = unknown = nominal = lower = upper = down = degraded = held = 0
    for one in many:
        known += one.known
        unknown += one.unknown
        nominal += one.nominal
        lower += one.lower
        upper += one.upper
        down += one.down
        degraded += one.degraded
        held += one.held
    return Sums(known, unknown, nominal, lower, upper, down, degraded, held)


def gap(slots: int) -> Sums:
    """GPU-slots without evidence: unknown, 100 in the claims reading, 0 in the other."""
    return Sums(unknown=slots, lower=100 * slots)


def span_sums(rows: HourSums, unseen: int) -> Sums:
    """The sums of a node: those of its rows, and `unseen` GPU-slots that no row speaks of (negative: taken back)."""
    return Sums(
        rows.known,
        rows.unknown + unseen,
        rows.nominal,
        rows.lower + 100 * unseen,
        rows.upper,
        rows.down,
        rows.degraded,
        rows.held,
    )
