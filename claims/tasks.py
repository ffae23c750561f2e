"""Celery: hourly checkpoints of each org's log, and drafts of each contract's last period after it ended."""

from __future__ import annotations

import logging
from datetime import datetime

from celery import shared_task
from django.utils import timezone
from django_tenants.utils import schema_context

from claims import tending
from claims.anchors import making as anchoring
from claims.budgets import watch_budgets
from claims.errors import ClaimsError
from claims.inputs import period_for, running_month, version_for
from claims.ledger import make_checkpoint
from claims.models import Contract, ms_at
from claims.selectors import list_contracts, months_before
from claims.services_reports import draft_report
from claims.tickets import tell_of_tickets
from orgs.models import Org
from orgs.tasks import MOST_SPREAD_SECONDS, fan_out, org_task

log = logging.getLogger(__name__)
DRAFT_DAYS = 5  # after its end in which a period is drafted


def _active() -> list[int]:
    with schema_context("public"):
        return list(Org.objects.filter(status=Org.Status.ACTIVE).order_by("pk").values_list("pk", flat=True))


@org_task(name="claims.tasks.checkpoint_org")
def checkpoint_org(org: Org) -> int:
    """Append what is new and sign the org's log; its size."""
    made = make_checkpoint(org, timezone.now())
    return 0 if made is None else made.size


@shared_task(name="claims.tasks.checkpoint_all")  # type: ignore[untyped-decorator]
def checkpoint_all() -> int:
    """One task an org."""
    return fan_out(checkpoint_org, _active(), over=MOST_SPREAD_SECONDS, expires=3600)


@org_task(name="claims.tasks.anchor_org")
def anchor_org(org: Org) -> int:
    """Ask the planned outside parties for today's anchors, try what waits, and tell of tickets to open now and of steps
    that an open fault nears; how many anchors were made.
    """
    now = timezone.now()
    tell_of_tickets(now)
    watch_budgets(now)
    return anchoring.anchor_org(org, now)


@shared_task(name="claims.tasks.anchor_all")  # type: ignore[untyped-decorator]
def anchor_all() -> int:
    """One task an org."""
    return fan_out(anchor_org, _active(), over=MOST_SPREAD_SECONDS, expires=3600)


@org_task(name="claims.tasks.tend_org")
def tend_org(org: Org) -> dict[str, str]:
    """Draft the running month, remind of deadlines; what is at stake by currency."""
    return tending.tend_org(org, timezone.now())


@shared_task(name="claims.tasks.tend_all")  # type: ignore[untyped-decorator]
def tend_all() -> int:
    """One task an org."""
    return fan_out(tend_org, _active(), over=MOST_SPREAD_SECONDS, expires=3600)


@org_task(name="claims.tasks.draft_org")
def draft_org(org: Org) -> int:
    """Draft the period that ended last for every contract that has none of it issued; how many.

    What can't be drafted is logged and skipped.
    """
    done = 0
    now = timezone.now()
    for contract in list_contracts():
        month = month_to_draft(contract, now)
        if month is None or contract.reports.filter(month=month).exclude(status="draft").exists():
            continue
        try:
            draft_report(contract, month)
            done += 1
        except ClaimsError as error:
            log.info("org %s: no draft of %s under %s: %s", org.slug, month, contract.name, error)
    return done


@shared_task(name="claims.tasks.draft_all")  # type: ignore[untyped-decorator]
def draft_all() -> int:
    """Drafts of the periods that ended in the last days for every org, spread out; how many orgs."""
    return fan_out(draft_org, _active(), over=MOST_SPREAD_SECONDS, expires=3600)


def month_to_draft(contract: Contract, now: datetime) -> str | None:
    """The contract's period before the running one while it ended not long ago: its zone and billing day decide."""
    month = months_before(running_month(contract, now), 2)[0]
    try:
        period = period_for(version_for(contract, month).load(), month)
    except ClaimsError:
        return None
    return month if 0 <= (ms_at(now) or 0) - period.end_ms < DRAFT_DAYS * 86_400_000 else None
