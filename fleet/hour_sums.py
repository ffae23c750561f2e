"""Sums of a period for people and programs: integers, so that a comparison is exact and a display can floor."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Sums:
    """GPU-seconds of a span and their weights. `known` + `unknown` = all that count; weights are 0..100 × GPU-seconds.

    `down` leaves out what is held; both weigh 0.
    """

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
        """Every GPU-second that counts."""
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
        """Weight × GPU-seconds that were lost in known time."""
        return 100 * self.known - self.nominal

    @property
    def lost_gpu_hours(self) -> float:
        """GPU-hours lost in known time, for display."""
        return self.lost_ws / 100 / 3600

    def as_seconds(self) -> dict[str, int]:
        """The same as integers for programs: GPU-seconds and weight × GPU-seconds."""
        return {
            "known_seconds": self.known,
            "unknown_seconds": self.unknown,
            "down_seconds": self.down,
            "degraded_seconds": self.degraded,
            "held_seconds": self.held,
            "nominal_weight_seconds": self.nominal,
            "lower_loss_weight_seconds": self.lower,
            "higher_loss_weight_seconds": self.upper,
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


def gap(seconds: int) -> Sums:
    """GPU-seconds without evidence: unknown, 100 in the claims reading, 0 in the other."""
    return Sums(unknown=seconds, lower=100 * seconds)


def well(seconds: int) -> Sums:
    """GPU-seconds without any loss."""
    return Sums(known=seconds, nominal=100 * seconds, lower=100 * seconds, upper=100 * seconds)
