"""For a contract that pays for lost connectivity: the slots of a node in which a pair of witnesses was alive.

A probe that was healthy, whatever it saw, and peers of the node's cluster that the server accepted (fold.md 20, 21). A
node without a probe, or alone in its cluster, has no pair.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime

from claims.domain.spans import Span, Spans, clip, intersect, normalise
from claims.models import PeerDay
from fleet.dated import ms_of
from fleet.domain.slots import SLOT_MS, VOUCH_MS
from fleet.models import Node, ProbeRun
from fleet.peers import chained, has_peers, joined, peer_receipts

DAY_MS = 86_400_000
SETTLED_MS = 600_000  # after a day's end: every receipt of it is committed


def witnessed_spans(nodes: Sequence[Node], first_ms: int, end_ms: int, now_ms: int) -> dict[str, Spans]:
    """Node name → slots; a node that nobody watched is not in it."""
    by_id = {node.pk: node for node in nodes}
    runs = ProbeRun.objects.filter(
        node_id__in=list(by_id), first_at__lt=_at(end_ms), last_at__gte=_at(first_ms)
    ).exclude(outcome=ProbeRun.Outcome.BLIND)
    probed: dict[int, list[tuple[int, int]]] = {}
    for node_id, first, last in runs.order_by("first_at").values_list("node_id", "first_at", "last_at"):
        probed.setdefault(node_id, []).append((ms_of(first), ms_of(last)))
    out: dict[str, Spans] = {}
    for node_id, rounds in probed.items():
        seen = clip(probe_slots(rounds), first_ms // SLOT_MS, end_ms // SLOT_MS)
        peers = _peers(by_id[node_id], seen[0][0] * SLOT_MS, seen[-1][1] * SLOT_MS, now_ms) if seen else ()
        both = intersect(seen, inner_slots(peers))
        if both:
            out[by_id[node_id].name] = normalise([*out.get(by_id[node_id].name, ()), *both])
    return out


def _peers(node: Node, from_ms: int, to_ms: int, now_ms: int) -> tuple[Span, ...]:
    """Spans within `[from_ms, to_ms]` in which peers of the node were accepted throughout.

    Day by day: a past day's receipts don't change, so they are looked up once and kept. A node that took another's
    place has other peers: then they are looked up again.
    """
    if not has_peers(node):
        return ()
    days = range((from_ms - DAY_MS) // DAY_MS, to_ms // DAY_MS + 1)
    own = [node.key, *Node.objects.filter(merged_into=node).values_list("key", flat=True)]
    mine = ",".join(str(key) for key in sorted(own))
    kept = {one.day: one for one in PeerDay.objects.filter(node=node, day__gte=days[0], day__lte=days[-1], keys=mine)}
    receipts: list[Span] = []
    fresh = []
    for day in days:
        one = kept.get(day)
        if one is None:
            found = peer_receipts(node, day * DAY_MS, (day + 1) * DAY_MS)
            one = PeerDay(node=node, day=day, keys=mine, spans=chained(found))
            if (day + 1) * DAY_MS + SETTLED_MS < now_ms:
                fresh.append(one)
        receipts += [(a, b) for a, b in one.spans]
    PeerDay.objects.bulk_create(
        fresh, update_conflicts=True, unique_fields=["node", "day"], update_fields=["keys", "spans"]
    )
    return joined(sorted(receipts), from_ms, to_ms)


def probe_slots(rounds: Iterable[tuple[int, int]]) -> list[Span]:
    """The slots from the first to the last round; rounds at most 37.5 s apart vouch for what lies between."""
    spans: list[tuple[int, int]] = []
    for first, last in sorted(rounds):
        if spans and first - spans[-1][1] <= VOUCH_MS:
            spans[-1] = (spans[-1][0], max(spans[-1][1], last))
        else:
            spans.append((first, last))
    return normalise((first // SLOT_MS, last // SLOT_MS + 1) for first, last in spans)


def inner_slots(spans: Iterable[tuple[int, int]]) -> list[Span]:
    """The slots that lie wholly inside spans of ms."""
    return normalise((-(-a // SLOT_MS), b // SLOT_MS) for a, b in spans)


def _at(ms: int) -> datetime:
    return datetime.fromtimestamp(ms / 1000, UTC)
