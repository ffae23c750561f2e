"""What is looked after every hour: running months are drafted, the provider's console learns what is at stake, and
people are told of steps that the uptime nears and reminded of deadlines before they pass.
"""

from __future__ import annotations

import logging
from datetime import datetime
from decimal import Decimal
from typing import Any

from django.db import transaction
from django_tenants.utils import schema_context

from claims.budgets import end_budgets, tell_of_budget
from claims.errors import ClaimsError
from claims.inputs import running_month
from claims.selectors import Deadline, deadline_board, list_contracts
from claims.services_reports import draft_report
from claims.tickets import end_threads
from claims.words import money
from fleet.alerts.models import Alert
from fleet.alerts.outbox import notify
from fleet.summary.services import set_exposure
from orgs.models import Org

log = logging.getLogger(__name__)
#: Days before a window closes at which people are told; the first of them opens the thread.
REMIND_DAYS = (14, 7, 3, 1)


def tend_org(org: Org, now: datetime) -> dict[str, str]:
    """Draft the running month of every contract, tell what it nears, remind; what is at stake: currency → amount."""
    stake: dict[str, Decimal] = {}
    for contract in list_contracts():
        try:
            month = running_month(contract, now)
            document = draft_report(contract, month, now).result
            tell_of_budget(contract, month, document, now)
        except ClaimsError as error:
            log.info("org %s: no draft of the running month under %s: %s", org.slug, contract, error)
            continue
        result = document["assessment"].get("result") or {}
        if result.get("claim"):
            currency = result["currency"] or "–"
            stake[currency] = stake.get(currency, Decimal(0)) + Decimal(result["claim"])
    exposure = {currency: str(amount) for currency, amount in sorted(stake.items()) if amount}
    remind(now)
    end_budgets(now)
    with schema_context("public"):
        set_exposure(org.pk, exposure, now)
    return exposure


@transaction.atomic
def remind(now: datetime) -> int:
    """Tell the org's channels of windows that close soon, each stage once; how many were told."""
    told = 0
    alive = set()
    for one in deadline_board(now):
        if one.days_left is None or one.closes_at is None:
            continue
        alive.add(key_of(one))
        stage = next((days for days in reversed(REMIND_DAYS) if one.days_left < days), None)
        if stage is None:
            continue
        what = "reminder" if Alert.objects.filter(key=key_of(one)).exists() else "opened"
        dedup = "late" if one.is_late else f"{stage} days"
        told += notify("deadline", key_of(one), what, dedup=dedup, **_words(one, now))
    end_threads("deadline-", alive, now, "Filed, or nothing to file any more.")
    return told


def key_of(one: Deadline) -> str:
    """The thread of a deadline."""
    if one.claim is not None:
        return f"deadline-claim-{one.claim.pk}"
    contract = one.report.contract_id if one.report else 0
    return f"deadline-{contract}-{one.month}-{one.state}"[:120]


def _words(one: Deadline, now: datetime) -> dict[str, Any]:
    amount = "" if one.amount is None else f", {money(one.amount, one.currency)}"
    about = f"{one.contract}, {one.month}{amount}"
    if one.is_late:
        title, severity = f"Too late to claim: {about}", "critical"
    else:
        left = "within a day" if not one.days_left else f"in {one.days_left} day{'s' * (one.days_left != 1)}"
        title = f"The window to claim closes {left}: {about}"
        severity = "critical" if not one.days_left else "warning" if one.days_left < 7 else "info"
    path = f"claims/{one.claim.pk}/" if one.claim else "claims/"
    return {
        "at": now,
        "severity": severity,
        "title": title,
        "text": "; ".join(one.missing) or "Nothing is missing.",
        "path": path,
        "facts": {
            "contract": one.contract,
            "month": one.month,
            "closes_at": one.closes_at and one.closes_at.isoformat(),
        },
    }
