"""When the server took batches of a node's peers: the witness that it could have heard of that node (fold.md 20, 21).

Peers are the other nodes of its cluster. Their receipts are read hop by hop, the farthest one within `HOP` after the
one before, so that a long silence in a large cluster costs a few index look-ups and never a scan.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from fleet.domain.context import Span
from fleet.models import Node
from fleet.sql import execute

#: Two receipts at most this far apart vouch for what lies between: an agent uploads once a minute and may miss one.
HOP = timedelta(seconds=150)
HOP_MS = 150_000
LONGEST_MS = 40 * 86_400_000  # a silence longer than this is witnessed for its first forty days only

_HOPS = """
with recursive theirs as not materialized (
    select received_at from fleet_inbox
     where cluster = %(cluster)b and sample_day between %(first_day)b and %(last_day)b
       and not (hw_id = any(%(hw)b) or (hw_id is null and node = any(%(names)b)))
       and received_at <= %(high)b
), hop(at) as (
    select coalesce(
        (select max(received_at) from theirs where received_at > %(low)b and received_at <= %(low)b + %(hop)b),
        (select min(received_at) from theirs where received_at > %(low)b))
    union all
    select coalesce(
        (select max(received_at) from theirs where received_at > hop.at and received_at <= hop.at + %(hop)b),
        (select min(received_at) from theirs where received_at > hop.at))
      from hop where hop.at is not null
)
select at from hop where at is not null
"""


_FIRST = """
select min(received_at) from fleet_inbox
 where cluster = %(cluster)b and sample_day between %(first_day)b and %(last_day)b
   and not (hw_id = any(%(hw)b) or (hw_id is null and node = any(%(names)b)))
   and received_at > %(low)b and received_at <= %(high)b
"""
_EVER = """
select exists (select 1 from fleet_inbox where cluster = %(cluster)b and received_at <= %(high)b
    and not (hw_id = any(%(hw)b) or (hw_id is null and node = any(%(names)b))))
  or exists (select 1 from fleet_receiptspan where cluster = %(cluster)b and from_at <= %(high)b
    and not node_key = any(%(keys)b))
"""
#: Of the weeks that lie in packs; no span is longer than two hours.
_SPANS = """
select from_at, least(until_at, %(high)b) from fleet_receiptspan
 where cluster = %(cluster)b and from_at between %(low)b - interval '2 hours' and %(high)b and until_at >= %(low)b
   and sample_day between %(first_day)b and %(last_day)b
   and not node_key = any(%(keys)b)
"""


def peer_spans(node_id: int, from_ms: int, to_ms: int, seen_ms: int | None = None) -> tuple[Span, ...] | None:
    """Spans within `[from_ms, to_ms]` in which peers were accepted throughout; None when the node has no peer.

    `seen_ms`: when the server took what ended the node's silence. That receipt shows as well that it was accepting, and
    nothing that came after it counts.
    """
    node = Node.objects.select_related("cluster").get(pk=node_id)
    if not has_peers(node):
        return None
    end_ms = min(to_ms, from_ms + LONGEST_MS)
    high_ms = end_ms + HOP_MS if seen_ms is None else min(end_ms + HOP_MS, seen_ms)
    values = _values(node, from_ms - HOP_MS, high_ms)
    receipts = _receipts(values)
    if not receipts and not execute(_EVER, values)[0][0]:
        return None  # it was alone then, whoever came later
    if seen_ms is not None and receipts and end_ms <= seen_ms:
        receipts.append((seen_ms, seen_ms))
    return joined(receipts, from_ms, end_ms)


def has_peers(node: Node) -> bool:
    """Whether its cluster has another node."""
    return Node.objects.filter(cluster=node.cluster_id, merged_into=None).exclude(pk=node.pk).exists()


def peer_receipts(node: Node, from_ms: int, to_ms: int) -> list[Span]:
    """When the server took batches of the node's peers in `(from_ms, to_ms]`: the first one, then hop by hop.

    `chained` and `joined` make them whole. Those of neighbouring stretches, one after the other, are those of both, and
    nothing that was received comes to a past stretch later.
    """
    values = _values(node, from_ms, to_ms)
    found = _receipts(values)
    first = execute(_FIRST, values)[0][0]
    if first is not None:
        found.insert(0, (ms := int(first.timestamp() * 1000), ms))
    return sorted(found)


def _values(node: Node, low_ms: int, high_ms: int) -> dict[str, Any]:
    """What the statements ask with; receipts in `(low_ms, high_ms]`."""
    mine = [(node.identity, node.key), *Node.objects.filter(merged_into=node).values_list("identity", "key")]
    names = [identity for identity, _ in mine]
    return {
        "cluster": node.cluster.name,
        "first_day": _at(low_ms).date() - timedelta(days=1),
        "last_day": _at(high_ms).date() + timedelta(days=1),
        "hw": [name[3:] for name in names if name.startswith("hw:")],
        "names": [name[5:] for name in names if name.startswith("name:")],
        "low": _at(low_ms),
        "high": _at(high_ms),
        "hop": HOP,
        "keys": sorted(key for _, key in mine),
    }


def _receipts(values: dict[str, Any]) -> list[Span]:
    receipts = [(ms, ms) for (at,) in execute(_HOPS, values) if (ms := int(at.timestamp() * 1000))]
    receipts += [(int(a.timestamp() * 1000), int(b.timestamp() * 1000)) for a, b in execute(_SPANS, values)]
    return sorted(receipts)


def joined(receipts: Sequence[Span], from_ms: int, to_ms: int) -> tuple[Span, ...]:
    """Receipts, or spans of them, at most a hop apart as spans, cut to `[from_ms, to_ms]`; sorted in and out."""
    cut = ((max(a, from_ms), min(b, to_ms)) for a, b in chained(receipts))
    return tuple((a, b) for a, b in cut if a < b)


def chained(receipts: Sequence[Span]) -> list[Span]:
    """The same, not cut; a receipt that nothing is near stays as a span of no length."""
    spans: list[Span] = []
    for first, last in receipts:
        if spans and first - spans[-1][1] <= HOP_MS:
            spans[-1] = (spans[-1][0], max(spans[-1][1], last))
        else:
            spans.append((first, last))
    return spans


def _at(ms: int) -> datetime:
    return datetime.fromtimestamp(ms / 1000, UTC)
