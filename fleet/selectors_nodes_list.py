"""The clusters and nodes that an org has ever heard of, for its settings."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime

from fleet.models import Node, NodeLive
from fleet.selectors import natural, visible_clusters
from fleet.selectors_live import to_ms


@dataclass(frozen=True)
class NodeEntry:
    """A node: how it is known, its number of GPUs now, when it was heard first and last."""

    id: int
    name: str
    identity: str
    gpus: int
    first_seen_ms: int
    last_sample_ms: int | None
    agent_version: str
    label: str = ""
    is_retired: bool = False
    merged: tuple[str, ...] = ()  # identities that are this node's too


@dataclass(frozen=True)
class ClusterEntry:
    """A cluster and its nodes by name."""

    id: int
    name: str
    is_simulated: bool
    first_seen_ms: int
    nodes: tuple[NodeEntry, ...]
    label: str = ""
    is_retired: bool = False


def list_clusters(within: Collection[str] | None) -> list[ClusterEntry]:
    """By name; `within` names the clusters that the asker may see (nothing: all). Three queries."""
    clusters = visible_clusters(within)
    found: dict[int, list[NodeEntry]] = {pk: [] for pk in clusters}
    lives = NodeLive.objects.select_related("node").filter(node__cluster_id__in=list(clusters)).defer("state")
    merged: dict[int, list[str]] = defaultdict(list)
    for into, identity in Node.objects.exclude(merged_into=None).values_list("merged_into_id", "identity"):
        merged[into].append(identity)
    for live in lives.filter(node__merged_into=None):
        found[live.node.cluster_id].append(
            NodeEntry(
                id=live.node_id,
                name=live.node.name,
                identity=live.node.identity,
                gpus=sum(subject.get("kind") == "gpu" for subject in live.summary.get("subjects", ())),
                first_seen_ms=to_ms(live.node.first_seen_at),
                last_sample_ms=to_ms(live.last_sample_at) if live.last_sample_at else None,
                agent_version=live.agent_version,
                label=live.node.label,
                is_retired=_is_hidden(live.node.retired_at, live.last_sample_at),
                merged=tuple(sorted(merged[live.node_id])),
            )
        )
    return [
        ClusterEntry(
            cluster.pk,
            cluster.name,
            cluster.is_simulated,
            to_ms(cluster.created_at),
            tuple(sorted(found[cluster.pk], key=lambda node: natural(node.name))),
            cluster.label,
            cluster.retired_at is not None,
        )
        for cluster in sorted(clusters.values(), key=lambda cluster: natural(cluster.name))
    ]


def _is_hidden(retired_at: datetime | None, last_sample_at: datetime | None) -> bool:
    """Whether a node is retired and has not reported since."""
    return retired_at is not None and (last_sample_at is None or last_sample_at <= retired_at)
