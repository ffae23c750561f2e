"""Who needs raw evidence longer than the raw horizon, or before it is packed. Other apps register what they know.

Asked each time, never stored: a claim that is closed holds nothing any more from the next run on.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from datetime import date


@dataclass(frozen=True)
class Hold:
    """The evidence of the hours `[first_hour, last_hour]` of these nodes (None: all) must stay, and why."""

    first_hour: int
    last_hour: int
    node_ids: Collection[int] | None
    why: str


#: Asked in the org, with the first and last hour of a day: what of it must stay.
HoldSource = Callable[[int, int], Iterable[Hold]]
#: Asked in the org, with the first and last `sample_day` of a week: why it must not be packed yet, or None.
Gate = Callable[[date, date], str | None]

_sources: list[HoldSource] = []
_gates: list[Gate] = []


def register(source: HoldSource) -> None:
    """Ask this function before evidence is dropped."""
    if source not in _sources:
        _sources.append(source)


def register_gate(gate: Gate) -> None:
    """Ask this function before a week leaves the inbox."""
    if gate not in _gates:
        _gates.append(gate)


def holds_of(first_hour: int, last_hour: int) -> list[Hold]:
    """What must stay of these hours of the current org."""
    return [hold for source in _sources for hold in source(first_hour, last_hour)]


def closed_gate(first_day: date, last_day: date) -> str | None:
    """Why the current org's week must not leave the inbox yet; None when nothing is against it."""
    return next((why for gate in _gates if (why := gate(first_day, last_day))), None)
