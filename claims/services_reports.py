"""Reports: drafts, the issue that freezes one, and restatements. Claims follow issued reports that owe money."""

from __future__ import annotations

import hashlib
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

from django.db import transaction
from django.utils import timezone

from claims.domain.periods import ms_of
from claims.domain.result import INCOMPLETE, INSUFFICIENT_DATA, NOT_MEASURABLE, OK
from claims.domain.stacking import better_of_documents
from claims.errors import ReportError
from claims.inputs import canonical_json, gather, period_for, version_for, waiting
from claims.models import Claim, ClaimEvent, Contract, Report, ms_at
from claims.services import Actor
from claims.unamended import unamended
from fleet.sql import execute

#: How long after a month's end late batches may still come before it can be issued.
GRACE = timedelta(hours=24)
OF_THE_MOMENT = ("watermark", "computed_ms", "looked_at")
_STATUS = {
    INCOMPLETE: (
        "contract_incomplete",
        "The contract does not say enough: {missing}. There is a draft with both readings, and no claim.",
    ),
    INSUFFICIENT_DATA: (
        "insufficient_data",
        "Insufficient data: too little of the month is known for this contract. The draft shows the bounds.",
    ),
    NOT_MEASURABLE: (
        "not_measurable",
        "Not measurable: this contract pays for lost connectivity, and no pair of witnesses watched these nodes.",
    ),
}


def draft_report(contract: Contract, month: str, now: datetime | None = None) -> Report:
    """The month's draft, computed again. Raises ClaimsError; then the last draft stays as it was."""
    now = now or timezone.now()
    gathered = gather(contract, month, now)
    result = gathered.document()
    if (found := unamended(gathered, result)) is not None:
        result["unamended"] = found
    with transaction.atomic():
        Contract.objects.select_for_update().get(pk=contract.pk)
        issued = _last_issued(contract, month)
        values = {
            "version": gathered.version,
            "inputs": gathered.frozen,
            "result": result,
            "digest": digest_of(gathered.frozen, result),
            "computed_at": now,
        }
        draft = Report.objects.filter(contract=contract, month=month, status=Report.Status.DRAFT).first()
        number = 1 if issued is None else issued.number + 1
        if draft is None:
            return Report.objects.create(contract=contract, month=month, number=number, **values)
        for key, value in values.items():
            setattr(draft, key, value)
        draft.save(update_fields=list(values))
        return draft


def issue_report(
    contract: Contract, month: str, actor: Actor, *, reason: str = "", now: datetime | None = None
) -> Report:
    """Freeze the month: an issued report, and a draft claim where money is owed. Where one is issued already this is a
    restatement, which says why and what changed.

    Raises PeriodNotOver, NoEntitlement, ReportError (code says why); then nothing is written.
    """
    now = now or timezone.now()
    period = period_for(version_for(contract, month).load(), month)
    period.refuse_if_not_over(ms_at(now) or 0)
    if (ms_at(now) or 0) < period.end_ms + GRACE // timedelta(milliseconds=1):
        raise ReportError(
            f"{month} ended less than 24 h ago: late batches may still come. Issue it a day after its end.",
            "period_in_grace",
        )
    if left := waiting(period.end_ms):
        raise ReportError(f"{left} received batches are not in the strips yet. Try again shortly.", "facts_waiting")
    with transaction.atomic():
        # One after the other in the org: what a contract of the same group asks for counts here (`_with_group`).
        execute("select pg_advisory_xact_lock(hashtext(current_schema() || '.issue'))", [])
        Contract.objects.select_for_update().get(pk=contract.pk)
        before = _last_issued(contract, month)
        if before is not None and not reason.strip():
            raise ReportError(f"{month} is issued already. A restatement says why.", "reason_needed", "reason")
        report = draft_report(contract, month, now)
        assessment = report.result["assessment"]
        if assessment["status"] != OK:
            code, sentence = _STATUS[assessment["status"]]
            raise ReportError(sentence.format(missing=", ".join(assessment["missing"])), code)
        if before is not None and report.result == before.result:
            raise ReportError(f"Nothing changed since version {before.number} of {month}.", "nothing_changed")
        report.status = Report.Status.ISSUED if before is None else Report.Status.RESTATED
        report.reason = reason.strip()[:500]
        report.difference = {} if before is None else difference(before.result, report.result)
        report.issued_at, report.issued_by = now, actor.name
        report.save()
        actor.record(
            "report.issued" if before is None else "report.restated",
            str(report),
            after={"digest": report.digest, "claim": assessment["result"]["claim"], "reason": report.reason},
        )
        _open_claim(report, actor)
    return report


