"""The deadlines as an iCalendar feed (RFC 5545): text escaped, lines folded at 75 octets."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime

from claims.selectors import Deadline
from claims.words import money


def calendar(slug: str, deadlines: Iterable[Deadline], now: datetime) -> str:
    """A calendar of the last instants at which something can be filed."""
    lines = ["BEGIN:VCALENDAR", "VERSION:2.0", "PRODID:-//Goodput//claims//EN", f"X-WR-CALNAME:Claims of {slug}"]
    for one in deadlines:
        if one.closes_at is None or one.days_left is None:
            continue
        amount = "" if one.amount is None else f", {money(one.amount, one.currency)}"
        lines += [
            "BEGIN:VEVENT",
            f"UID:{slug}-{one.month}-{one.report.contract_id if one.report else 0}@goodput",
            f"DTSTAMP:{_stamp(now)}",
            f"DTSTART:{_stamp(one.closes_at)}",
            f"SUMMARY:{_escape(f'File the claim for {one.month}, {one.contract}{amount}')}",
            f"DESCRIPTION:{_escape('; '.join(one.missing) or 'Nothing is missing.')}",
            "BEGIN:VALARM",
            "ACTION:DISPLAY",
            "DESCRIPTION:Claim deadline",
            "TRIGGER:-P3D",
            "END:VALARM",
            "END:VEVENT",
        ]
    lines.append("END:VCALENDAR")
    return "".join(f"{folded}\r\n" for line in lines for folded in _fold(line))


def _stamp(at: datetime) -> str:
    return at.astimezone(UTC).strftime("%Y%m%dT%H%M%SZ")


def _escape(text: str) -> str:
    plain = text.replace("\\", "\\\\").replace(";", "\\;").replace(",", "\\,")
    return "".join(char for char in plain.replace("\n", "\\n") if char.isprintable())


def _fold(line: str) -> Iterable[str]:
    out, size = "", 0
    for char in line:
        width = len(char.encode())
        if size + width > 74:
            yield out
            out, size = " ", 1
        out, size = out + char, size + width
    yield out
