"""What people wrote down in the fleet as dated rows of a contract: maintenance windows, and tickets of incidents.

Both are applied here and nowhere else.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from django.db.models import Q

from claims.domain.rows import MAINTENANCE, Row, slots_inside, slots_touched
from fleet.dated import ms_of
from fleet.domain.slots import SLOT_MS
from fleet.models import Incident, MaintenanceWindow, Node

#: What a window is for a contract, by who announced it: the owner's own work is nobody else's.
KIND_OF = {"provider": MAINTENANCE, "vendor": MAINTENANCE, "customer": "customer_cause"}


def window_rows(nodes: Sequence[Node], first_ms: int, end_ms: int) -> list[tuple[Row, dict[str, Any]]]:
    """The rows of the windows that touch `[first_ms, end_ms)`, each with its plain form; one a node and window."""
    found = MaintenanceWindow.objects.filter(
        Q(node__in=nodes) | Q(node=None, cluster__in={node.cluster_id for node in nodes}),
        withdrawn_at=None,
        starts_at__lt=_at(end_ms),
        ends_at__gt=_at(first_ms),
    )
    out = []
    for window in found:
        for node in nodes:
            if window.cluster_id != node.cluster_id or window.node_id not in (None, node.pk):
                continue
            name = node.name if window.place is None or window.node_id is None else f"{node.name}/gpu{window.place}"
            out.append(_row(window, name))
    return out


def ticket_rows(nodes: Sequence[Node], first_ms: int, end_ms: int) -> list[tuple[Row, dict[str, Any]]]:
    """The tickets of incidents that were reported to the provider: from the report to the end of the incident, for each
    of its places, with the provider's acknowledgement.
    """
    found = Incident.objects.select_related("node").filter(
        node__in=nodes,
        withdrawn_at=None,
        reported_at__isnull=False,
        first_slot__lt=end_ms // SLOT_MS,
        end_slot__gt=first_ms // SLOT_MS,
    )
    return [_ticket(one, subject) for one in found.order_by("pk") for subject in subjects_of(one)]


def subjects_of(incident: Incident) -> list[str]:
    """The resources of a fault as contracts name them: its places, else the node."""
    places = [part["subject"][1:] for part in incident.parts if part["subject"].startswith("g")]
    return [f"{incident.node.name}/gpu{place}" for place in places] or [incident.node.name]


def _ticket(one: Incident, resource: str) -> tuple[Row, dict[str, Any]]:
    assert one.reported_at is not None
    reported, acknowledged = ms_of(one.reported_at), None if one.provider_ack_at is None else ms_of(one.provider_ack_at)
    first = slots_inside(reported, reported)[0]
    end = None if one.is_open else max(first, one.end_slot)
    ack = None if acknowledged is None else slots_inside(acknowledged, acknowledged)[0]
    row = Row("ticket", resource, first, end, one.acknowledged_by, reported, ack, reference=one.ticket_number)
    plain: dict[str, Any] = {
        "id": f"incident-{one.pk}",
        "kind": "ticket",
        "resource": resource,
        "starts_at": one.reported_at.isoformat(),
        "ends_at": None if one.resolved_at is None else one.resolved_at.isoformat(),
        "first_slot": str(first),
        "end_slot": None if end is None else str(end),
        "acknowledged_slot": None if ack is None else str(ack),
        "pauses": [],
        "notice_s": None,
        "reference": one.ticket_number,
        "provider_word": True,
        "author": one.acknowledged_by,
        "entered_at": one.reported_at.isoformat(),
        "entered_late": row.entered_late(),
    }
    return row, plain


def _row(window: MaintenanceWindow, resource: str) -> tuple[Row, dict[str, Any]]:
    first, end = slots_touched(ms_of(window.starts_at), ms_of(window.ends_at))
    kind = KIND_OF[window.source]
    row = Row(
        kind,
        resource,
        first,
        end,
        window.author,
        ms_of(window.entered_at),
        notice_s=window.notice_s,
        reference=window.reference,
        provider_word=window.source == "provider",
    )
    plain: dict[str, Any] = {
        "id": f"window-{window.pk}",
        "kind": kind,
        "resource": resource,
        "starts_at": window.starts_at.isoformat(),
        "ends_at": window.ends_at.isoformat(),
        "first_slot": str(first),
        "end_slot": str(end),
        "acknowledged_slot": None,
        "pauses": [],
        "notice_s": None if window.notice_s is None else str(window.notice_s),
        "reference": window.reference,
        "provider_word": row.provider_word,
        "author": window.author,
        "entered_at": window.entered_at.isoformat(),
        "entered_late": row.entered_late(),
    }
    return row, plain


def _at(ms: int) -> datetime:
    return datetime.fromtimestamp(ms / 1000, UTC)
