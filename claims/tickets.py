"""Tickets to open now: where a contract's clock starts with the ticket, each open fault without one loses money."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from django.db import transaction
from django.db.models import Q

from claims.anchors.making import newest_note
from claims.domain.contract import Contract as Terms
from claims.domain.contract import Unit
from claims.domain.deadlines import Draft, opening_ticket
from claims.domain.facts import ancestors
from claims.domain.incidents import Incident as Outage
from claims.domain.rows import TICKET
from claims.errors import ClaimsError
from claims.inputs import covered_nodes, running_month, version_for
from claims.models import Contract, Overlay
from claims.selectors import list_contracts
from claims.windows import subjects_of
from fleet.alerts.models import Alert
from fleet.alerts.outbox import notify
from fleet.dated import get_org_dated, hour_at
from fleet.domain.slots import SLOT_S
from fleet.models import Incident


@dataclass(frozen=True)
class Due:
    """A ticket that nobody opened: for which contract, about what, with its text and the checkpoint that it carries."""

    contract: Contract
    unit: str
    incident: Incident
    draft: Draft
    size: int | None

    @property
    def key(self) -> str:
        """The alert's thread."""
        return f"ticket-{self.contract.pk}-{self.incident.pk}"


def tickets_due(contract: Contract, now: datetime) -> list[Due]:
    """The open faults that count under the contract, have no ticket, and whose clock waits for one."""
    try:
        terms = version_for(contract, running_month(contract, now)).load()
        called = {node.pk: node.name for node in covered_nodes(contract, terms)}
    except ClaimsError:
        return []
    if terms.clock_start not in ("ticket", "acknowledgement"):
        return []
    names = {name: unit for unit in terms.units for name in (unit.name, *unit.members)}
    found = Incident.objects.select_related("node__cluster").filter(
        is_open=True, withdrawn_at=None, reported_at=None, node__in=list(called)
    )
    rules = get_org_dated().book.at(hour_at(now)).reasons
    open_rows = Overlay.objects.filter(
        Q(contract=contract) | Q(contract=None), Q(ends_at=None) | Q(ends_at__gt=now), kind=TICKET, withdrawn_at=None
    )
    told = set(open_rows.values_list("resource", flat=True))
    note = newest_note()
    out = []
    for one in found.order_by("first_slot"):
        one.node.name = called[one.node_id]  # as the contract calls it, whatever it was merged into
        rule = rules.get(one.code)
        unit = _unit_of(one, names)
        if rule is None or rule.category not in terms.counts or unit is None:
            continue
        about = {above for name in (*subjects_of(one), unit.name) for above in ancestors(name)}
        if about & told:
            continue
        draft = _draft(terms, unit, one, now, None if note is None else note.note)
        out.append(Due(contract, unit.name, one, draft, None if note is None else note.size))
    return out


def _unit_of(incident: Incident, names: dict[str, Unit]) -> Unit | None:
    for subject in subjects_of(incident):
        for name in ancestors(subject):
            if name in names:
                return names[name]
    return None


def _draft(terms: Terms, unit: Unit, incident: Incident, now: datetime, note: str | None) -> Draft:
    seconds = max(0, int(now.timestamp()) - incident.first_slot * SLOT_S)
    outage = Outage(
        incident.first_slot,
        incident.end_slot,
        seconds,
        ((incident.code, seconds),),
        tuple(subjects_of(incident)),
    )
    draft = opening_ticket(terms, unit, outage, {})
    if note is None:
        return draft
    body = f"{draft.body}\nThe state of our evidence log at this time:\n\n{note}"
    return Draft(draft.subject, body, draft.missing)


@transaction.atomic
def tell_of_tickets(now: datetime) -> int:
    """Tell the org's channels of every ticket that is due, once, and end the thread when it is not any more."""
    due = [one for contract in list_contracts() for one in tickets_due(contract, now)]
    for one in due:
        notify(
            "deadline", one.key, "opened", at=now, severity="critical",
            title=f"Open a ticket with {one.contract.name}: the clock of {one.unit} starts with it",
            text=f"{one.draft.subject}\n\n{one.draft.body}", cluster=one.incident.node.cluster.name,
            path=f"sla/{one.contract.pk}/", facts={"unit": one.unit, "incident": one.incident.pk}, dedup="opened",
        )  # fmt: skip
    end_threads("ticket-", {one.key for one in due}, now, "The ticket is opened, or the fault is over.")
    return len(due)


def end_threads(prefix: str, alive: Iterable[str], now: datetime, title: str, kind: str = "deadline") -> None:
    """End the alert threads with this prefix that are not alive any more."""
    begun = Alert.objects.filter(key__startswith=prefix, what="opened").exclude(key__in=list(alive))
    ended = Alert.objects.filter(key__startswith=prefix, what="resolved").values("key")
    for key in begun.exclude(key__in=ended).values_list("key", flat=True).distinct():
        notify(kind, key, "resolved", at=now, severity="info", title=title, dedup="resolved")
