"""Tells people before a contract's uptime crosses a step of its credit, and when it has: each step once a month."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from math import ceil
from typing import Any

from django.db import transaction

from claims.domain.budget import LOOK_S, Budget, budgets
from claims.domain.facts import ancestors
from claims.domain.money import percent_text
from claims.errors import ClaimsError
from claims.inputs import gather, running_month, version_for
from claims.models import Contract, Report
from claims.selectors import list_contracts, month_words
from claims.tickets import end_threads
from claims.words import span
from fleet.alerts.outbox import notify, told_of
from fleet.models import Incident

log = logging.getLogger(__name__)
KIND = "budget"
UNITS_TOLD = 5
LAST_LOOK_S = 300  # how often `watch_budgets` runs (settings)


def key_of(contract: Contract, month: str) -> str:
    """The thread of a contract's month."""
    return f"budget-{contract.pk}-{month}"


@transaction.atomic
def tell_of_budget(contract: Contract, month: str, document: Mapping[str, Any], now: datetime) -> bool:
    """Tell the org's channels what is new in a month that runs: steps that are near, steps that were crossed."""
    terms = version_for(contract, month).load()
    found = budgets(terms, document)
    key = key_of(contract, month)
    story = told_of(key)
    known = {mark for _, facts in story for mark in facts.get("marks", ())}
    is_open = bool(story) and story[-1][0] != "resolved"
    new = [one for one in found if not known.issuperset(one.marks)]
    if new:
        marks = sorted({mark for one in new for mark in one.marks} - known)
        words = _words(contract, month, document, new, marks)
        what = "worsened" if is_open else "opened"
        return notify(KIND, key, what, at=now, dedup=_digest(marks), **words)
    if is_open and found and all(one.is_far for one in found):
        title = f"Uptime under {contract.name} is far from the next step again, {month_words(month)}"
        dedup = f"taken back {len(story)}"
        return notify(KIND, key, "resolved", at=now, severity="info", title=title, dedup=dedup, path=_path(contract))
    return False


def end_budgets(now: datetime) -> None:
    """End the threads of months that are over and of contracts that have ended."""
    alive = [key_of(one, running_month(one, now)) for one in list_contracts()]
    end_threads("budget-", alive, now, "The month is over: its report says what is owed.", KIND)


def watch_budgets(now: datetime) -> int:
    """Between the hourly drafts: look again at the contracts that something open may carry over a step before the next
    one; how many were looked at.
    """
    looked = 0
    open_on = set(Incident.objects.filter(is_open=True, withdrawn_at=None).values_list("cluster__name", "node__name"))
    for contract in list_contracts() if open_on else ():
        month = running_month(contract, now)
        try:
            draft = Report.objects.filter(contract=contract, month=month, status=Report.Status.DRAFT).first()
            if draft is not None and _may_cross(contract, draft, open_on):
                looked += 1
                tell_of_budget(contract, month, gather(contract, month, now).document(), now)
        except ClaimsError as error:
            log.info("the budget of %s can't be watched: %s", contract, error)
    return looked


def _may_cross(contract: Contract, draft: Report, open_on: set[tuple[str, str]]) -> bool:
    """Whether a unit with something open could cross a step by the time of the next hourly draft and this look."""
    terms = draft.version.load()
    units = {unit.name: (unit.name, *unit.members) for unit in terms.units}
    everything = [name for names in units.values() for name in names]
    nodes = {node for cluster, node in open_on if contract.cluster in ("", cluster)}
    for one in budgets(terms, draft.result):
        lies_on = {above for name in units.get(one.unit, everything) for above in ancestors(name)}
        if one.could_cross_within(LOOK_S + LAST_LOOK_S) and lies_on & nodes:
            return True
    return False


def _digest(marks: Sequence[str]) -> str:
    return hashlib.sha256("\n".join(marks).encode()).hexdigest()


def _path(contract: Contract) -> str:
    return f"sla/{contract.pk}/"


def _words(
    contract: Contract, month: str, document: Mapping[str, Any], new: Sequence[Budget], marks: Sequence[str]
) -> dict[str, Any]:
    """What `notify` wants beside kind, key and time. The worst unit makes the title."""
    worst = new[0]
    has_crossed = f"{worst.unit} {worst.crossed[-1].below} crossed" in marks if worst.crossed else False
    name = f"all units of {contract.name}" if worst.unit == "*" else worst.unit
    others = f" and {len(new) - 1} more" if len(new) > 1 else ""
    simulated = " (simulated)" if document["is_simulated"] else ""
    if has_crossed:
        title = f"{name}{others}{simulated} fell below {worst.crossed[-1].below} %"
    else:
        title = f"{name}{others}{simulated} may fall below {worst.ahead.below if worst.ahead else ''} %:"
        title += f" {span(worst.left_s)} left"
    until = datetime.fromisoformat(document["whole_period"]["end_utc"])
    lines = [_sentence(one) for one in new[:UNITS_TOLD]]
    if len(new) > UNITS_TOLD:
        lines.append(f"{len(new) - UNITS_TOLD} more units: see the page.")
    lines.append(
        f"The period ends at {until.astimezone(UTC):%Y-%m-%d %H:%M} UTC. Counted is the lower reading of the draft:"
        " unknown time is up in it. Next: see what counts, and open the tickets that the contract asks for."
    )
    return {
        "severity": "critical" if has_crossed else "warning",
        "title": f"{title}, {contract.name}, {month_words(month)}",
        "text": "\n".join(lines),
        "cluster": contract.cluster,
        "path": _path(contract),
        "facts": {
            "contract": contract.name,
            "month": month,
            "period_ends_at": document["whole_period"]["end_utc"],
            "units": [_plain(one) for one in new[:500]],
            "marks": list(marks),
        },
    }


def _sentence(one: Budget) -> str:
    counted = span(ceil(one.counted_s))
    text = f"{one.unit}: {percent_text(one.uptime / 100, 3)} % if nothing more happens, {counted} counted so far"
    if one.is_down:
        text += ", down now"
    if one.crossed:
        text += f". Below {one.crossed[-1].below} % the credit is {one.crossed[-1].credit}"
    if one.ahead is not None:
        text += f". {span(one.left_s)} more and it falls below {one.ahead.below} %: {one.ahead.credit}"
    return f"{text}."


def _plain(one: Budget) -> dict[str, Any]:
    """A unit's budget for programs."""
    return {
        "unit": one.unit,
        "uptime_percent": percent_text(one.uptime / 100, 6),
        "counted_seconds": ceil(one.counted_s),
        "crossed_below": one.crossed[-1].below if one.crossed else None,
        "next_below": None if one.ahead is None else one.ahead.below,
        "seconds_left": None if one.ahead is None else one.left_s,
        "is_down": one.is_down,
    }
