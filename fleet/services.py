"""Writes of the fleet outside the fold: clusters and nodes as batches name them, and the removal of a demo."""

from __future__ import annotations

from collections.abc import Iterable

from django.db import connection, transaction
from django.utils import timezone

from fleet.models import Cluster, Node, NodeLive
from fleet.node_keys import NodeKey
from fleet.sql import columns, execute
from orgs.services import record

_FIND = """
select cluster_id, identity, id, name, merged_into_id from fleet_node
 where cluster_id = any(%b::bigint[]) and identity = any(%b::text[])
"""
_MAKE = """
with made as (
insert into fleet_node (cluster_id, identity, name, key, first_seen_at, label, dropped_total)
select w.*, now(), '', 0 from unnest(%b::bigint[], %b::text[], %b::text[], %b::bigint[]) as w
on conflict do nothing returning id
)
insert into fleet_nodelive (node_id, attempts, error, agent_version, dropped_total, summary)
select id, 0, '', '', 0, '{}' from made
"""
_IS_REAL = "update fleet_cluster set is_simulated = false, removed_at = null where name = %b::text and is_simulated"


def ensure_nodes(keys: Iterable[NodeKey]) -> dict[NodeKey, int]:
    """Node ids for these keys; clusters and nodes never seen before are made. Call inside a transaction."""
    wanted = sorted(set(keys), key=lambda key: (key.cluster, key.identity, key.name))
    if not wanted:
        return {}
    clusters = _ensure_clusters({key.cluster for key in wanted})
    known = _find_nodes(clusters, wanted)
    missing = [key for key in wanted if (clusters[key.cluster], key.identity) not in known]
    if missing:
        execute(_MAKE, columns([(clusters[key.cluster], key.identity, key.name, key.number) for key in missing]))
        known = _find_nodes(clusters, wanted)
    ids: dict[NodeKey, int] = {}
    for key in wanted:
        node_id, name = known[(clusters[key.cluster], key.identity)]
        if name is not None and name != key.name:
            Node.objects.filter(pk=node_id).update(name=key.name)
        ids[key] = node_id
    return ids


def find_node(key: NodeKey) -> int | None:
    """The node of this key, if there is one yet."""
    return Node.objects.filter(key=key.number).values_list("pk", flat=True).first()


def _ensure_clusters(names: set[str]) -> dict[str, int]:
    found = _clusters(names)
    if len(found) < len(names):
        Cluster.objects.bulk_create([Cluster(name=name) for name in sorted(names - set(found))], ignore_conflicts=True)
        found = _clusters(names)
    return found


def _clusters(names: set[str]) -> dict[str, int]:
    """Name -> id of those that there are."""
    return dict(execute("select name, id from fleet_cluster where name = any(%b::text[])", [sorted(names)]))


def _find_nodes(clusters: dict[str, int], keys: list[NodeKey]) -> dict[tuple[int, str], tuple[int, str | None]]:
    rows = execute(_FIND, [sorted(clusters.values()), sorted({key.identity for key in keys})])
    return {
        (cluster_id, identity): (node_id, name) if into is None else (into, None)  # a merged one keeps the other's name
        for cluster_id, identity, node_id, name, into in rows
    }


def mark_simulated(clusters: dict[str, bool]) -> None:
    """Keep `is_simulated` true for the clusters of which every batch said so; a real batch ends it for good."""
    for name, is_simulated in clusters.items():
        if is_simulated:
            # only a cluster without any node that folded a real batch can become simulated
            Cluster.objects.filter(name=name, is_simulated=False).exclude(
                nodes__live__in=NodeLive.objects.exclude(agent_version="").exclude(agent_version__endswith="+sim")
            ).update(is_simulated=True)
        else:
            execute(_IS_REAL, [name])


def remove_simulated(cluster: Cluster, *, actor: str, org: object = None, address: str | None = None) -> bool:
    """Remove a simulated cluster with its nodes, node hours and facts. False if it is real: real facts stay.

    The name stays, marked as removed: later simulated batches for it are kept out of the fold.
    """
    with transaction.atomic():
        if not Cluster.objects.filter(pk=cluster.pk, is_simulated=True, removed_at=None).update(
            removed_at=timezone.now()
        ):
            return False
        with connection.cursor() as cursor:
            cursor.execute("delete from fleet_waiting where cluster = %s", [cluster.name])
            cursor.execute(
                "delete from fleet_pack p using (select distinct node_key from fleet_inbox where cluster = %s"
                " union select key from fleet_node where cluster_id = %s) k where p.node_key = k.node_key",
                [cluster.name, cluster.pk],
            )
            cursor.execute(
                "delete from fleet_batchmark m using fleet_inbox i"
                " where i.cluster = %s and m.sample_day = i.sample_day and m.sha256 = i.sha256",
                [cluster.name],
            )
            cursor.execute("delete from fleet_inbox where cluster = %s", [cluster.name])
        Node.objects.filter(cluster=cluster).delete()
        record("cluster.demo_removed", actor=actor, org=org, target=cluster.name, address=address)  # type: ignore[arg-type]
    return True
