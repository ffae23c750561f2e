"""Draws a strip: a node's or GPU's stretches as a few SVG paths, merged by run length, and as words.

The picture is 1440 units wide and 16 high. What is known is drawn over a hatched ground, so unknown time is what stays
hatched; what is not well stands from the bottom up, as high as the share of the node's GPUs in that state. A fault too
short for a pixel is drawn three units wide (3 minutes of 24 h); the words hold the times.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from fleet.domain.slots import SLOT_S
from fleet.selectors_hours import Stretch

WIDTH = 1440
HALF = 8  # half the height: a share of one
LEAST_LEVEL = 3  # of 8: a fault of one GPU of many must still be seen
LEAST_WIDTH = 3
MOST_RUNS = 40  # per path; beyond it near neighbours are drawn as one
ORDER = ("none", "available", "degraded", "held", "down")  # later ones are drawn over earlier ones


@dataclass(frozen=True)
class Layer:
    """One path of a strip: its class, its `d` and its stroke width."""

    css: str
    d: str
    stroke: int


@dataclass(frozen=True)
class Strip:
    """A drawn strip and its words."""

    layers: tuple[Layer, ...]
    words: str


def draw(
    stretches: Iterable[Stretch], first_slot: int, end_slot: int, begins_slot: int = 0, ends_slot: int | None = None
) -> Strip:
    """The strip of `[first_slot, end_slot)`; absolute slots.

    A plain ground lies before `begins_slot`, where there was no node, and from `ends_slot` on, which a live node has
    not reported yet.
    """
    slots = max(1, end_slot - first_slot)
    spans: dict[tuple[str, int], list[list[int]]] = defaultdict(list)
    spent: dict[str, int] = defaultdict(int)
    if begins_slot > first_slot:
        spans["none", HALF].append([0, (min(begins_slot, end_slot) - first_slot) * WIDTH // slots])
    if ends_slot is not None and first_slot <= ends_slot < end_slot:
        spans["none", HALF].append([(ends_slot - first_slot) * WIDTH // slots, WIDTH])
    for one in stretches:
        first, end = max(one.first, first_slot), min(one.end, end_slot)
        if first >= end:
            continue
        spent[one.word] += end - first
        left = (first - first_slot) * WIDTH // slots
        right = max(left + 1, -((first_slot - end) * WIDTH // slots))
        if one.gone < one.total:
            _lay(spans["available", HALF * (one.total - one.gone) // one.total or 1], left, right)
        if one.word in ORDER[2:]:
            level = max(LEAST_LEVEL, -(-HALF * one.affected // one.total))
            left = min(left, WIDTH - LEAST_WIDTH)
            _lay(spans[one.word, level], left, max(right, left + LEAST_WIDTH))
    layers = []
    for word, level in sorted(spans, key=lambda key: (ORDER.index(key[0]), key[1])):
        middle = 2 * HALF - level if word in ORDER[2:] else level
        d = "".join(f"M{left} {middle}h{right - left}" for left, right in _few(spans[word, level]))
        layers.append(Layer(word, d, 2 * level + (2 if level == HALF else 0)))  # a full one hides the ground's edges
    return Strip(tuple(layers), in_words({word: slots * SLOT_S for word, slots in spent.items()}))


def _lay(spans: list[list[int]], left: int, right: int) -> None:
    """Add a span, joined to the last one where they touch."""
    if spans and left <= spans[-1][1]:
        spans[-1][1] = max(right, spans[-1][1])
    else:
        spans.append([left, right])


def _few(spans: list[list[int]]) -> list[list[int]]:
    """At most MOST_RUNS spans: the smallest gaps are closed first."""
    gap = 1
    while len(spans) > MOST_RUNS:
        joined: list[list[int]] = []
        for left, right in spans:
            _lay(joined, left - gap if joined and left - gap <= joined[-1][1] else left, right)
        spans, gap = joined, gap + 1
    return spans


def in_words(spent: dict[str, int]) -> str:
    """The text alternative: seconds per word as times, what is not well first."""
    parts = [
        f"{word} {_time(spent[word])}"
        for word in ("down", "degraded", "held", "unknown", "available")
        if spent.get(word)
    ]
    return ", ".join(parts) or "no time that counts"


def _time(seconds: int) -> str:
    if seconds < 60:
        return f"{seconds} s"
    if seconds < 3600:
        return f"{seconds // 60} min" + (f" {seconds % 60} s" if seconds % 60 and seconds < 600 else "")
    if seconds < 172_800:
        return f"{seconds // 3600} h {seconds % 3600 // 60} min"
    return f"{seconds // 86_400} d {seconds % 86_400 // 3600} h"
