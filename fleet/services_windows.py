"""Writes of maintenance windows: overlays with a source and a time of notice, never part of a verdict."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from django.db import transaction

from fleet.models import Cluster, MaintenanceWindow, Node
from fleet.services_dated import MAX_GPUS, DatedInvalid, check_reason, check_span, set_withdrawn
from fleet.services_incidents import Actor
from orgs.services import record

MAX_REFERENCE_CHARS = 200
LONGEST = timedelta(days=400)


def add_window(
    actor: Actor,
    *,
    cluster: Cluster,
    node: Node | None = None,
    place: int | None = None,
    starts_at: datetime,
    ends_at: datetime,
    source: str = MaintenanceWindow.Source.PROVIDER,
    noticed_at: datetime | None = None,
    reference: str = "",
    reason: str = "",
) -> MaintenanceWindow:
    """Enter an announced span on a cluster, a node or a GPU's place. Raises DatedInvalid."""
    for name, at in (("starts_at", starts_at), ("ends_at", ends_at), ("noticed_at", noticed_at)):
        if at is None and name == "noticed_at":
            continue
        try:
            check_span(at)
        except DatedInvalid as error:
            raise DatedInvalid(name, error.detail) from error
    if ends_at <= starts_at or ends_at - starts_at > LONGEST:
        raise DatedInvalid("ends_at", f"It ends after it begins, at most {LONGEST.days} days later.")
    if source not in MaintenanceWindow.Source.values:
        raise DatedInvalid("source", f"One of {', '.join(MaintenanceWindow.Source.values)}.")
    if node is not None and node.cluster_id != cluster.pk:
        raise DatedInvalid("node", "That node is in another cluster.")
    if place is not None and (node is None or isinstance(place, bool) or not 0 <= place < MAX_GPUS):
        raise DatedInvalid("gpu", "The index of a GPU's place, together with its node.")
    text = reference.strip()
    if len(text) > MAX_REFERENCE_CHARS or not (text.isprintable() or not text):
        raise DatedInvalid("reference", f"At most {MAX_REFERENCE_CHARS} printable characters.")
    with transaction.atomic():
        row = MaintenanceWindow.objects.create(
            cluster=cluster,
            node=node,
            place=place,
            starts_at=starts_at,
            ends_at=ends_at,
            source=source,
            noticed_at=noticed_at,
            reference=text,
            reason=check_reason(reason, is_needed=False),
            author=actor.name[:254],
        )
        after = {"id": row.pk, "from": starts_at.isoformat(), "until": ends_at.isoformat(), "entered_late": row.is_late}
        _record("window.entered", row, actor, after)
    return row


def withdraw_window(row: MaintenanceWindow, actor: Actor) -> bool:
    """Take a window back; it stays listed as withdrawn. False if somebody did before."""
    with transaction.atomic():
        done = set_withdrawn(row, actor)
        if done:
            _record("window.withdrawn", row, actor, {"id": row.pk})
    return done


def _record(action: str, row: MaintenanceWindow, actor: Actor, after: dict[str, Any]) -> None:
    target = row.node.name if row.node is not None else row.cluster.name
    record(action, actor=actor.name, org=actor.org, target=target, after=after, address=actor.address)
