"""The human layer of an incident: acknowledge, note, ticket and its times, exclude or dispute. Never a fact.

Each use case is one transaction with its audit entry. The derived columns of an incident are never written here. The
fold rewrites incidents whole while it holds their node, so each use case takes hold of the node first.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db import transaction
from django.utils import timezone

from fleet.alerts.outbox import tell_of_incident
from fleet.models import Incident, IncidentNote, NodeLive
from orgs.models import Org
from orgs.services import record

TICKET_FIELDS = ("ticket_number", "reported_at", "provider_ack_at", "disposition")
MAX_NOTE_CHARS = 4000
MAX_TICKET_CHARS = 120


@dataclass(frozen=True)
class Actor:
    """Who writes, for the audit trail."""

    name: str
    org: Org
    address: str | None = None


class IncidentInvalid(ValueError):
    """A value that an incident can't have; `field` names it."""

    def __init__(self, field: str, detail: str):
        super().__init__(detail)
        self.field, self.detail = field, detail


def acknowledge_incident(pk: int, actor: Actor) -> bool:
    """Mark an incident as seen by somebody. False if somebody did before: the first one stays.

    Raises Incident.DoesNotExist, as all of these, when a re-fold removed it meanwhile.
    """
    with transaction.atomic():
        incident = _hold(pk)
        done = Incident.objects.filter(pk=pk, acknowledged_at=None).update(
            acknowledged_at=timezone.now(), acknowledged_by=actor.name[:254]
        )
        if done:
            _record("incident.acknowledged", pk, actor)
            tell_of_incident(incident, "acknowledged")
    return bool(done)


def add_note(pk: int, text: str, actor: Actor) -> IncidentNote:
    """Append a note. Raises IncidentInvalid for an empty one, one that is too long or holds NUL."""
    text = text.strip()
    if not text or len(text) > MAX_NOTE_CHARS or "\x00" in text:
        raise IncidentInvalid("text", f"1 to {MAX_NOTE_CHARS} characters, without NUL.")
    with transaction.atomic():
        _hold(pk)
        note = IncidentNote.objects.create(incident_id=pk, author=actor.name[:254], text=text)
        _record("incident.noted", pk, actor, after={"note": note.pk})
    return note


def set_ticket(pk: int, changes: dict[str, Any], actor: Actor) -> bool:
    """Set some of `TICKET_FIELDS`. False if nothing changed.

    Raises IncidentInvalid for another field or a value that it can't have.
    """
    for name, value in changes.items():
        _check(name, value)
    with transaction.atomic():
        incident = _hold(pk)
        before = {name: getattr(incident, name) for name in changes}
        changed = {name: value for name, value in changes.items() if before[name] != value}
        if not changed:
            return False
        reported, acknowledged = (changes.get(at, getattr(incident, at)) for at in ("reported_at", "provider_ack_at"))
        if reported and acknowledged and acknowledged < reported:
            raise IncidentInvalid("provider_ack_at", "The provider can't acknowledge before it was reported.")
        Incident.objects.filter(pk=pk).update(**changed)
        old = {name: _plain(before[name]) for name in changed}
        _record("incident.ticket_set", pk, actor, before=old, after={n: _plain(v) for n, v in changed.items()})
    return True


def _hold(pk: int) -> Incident:
    """The incident, with its node held until the transaction ends: no worker folds it meanwhile."""
    node_id = Incident.objects.values_list("node_id", flat=True).get(pk=pk)
    list(NodeLive.objects.select_for_update().filter(pk=node_id))
    return Incident.objects.get(pk=pk)


def _check(name: str, value: Any) -> None:
    if name in ("reported_at", "provider_ack_at"):
        if value is not None and (not isinstance(value, datetime) or value.tzinfo is None):
            raise IncidentInvalid(name, "An instant with its offset, or null.")
    elif name == "ticket_number":
        if not isinstance(value, str) or len(value) > MAX_TICKET_CHARS or not (value.isprintable() or not value):
            raise IncidentInvalid(name, f"At most {MAX_TICKET_CHARS} printable characters.")
    elif name == "disposition":
        if value not in Incident.Disposition.values:
            raise IncidentInvalid(name, "One of excluded, disputed, or empty.")
    else:
        raise IncidentInvalid(name[:64], f"Only {', '.join(TICKET_FIELDS)} can be set.")


def _plain(value: Any) -> Any:
    return value.isoformat() if isinstance(value, datetime) else value


def _record(action: str, pk: int, actor: Actor, **more: Any) -> None:
    record(action, actor=actor.name, org=actor.org, target=f"incident {pk}", address=actor.address, **more)
