"""Clock hours: hours of instants whose local text and offset are the same (contract.md 12).

The hour that autumn repeats is two hours; a change of half an hour leaves two hours of half an hour.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from zoneinfo import ZoneInfo

from claims.domain.contract import ClockHourRule
from claims.domain.periods import zone_of
from claims.domain.spans import Span
from fleet.domain.slots import SLOT_S

HOUR_S = 3600


def hours_over(rule: ClockHourRule, spans: Iterable[Span]) -> list[tuple[int, int]]:
    """(first instant, seconds down) of each clock hour that the rule makes free, in Unix seconds."""
    zone = zone_of(rule.zone)
    down: dict[int, int] = {}
    for first, end in spans:
        at, stop = first * SLOT_S, end * SLOT_S
        while at < stop:
            start, close = clock_hour(zone, at)
            down[start] = down.get(start, 0) + min(stop, close) - at
            at = close
    if rule.compare == ">":
        return sorted(pair for pair in down.items() if pair[1] > rule.threshold_s)
    return sorted(pair for pair in down.items() if pair[1] >= rule.threshold_s)


def clock_hour(zone: ZoneInfo, at: int) -> tuple[int, int]:
    """The clock hour `[start, end)` in Unix seconds that holds the instant."""
    offset = _offset(zone, at)
    start = (at + offset) // HOUR_S * HOUR_S - offset
    end = start + HOUR_S
    if _offset(zone, start) != offset:
        start = _change(zone, start, at)
    if _offset(zone, end - 1) != offset:
        end = _change(zone, at, end - 1)
    return start, end


def _offset(zone: ZoneInfo, at: int) -> int:
    offset = datetime.fromtimestamp(at, UTC).astimezone(zone).utcoffset()
    assert offset is not None
    return int(offset.total_seconds())


def _change(zone: ZoneInfo, low: int, high: int) -> int:
    """The first instant in `(low, high]` whose offset is that of `high`; there is one change between them."""
    after = _offset(zone, high)
    while high - low > 1:
        middle = (low + high) // 2
        if _offset(zone, middle) == after:
            high = middle
        else:
            low = middle
    return high
