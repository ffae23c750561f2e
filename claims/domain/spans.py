"""Sets of slots as sorted, disjoint, not touching half-open spans `[first, end)`.

Every function takes and gives such lists; sizes are slots.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

Span = tuple[int, int]
Spans = Sequence[Span]


def normalise(spans: Iterable[Span]) -> list[Span]:
    """The union of any spans; empty and reversed ones vanish, touching ones are joined."""
    out: list[Span] = []
    for a, b in sorted(spans):
        if a >= b:
            continue
        if out and a <= out[-1][1]:
            if b > out[-1][1]:
                out[-1] = (out[-1][0], b)
        else:
            out.append((a, b))
    return out


def union(one: Spans, other: Spans) -> Spans:
    """Slots in either."""
    if not one:
        return other
    if not other:
        return one
    return normalise([*one, *other])


def intersect(one: Spans, other: Spans) -> list[Span]:
    """Slots in both."""
    out: list[Span] = []
    i = j = 0
    while i < len(one) and j < len(other):
        a, b = max(one[i][0], other[j][0]), min(one[i][1], other[j][1])
        if a < b:
            out.append((a, b))
        if one[i][1] < other[j][1]:
            i += 1
        else:
            j += 1
    return out


def subtract(one: Spans, other: Spans) -> Spans:
    """Slots in the first and not in the second."""
    if not one or not other:
        return one
    out: list[Span] = []
    j = 0
    for a, b in one:
        while j < len(other) and other[j][1] <= a:
            j += 1
        k = j
        while k < len(other) and other[k][0] < b:
            if other[k][0] > a:
                out.append((a, other[k][0]))
            a = max(a, other[k][1])
            k += 1
        if a < b:
            out.append((a, b))
    return out


def clip(spans: Spans, first: int, end: int) -> list[Span]:
    """The part inside `[first, end)`."""
    if not spans or (first <= spans[0][0] and spans[-1][1] <= end):
        return list(spans)
    return [(max(a, first), min(b, end)) for a, b in spans if a < end and b > first]


def size(spans: Spans) -> int:
    """How many slots."""
    total = 0
    for a, b in spans:
        total += b - a
    return total


def at_least(sets: Sequence[Spans], count: int) -> list[Span]:
    """Slots that lie in at least `count` of the sets (`count` ≥ 1)."""
    if count == 1:
        return normalise(span for spans in sets for span in spans)
    edges: dict[int, int] = {}
    for spans in sets:
        for a, b in spans:
            edges[a] = edges.get(a, 0) + 1
            edges[b] = edges.get(b, 0) - 1
    out: list[Span] = []
    depth, start = 0, 0
    for slot in sorted(edges):
        before = depth
        depth += edges[slot]
        if before < count <= depth:
            start = slot
        elif depth < count <= before:
            out.append((start, slot))
    return normalise(out)


def covers(spans: Spans, first: int, end: int) -> bool:
    """Whether one of the spans holds `[first, end)` wholly; true for an empty one."""
    return first >= end or any(a <= first and end <= b for a, b in spans)
