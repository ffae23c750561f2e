"""Periods: half-open spans of instants built in an IANA zone, counted in slots of 15 s.

A month is what lies between two instants; its length is never a number of days (sla.md trap 1). October 2026 in
Europe/Berlin has 178,800 slots, March 178,320.
"""

from __future__ import annotations

from calendar import monthrange
from dataclasses import dataclass
from datetime import UTC, date, datetime
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from claims.errors import PeriodError, PeriodNotOver, UnknownZone
from fleet.domain.slots import SLOT_MS, SLOT_S

CALENDAR_MONTH = "calendar_month"
BILLING_CYCLE = "billing_cycle"
PERIOD_KINDS = (CALENDAR_MONTH, BILLING_CYCLE)


@dataclass(frozen=True, slots=True)
class Period:
    """`[start_ms, end_ms)`, ms since 1970 UTC, both on slot edges. `label` is the month of its start, `2026-10`."""

    kind: str
    zone: str
    label: str
    start_ms: int
    end_ms: int

    @property
    def first_slot(self) -> int:
        """Its first slot, counted from 1970."""
        return self.start_ms // SLOT_MS

    @property
    def end_slot(self) -> int:
        """The slot after its last one."""
        return self.end_ms // SLOT_MS

    @property
    def slots(self) -> int:
        """How many slots."""
        return self.end_slot - self.first_slot

    @property
    def seconds(self) -> int:
        """How many seconds."""
        return self.slots * SLOT_S

    def refuse_if_not_over(self, now_ms: int) -> None:
        """Raise PeriodNotOver while it runs."""
        if now_ms < self.end_ms:
            raise PeriodNotOver(f"{self.label} ends at {utc_text(self.end_ms)}: there is nothing to issue yet.")


def zone_of(name: str) -> ZoneInfo:
    """The zone. Raises UnknownZone."""
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise UnknownZone(f"There is no time zone {name!r} in the IANA database of this machine.", "zone") from error


def calendar_month(label: str, zone: str = "UTC") -> Period:
    """The month `2026-10` from local midnight to local midnight. Raises PeriodError."""
    year, month = _year_month(label)
    following = (year + 1, 1) if month == 12 else (year, month + 1)
    return _period(CALENDAR_MONTH, zone, label, date(year, month, 1), date(*following, 1))


def billing_cycle(label: str, zone: str, anchor_day: int) -> Period:
    """The cycle that begins on the anchor day of the month `label`, at local midnight, up to the next one.

    A month that has no such day begins its cycle on its last day (anchor 31: 28 February).
    """
    if not 1 <= anchor_day <= 31:
        raise PeriodError("The anchor day of a billing cycle is a day of the month, 1 to 31.", "anchor_day")
    year, month = _year_month(label)
    following = (year + 1, 1) if month == 12 else (year, month + 1)
    return _period(
        BILLING_CYCLE, zone, label, _anchor(year, month, anchor_day), _anchor(following[0], following[1], anchor_day)
    )


def build(kind: str, label: str, zone: str, anchor_day: int | None = None) -> Period:
    """The period of this kind. Raises PeriodError."""
    if kind == CALENDAR_MONTH:
        return calendar_month(label, zone)
    if kind == BILLING_CYCLE:
        if anchor_day is None:
            raise PeriodError("A billing cycle needs its anchor day.", "anchor_day")
        return billing_cycle(label, zone, anchor_day)
    raise PeriodError(f"A period is one of {', '.join(PERIOD_KINDS)}, not {kind!r}.", "period_kind")


def utc_text(ms: int) -> str:
    """`2026-10-01T00:00:00Z`."""
    moment = datetime.fromtimestamp(ms // 1000, UTC)  # strftime takes five times as long, and packs have many
    return f"{moment.replace(tzinfo=None).isoformat()}Z"


def ms_of(text: str) -> int:
    """Milliseconds of an ISO instant with an offset (`Z` or `+02:00`). Raises PeriodError."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        raise PeriodError(f"{text!r} is no ISO 8601 instant.") from error
    if moment.tzinfo is None:
        raise PeriodError(f"{text!r} has no zone: write Z or an offset.")
    return round(moment.timestamp() * 1000)


def local_midnight_ms(day: date, zone: str) -> int:
    """The first instant of the local day.

    Midnight that a change of clocks skips is the instant of the change; one that comes twice is the first.
    """
    return round(datetime(day.year, day.month, day.day, tzinfo=zone_of(zone)).timestamp() * 1000)


def _year_month(label: str) -> tuple[int, int]:
    parts = label.split("-")
    if len(parts) != 2 or len(parts[0]) != 4 or not all(p.isdigit() for p in parts) or not 1 <= int(parts[1]) <= 12:
        raise PeriodError(f"A month is written 2026-10, not {label!r}.", "month")
    return int(parts[0]), int(parts[1])


def _anchor(year: int, month: int, day: int) -> date:
    return date(year, month, min(day, monthrange(year, month)[1]))


def _period(kind: str, zone: str, label: str, first: date, end: date) -> Period:
    start_ms, end_ms = local_midnight_ms(first, zone), local_midnight_ms(end, zone)
    if start_ms % SLOT_MS or end_ms % SLOT_MS:
        raise PeriodError(f"The edges of {label} in {zone} do not lie on the 15 s grid.", "zone")
    return Period(kind, zone, label, start_ms, end_ms)
