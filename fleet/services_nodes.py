"""Names, retirement and mergers of clusters and nodes. Facts stay as they are; only what people see of them changes.

A label is what people call a node or cluster; contracts, keys and URLs go on naming it as its agent does. A merger
joins two identities of one machine (a new mainboard, an agent that learned the hardware's id later) into one history.
"""

from __future__ import annotations

from typing import Any

from django.db import transaction
from django.db.models import Q
from django.utils import timezone

from fleet.folding import sealed_hour
from fleet.models import Cluster, Incident, Node, NodeDay, NodeHour, NodeLive, Review, ReviewLook
from fleet.services_dated import DatedInvalid, mark_dirty_hours, touch_stamp
from fleet.services_incidents import Actor
from fleet.sql import execute
from orgs.services import record

MAX_LABEL_CHARS = 120
#: So many hours in which both reported are the exchange itself; more are two machines.
SHARED_HOURS = 2


def set_label(what: Node | Cluster, label: str, actor: Actor) -> bool:
    """Call a node or cluster so; an empty label gives its own name back. False if it is called so already.

    Raises DatedInvalid.
    """
    text = label.strip()
    if len(text) > MAX_LABEL_CHARS or not (text.isprintable() or not text):
        raise DatedInvalid("label", f"At most {MAX_LABEL_CHARS} printable characters.")
    if text == what.name:
        text = ""
    with transaction.atomic():
        before = type(what)._default_manager.select_for_update().get(pk=what.pk).label
        if before == text:
            return False
        type(what)._default_manager.filter(pk=what.pk).update(label=text)
        _record("renamed", what, actor, before=before, after=text)
    return True


def set_retired(what: Node | Cluster, is_retired: bool, actor: Actor) -> bool:
    """Hide a node or cluster from the fleet until it reports again, or show it again. False if nothing changed."""
    with transaction.atomic():
        rows = type(what)._default_manager.filter(pk=what.pk)
        if is_retired:
            done = rows.update(retired_at=timezone.now())
        else:
            done = rows.filter(retired_at__isnull=False).update(retired_at=None)
        if done:
            _record("retired" if is_retired else "unretired", what, actor)
    return bool(done)


def merge_nodes(node: Node, into: Node, actor: Actor) -> None:
    """Make `node` an earlier or later identity of `into`: one history from both's facts, folded anew.

    What was derived of `node` alone goes; an incident of it that somebody wrote to stays, as withdrawn. Raises
    DatedInvalid for nodes of two clusters, merged ones, two that reported at the same time, and sealed hours.
    """
    if node.pk == into.pk or node.cluster_id != into.cluster_id:
        raise DatedInvalid("into", "Another node of the same cluster.")
    with transaction.atomic():
        ids = sorted((node.pk, into.pk))
        list(NodeLive.objects.select_for_update().filter(pk__in=ids).order_by("pk"))
        rows = {row.pk: row for row in Node.objects.select_for_update().filter(pk__in=ids)}
        if any(row.merged_into_id is not None for row in rows.values()):
            raise DatedInvalid("into", "One of them is merged already.")
        hours = [set(_heard(pk)) for pk in (node.pk, into.pk)]
        sealed = sealed_hour()
        if hours[0] and min(hours[0]) < sealed:
            raise DatedInvalid("into", "It reported before the raw horizon: sealed hours are never folded again.")
        if len(hours[0] & hours[1]) > SHARED_HOURS:
            raise DatedInvalid(
                "into", f"Both reported in {len(hours[0] & hours[1])} hours: these are two machines at one time."
            )
        if hours[0] and min(hours[0]) < sealed_hour():
            raise DatedInvalid("into", "Some of its hours are sealed: they are never folded again, so it stays a node.")
        Node.objects.filter(Q(pk=node.pk) | Q(merged_into=node)).update(merged_into=into)
        execute("update fleet_batchmark set node_id = %b where node_id = %b", [into.pk, node.pk])
        execute("delete from fleet_dirtyspan where node_id = %b", [node.pk])
        NodeHour.objects.filter(node=node).delete()
        NodeDay.objects.filter(node=node).delete()
        Review.objects.filter(node=node).delete()
        ReviewLook.objects.filter(node=node).update(node=into)
        mine = Incident.objects.filter(node=node)
        for incident in mine:
            if incident.has_human_layer or incident.notes.exists():
                Incident.objects.filter(pk=incident.pk).update(withdrawn_at=timezone.now(), is_open=False, node=into)
            else:
                incident.delete()
        NodeLive.objects.filter(pk=node.pk).update(
            state=None, dirty_hour=None, dirty_through=None, summary={}, last_sample_at=None
        )
        if hours[0]:
            mark_dirty_hours([into.pk], min(hours[0]), max(hours[0]))
        touch_stamp()
        _record("merged", node, actor, after={"into": into.name, "into_id": into.pk, "hours": len(hours[0])})


def _heard(node_id: int) -> list[int]:
    """The hours in which a node reported."""
    return list(NodeHour.objects.filter(node_id=node_id, observed_s__gt=0).values_list("hour", flat=True))


def _record(verb: str, what: Node | Cluster, actor: Actor, **more: Any) -> None:
    action = f"{'node' if isinstance(what, Node) else 'cluster'}.{verb}"
    record(action, actor=actor.name, org=actor.org, target=what.name, address=actor.address, **more)
