"""Geometry of the pages' drawings, in per cent of the width: tier bars and day bars. Numbers come from result.json."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple

from claims.words import percent, span

MET_WIDTH = 18.0
NEAR = 17.0  # per cents of width within which two labels would touch


class Band(NamedTuple):
    """A stretch of the tier bar: uptime below `below` gives `credit` percent."""

    x: float
    width: float
    middle: float
    below: str
    credit: str
    is_here: bool
    rank: int


class Mark(NamedTuple):
    """A value on the bar; `anchor` keeps neighbouring labels apart."""

    x: float
    text: str
    anchor: str


class TierBar(NamedTuple):
    """Bands from the worst to met, today's mark, the upper reading and the projection."""

    bands: tuple[Band, ...]
    met: Band
    now: Mark
    upper: Mark | None
    range_x: float
    range_width: float
    words: str


def tier_bar(tiers: Sequence[Sequence[str]], lower: Mapping[str, str] | None, upper: Mapping[str, str] | None) -> Any:
    """The bar of a unit's readings (shares of result.json); None without tiers or uptime."""
    if not tiers or lower is None:
        return None
    value = float(lower["percent_floor_6"])
    worst = value if upper is None else float(upper["percent_floor_6"])
    belows = [float(below) for below, _ in tiers]
    width = (100 - MET_WIDTH) / len(tiers)
    bands = []
    for rank, (below, credit) in enumerate(reversed(tiers)):
        under = -1.0 if rank == 0 else float(tiers[len(tiers) - rank][0])
        here = under <= value < float(below)
        bands.append(Band(rank * width, width, (rank + 0.5) * width, below, credit, here, min(rank, 2)))
    met = Band(100 - MET_WIDTH, MET_WIDTH, 100 - MET_WIDTH / 2, "", "", value >= belows[0], 3)
    at, low = place(belows, value), place(belows, worst)
    is_near = at - low < NEAR
    anchor = "end" if at > 88 else "start" if at < 12 else "middle"
    now = Mark(at, f"{percent(lower)} now", "start" if is_near and low < at and at < 80 else anchor)
    shown = None
    if worst < value and percent(lower) != percent(upper):
        shown = Mark(max(low, 0), f"{percent(upper)} upper reading", "end" if low > 25 else "start")
        if low <= 25 and is_near:
            shown = None
    tier = next((band for band in bands if band.is_here), None)
    words = f"Uptime {percent(lower)} percent " + (
        f"lies below {tier.below}: {tier.credit} percent credit" if tier else "meets the commitment"
    )
    return TierBar(tuple(bands), met, now, shown, low, max(at - low, 0), words)


def place(belows: Sequence[float], value: float) -> float:
    """Where a percentage lies: equal widths per tier, linear within."""
    edges = list(reversed(belows))
    width = (100 - MET_WIDTH) / len(edges)
    if value >= edges[-1]:
        room = 100 - edges[-1]
        return 100 - MET_WIDTH + (MET_WIDTH * (value - edges[-1]) / room if room else MET_WIDTH)
    lows = [max(0.0, edges[0] - 5), *edges]
    for rank, edge in enumerate(edges):
        if value < edge:
            share = (value - lows[rank]) / (edge - lows[rank]) if edge > lows[rank] else 0
            return rank * width + width * min(1.0, max(0.0, share))
    return 100.0


class Day(NamedTuple):
    """A day's bar: heights in per cent of counted and of unknown time, and its words."""

    x: float
    width: float
    down: float
    down_y: float
    unknown: float
    words: str


def day_bars(days: Sequence[Mapping[str, str]], units: int, length: int) -> list[Day]:
    """One bar per day of the month; `length`: its days, so that a month that runs leaves room."""
    out = []
    step = 100 / max(length, len(days), 1)
    for number, day in enumerate(days):
        whole = int(day["seconds"]) * max(units, 1)
        counted, owed = int(day["counted_seconds"]), int(day["owed_gpu_seconds"])
        unknown = int(day["unknown_gpu_seconds"])
        down = 100 * counted / whole if whole else 0
        down = max(down, 6.0) if counted else 0.0
        blind = 100 * unknown / owed if owed else 0.0
        words = f"{day['day']}: {span(counted)} counted"
        if unknown:
            words += f", {100 * unknown // owed if owed else 0} % unknown"
        out.append(Day(number * step, step * 0.86, down, 100 - down, blind, words))
    return out


class Piece(NamedTuple):
    """A piece of the month's strip, of 744 units: counted, or unknown."""

    x: float
    width: float
    css: str


STRIP = 744


def month_strip(document: Mapping[str, Any]) -> list[Piece]:
    """The counted stretches and the days with unknown time, over the whole month."""
    period = document["whole_period"]
    start, end = _seconds(period["start_utc"]), _seconds(period["end_utc"])
    scale = STRIP / max(1, end - start)
    out = []
    at = start
    for day in document["days"]:
        length = int(day["seconds"])
        owed, unknown = int(day["owed_gpu_seconds"]), int(day["unknown_gpu_seconds"])
        if unknown and owed:
            out.append(Piece((at - start) * scale, max(1.0, length * unknown / owed * scale), "un"))
        at += length
    for unit in (document["assessment"].get("result") or {}).get("units", ()):
        for one in unit["incidents"]:
            a, b = _seconds(one["start_utc"]), _seconds(one["end_utc"])
            a, b = max(a, start), min(b, end)
            if a < b:
                out.append(Piece((a - start) * scale, max(1.5, (b - a) * scale), "dn"))
    return out


def _seconds(utc: str) -> int:
    return int(datetime.fromisoformat(utc).timestamp())