def _last_issued(contract: Contract, month: str) -> Report | None:
    found = Report.objects.filter(contract=contract, month=month).exclude(status=Report.Status.DRAFT)
    return found.order_by("-number").first()


def _open_claim(report: Report, actor: Actor) -> None:
    """A draft claim for what the report owes. An earlier draft claim of the month is written off in its favour; one
    that is filed already stays, and the new one asks for what is missing to it.
    """
    amount, note = _with_group(report)
    mine = Claim.objects.filter(report__contract=report.contract, report__month=report.month).order_by("pk")
    for earlier in mine.select_for_update(of=("self",)):  # as it stands once whoever files it just now is done
        if earlier.status == Claim.Status.DRAFT:
            Claim.objects.filter(pk=earlier.pk, status=earlier.status).update(
                status=Claim.Status.WRITTEN_OFF, closed_at=report.issued_at
            )
            note = f"Replaced by version {report.number} of the report."
            ClaimEvent.objects.create(
                claim=earlier, actor=actor.name, before="draft", after=Claim.Status.WRITTEN_OFF, note=note
            )
        elif earlier.status != Claim.Status.WRITTEN_OFF:
            amount -= earlier.amount
    if amount <= 0:
        return
    closes = [one["closes_utc"] for one in report.result["deadlines"] if one["closes_utc"]]
    claim = Claim.objects.create(
        report=report,
        amount=amount,
        currency=report.result["assessment"]["result"]["currency"][:8],
        closes_at=datetime.fromisoformat(min(closes)) if closes and ms_of(min(closes)) else None,
    )
    ClaimEvent.objects.create(claim=claim, actor=actor.name, after=claim.status, amount=amount, note=note)
    actor.record("claim.drafted", claim.label, after={"amount": str(amount)})


def _with_group(report: Report) -> tuple[Decimal, str]:
    """(what may be claimed for this report beside the claims of its group, why in words).

    Credits of one stacking group do not add: per unit and month the better one counts (contract.md 16).
    """
    own = report.result["assessment"]["result"]
    group = report.version.load().stacking_group
    if not group:
        return Decimal(own["claim"]), ""
    others: dict[int, Report] = {}
    issued = Report.objects.select_related("version").exclude(status=Report.Status.DRAFT)
    for one in issued.filter(month=report.month).exclude(contract=report.contract).order_by("number"):
        if one.version.load().stacking_group == group:
            others[one.contract_id] = one
    together = better_of_documents([own, *(one.result["assessment"]["result"] for one in others.values())])
    live = Claim.objects.filter(report__contract__in=list(others), report__month=report.month)
    asked = sum((one.amount for one in live.exclude(status=Claim.Status.WRITTEN_OFF)), Decimal(0))
    amount = min(Decimal(own["claim"]), together - asked)
    note = "" if not asked else f"{asked} is asked for under another contract of the group {group}: the better counts."
    return amount, note


def digest_of(inputs: dict[str, Any], result: dict[str, Any]) -> str:
    """SHA-256 of what a report rests on and says; when it was computed changes nothing."""
    rests_on = {key: value for key, value in inputs.items() if key not in OF_THE_MOMENT}
    return hashlib.sha256(canonical_json({"inputs": rests_on, "result": result})).hexdigest()


def difference(before: dict[str, Any], after: dict[str, Any]) -> dict[str, list[str | None]]:
    """What a restatement changed: figure → [before, after]."""
    old, new = _figures(before), _figures(after)
    return {key: [old.get(key), new.get(key)] for key in sorted({*old, *new}) if old.get(key) != new.get(key)}


def _figures(document: dict[str, Any]) -> dict[str, str]:
    result = document["assessment"].get("result") or {}
    out = {"claim": str(result.get("claim"))}
    for unit in result.get("units", ()):
        for name, reading in unit["readings"].items():
            out[f"{unit['name']}: counted seconds, {name}"] = reading["down_seconds"]
    out["contract version"] = document["contract"]["version"]
    out["overlays"] = str(len(document["overlays"]))
    return out
