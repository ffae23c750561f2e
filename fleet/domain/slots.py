"""Slots and hours: the grid of 15 s on which every verdict stands.

Slot n is the half-open span `[15n, 15n+15)` seconds of the Unix clock, hour h holds the slots `[240h, 240h+240)`.
All instants are integers, milliseconds since 1970 UTC.
"""

from __future__ import annotations

SLOT_MS = 15_000
SLOT_S = 15
SLOTS_PER_HOUR = 240
HOUR_MS = 3_600_000

#: Two samples of a source at most this far apart vouch for what lies between (fold.md 5): one missed sample.
VOUCH_MS = 37_500


def slot_of(ms: int) -> int:
    """The slot in which the instant lies."""
    return ms // SLOT_MS


def slot_start(slot: int) -> int:
    """The slot's first instant, ms."""
    return slot * SLOT_MS


def hour_of(ms: int) -> int:
    """Hours since the epoch of the hour in which the instant lies."""
    return ms // HOUR_MS


def hour_of_slot(slot: int) -> int:
    """The hour to which the slot belongs."""
    return slot // SLOTS_PER_HOUR


def first_slot(hour: int) -> int:
    """The first of the hour's 240 slots."""
    return hour * SLOTS_PER_HOUR
