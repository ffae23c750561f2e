"""What others saw of a node: the probe, its peers, what a dead boot left on disk (fold.md 10, 20, 21)."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise
from typing import TYPE_CHECKING

from fleet.domain import conditions as cond
from fleet.domain.context import Span, covers
from fleet.domain.slots import SLOT_MS
from fleet.domain.state import Segment

if TYPE_CHECKING:
    from fleet.domain.placement import Item
    from fleet.domain.work import Stretch, Work


def unreachable(work: Work, stretch: Stretch, gap: str) -> list[Segment]:
    """NODE_UNREACHABLE where the probe failed (certain with peers), possible where peers alone answered."""
    out: list[Segment] = []
    peers = work.context.peers_alive
    for a, b in work.context.probe_failed:
        first, end = max(-(-a // SLOT_MS), stretch.first), min(b // SLOT_MS, stretch.end)
        cuts = {first, end}
        for c, d in peers or ():
            cuts.update(x for x in (-(-c // SLOT_MS), d // SLOT_MS) if first < x < end)
        bounds = sorted(cuts)
        for x, y in pairwise(bounds):
            certain = covers(peers, x * SLOT_MS, y * SLOT_MS)
            out.append(("NODE_UNREACHABLE", "N" if certain else "M", x, y, 100))
    if gap == "NO_DATA" and stretch.same_boot:
        for a, b in peers or ():
            x, y = max(-(-a // SLOT_MS), stretch.first + 1), min(b // SLOT_MS, stretch.end)
            if x < y:
                out.append(("NODE_UNREACHABLE", "M", x, y, 100))
    return out


def node_lost(work: Work, item: Item, stretch: Stretch) -> tuple[Segment, ...]:
    """NODE_LOST over the silence before an unclean boot's first sample (fold.md 20, 21).

    Each witness counts for the slots that it observed: a slot is certain in which peers were accepted (or none are
    known) and which the dead boot's last word precedes or the probe failed in.
    """
    if item.batch.last_shutdown != "unclean" or stretch.end <= stretch.first:
        return ()
    code, peers = "NODE_LOST", work.context.peers_alive
    reason = work.reason(code)
    weight = reason.weight if reason.lowers else 100
    alive = item.batch.last_alive
    out: list[Segment] = []
    first = stretch.first + 1
    last_ms = stretch.from_ms
    if alive is not None:
        last_ms = min(max(alive, stretch.from_ms), stretch.to_ms)
        touched = last_ms // SLOT_MS
        if touched == stretch.first:
            out.append((code, "T", touched, touched + 1, weight))
        else:
            out.append((code, "E", touched, touched + 1, weight))
        first = touched + 1
    if first < stretch.end:
        accepted = [(first, stretch.end)] if peers is None else _slots(peers, first, stretch.end)
        failed = [(first, stretch.end)] if alive is not None else _slots(work.context.probe_failed, first, stretch.end)
        out.append((code, "E", first, stretch.end, weight))
        for a, b in accepted:
            out += ((code, "O", max(a, c), min(b, d), weight) for c, d in failed if max(a, c) < min(b, d))
    for kind in ("opened", "closed") if out and reason.lowers else ():
        work.report(kind, "n", code, stretch.to_ms, last_ms, stretch.to_ms, weight)
    return tuple(out)


def _slots(spans: Iterable[Span], first: int, end: int) -> list[Span]:
    """The slots of `[first, end)` that the spans hold wholly."""
    found = [(max(-(-a // SLOT_MS), first), min(b // SLOT_MS, end)) for a, b in spans]
    return [(a, b) for a, b in found if a < b]


def assignments(work: Work, stretch: Stretch, item: Item) -> None:
    """End held conditions of a place at the instant at which a healthy device was assigned to it.

    Where the sample does not list the place's own device, the place is elsewhere from then on: nothing that this node
    says of the old device is about it, until a device takes it here.
    """
    state = work.state
    assert state is not None
    for index, at in work.context.assigned:
        if stretch.from_ms < at <= stretch.to_ms and index < len(state.places):
            key, place = f"g{index}", state.places[index]
            for condition in tuple(place.conditions):
                cond.end_held(work, key, place, condition, stretch.first, at)
            if place.uuid and all(gpu.uuid != place.uuid for gpu in item.interval.gpus):
                for condition in tuple(place.conditions):
                    cond.left(work, key, place, condition, stretch.first, at)
                place.uuid = ""  # its bus id stays: presence.is_elsewhere
