"""Cluster-wide incidents: which incidents of different nodes are one fault. A second pass over what each node had.

1. Incidents *share a cause* when the same reason leads them.
2. When three nodes of a cluster begin an incident of one cause within `TOGETHER_SLOTS` (two minutes), these are one
   fault of the cluster.
3. What begins at most `TOGETHER_SLOTS` after the latest member joins it, up to `SPREAD_SLOTS` (ten minutes) after the
   first: a rack that overheats does so node by node.
4. Its head is the incident that was head before, else the earliest (then by node, by key): a fault keeps its name while
   more nodes join.

The result depends on the set of incidents only, not on the order in which they became known.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from fleet.domain.incidents import REOPEN_SLOTS, TOGETHER_SLOTS

LEAST_NODES = 3
SPREAD_SLOTS = REOPEN_SLOTS


@dataclass(frozen=True)
class NodeFault:
    """An incident of one node as this pass sees it. `was_head`: it leads a cluster-wide incident already."""

    key: int
    node: int
    first_slot: int
    was_head: bool = False


@dataclass(frozen=True)
class ClusterFault:
    """One fault of several nodes: its head and all members, the head among them, in order of time."""

    head: NodeFault
    members: tuple[NodeFault, ...]

    @property
    def nodes(self) -> int:
        """How many nodes it took."""
        return len({member.node for member in self.members})


def cluster_faults(faults: Iterable[NodeFault]) -> list[ClusterFault]:
    """The cluster-wide faults among incidents of one cluster with one cause; what stays alone is left out."""
    ordered = sorted(faults, key=_order)
    found: list[ClusterFault] = []
    at = 0
    while at < len(ordered):
        end = _end_of(ordered, at)
        if end is None:
            at += 1
            continue
        members = tuple(ordered[at:end])
        head = min(members, key=lambda one: (not one.was_head, one.key if one.was_head else 0, _order(one)))
        found.append(ClusterFault(head, members))
        at = end
    return found


def component(faults: Sequence[NodeFault], touched: Iterable[int]) -> list[NodeFault]:
    """The stretches without a gap in which the incidents `touched` lie, in order of time.

    A gap is more than `TOGETHER_SLOTS` between two beginnings: nothing is grouped across one.
    """
    keys = set(touched)
    stretches: list[list[NodeFault]] = []
    for one in sorted(faults, key=_order):
        if stretches and one.first_slot - stretches[-1][-1].first_slot <= TOGETHER_SLOTS:
            stretches[-1].append(one)
        else:
            stretches.append([one])
    return [one for stretch in stretches if any(one.key in keys for one in stretch) for one in stretch]


def _order(one: NodeFault) -> tuple[int, int, int]:
    return one.first_slot, one.node, one.key


def _end_of(ordered: Sequence[NodeFault], at: int) -> int | None:
    """Where the fault that begins at `at` ends in the list; None when three nodes don't begin within two minutes."""
    first = ordered[at].first_slot
    nodes: set[int] = set()
    for one in ordered[at:]:
        if one.first_slot - first > TOGETHER_SLOTS:
            break
        nodes.add(one.node)
    if len(nodes) < LEAST_NODES:
        return None
    end = at + 1
    while (
        end < len(ordered)
        and ordered[end].first_slot - ordered[end - 1].first_slot <= TOGETHER_SLOTS
        and ordered[end].first_slot - first <= SPREAD_SLOTS
    ):
        end += 1
    return end
