"""What becomes of a claim: filed, acknowledged, paid or refused, written off. Compare-and-set, history and audit."""

from __future__ import annotations

from datetime import date, datetime
from decimal import Decimal, InvalidOperation
from typing import Any

from django.db import transaction
from django.db.models import F
from django.utils import timezone

from claims.errors import ClaimStateError, NotThere
from claims.models import Claim, ClaimEvent
from claims.services import Actor

Status = Claim.Status
#: From where each step may begin.
BEGINS = {
    Status.FILED: (Status.DRAFT, Status.REFUSED),
    Status.ACKNOWLEDGED: (Status.FILED,),
    Status.PAID: (Status.FILED, Status.ACKNOWLEDGED, Status.PAID),
    Status.REFUSED: (Status.FILED, Status.ACKNOWLEDGED),
    Status.WRITTEN_OFF: (Status.DRAFT, Status.FILED, Status.ACKNOWLEDGED, Status.REFUSED),
}
MAX_NOTE = 1000


def get_claim(claim: str | int) -> Claim:
    """By id or by its label `C-2026-10-0007`. Raises NotThere."""
    number = str(claim).rpartition("-")[2]
    found = None
    if number.isascii() and number.isdigit() and len(number) < 16:
        found = Claim.objects.select_related("report__contract").filter(pk=int(number)).first()
    if found is None or (str(claim).startswith("C-") and found.label != claim):
        raise NotThere(f"There is no claim {claim} in this org.")
    return found


def file_claim(claim: Claim, actor: Actor, *, where: str, reference: str, at: datetime | None = None) -> Claim:
    """It was handed in: where (portal, address), when, and under which reference."""
    if not where.strip():
        raise ClaimStateError("Say where the claim was filed.", "where")
    at = at or timezone.now()
    changes = {"filed_at": at, "filed_where": where.strip()[:300], "filed_reference": reference.strip()[:200]}
    return _step(claim, Status.FILED, actor, f"{where}, {reference}".strip(", "), changes)


def acknowledge_claim(claim: Claim, actor: Actor, *, note: str = "") -> Claim:
    """The provider confirmed that it has it."""
    return _step(claim, Status.ACKNOWLEDGED, actor, note, {})


def pay_claim(claim: Claim, actor: Actor, *, amount: str | Decimal, on: date | None = None, note: str = "") -> Claim:
    """Money came, all or a part; more may follow. What was expected and what came are shown side by side."""
    try:
        money = Decimal(str(amount))
    except InvalidOperation as error:
        raise ClaimStateError(f"{amount!r} is no amount.", "amount") from error
    if not money.is_finite() or money <= 0 or money >= 10**14:
        raise ClaimStateError("The amount received is more than 0.", "amount")
    now = timezone.now()
    changes = {"received": F("received") + money, "last_received_on": on or now.date(), "closed_at": now}
    return _step(claim, Status.PAID, actor, note, changes, money)


def refuse_claim(claim: Claim, actor: Actor, *, reason: str) -> Claim:
    """The provider refused, with its reason."""
    if not reason.strip():
        raise ClaimStateError("Write down the provider's reason.", "reason")
    return _step(
        claim, Status.REFUSED, actor, reason, {"refusal": reason.strip()[:MAX_NOTE], "closed_at": timezone.now()}
    )


def write_off_claim(claim: Claim, actor: Actor, *, reason: str) -> Claim:
    """The org gives it up, and says why."""
    if not reason.strip():
        raise ClaimStateError("Say why the claim is given up.", "reason")
    return _step(claim, Status.WRITTEN_OFF, actor, reason, {"closed_at": timezone.now()})


#: What the provider sees of its customers' claims: those that were filed with it.
WITH_PROVIDER = (Status.FILED, Status.ACKNOWLEDGED, Status.PAID, Status.REFUSED)


def provider_answers(claim: Claim, actor: Actor, *, note: str, kind: str) -> Claim:
    """The provider writes into the customer's record: `answer`, `dispute`, or `acknowledge` a filed claim.

    A dispute says why and stays marked until the customer takes the next step. Raises ClaimStateError.
    """
    if claim.status not in WITH_PROVIDER:
        raise ClaimStateError(f"{claim.label} was not filed with the provider.")
    if kind == "acknowledge":
        return _step(claim, Status.ACKNOWLEDGED, actor, note, {}, side=ClaimEvent.Side.PROVIDER)
    if kind not in ("answer", "dispute"):
        raise ClaimStateError("Answer, dispute or acknowledge.", "kind")
    if not note.strip():
        raise ClaimStateError("Write what the customer should read.", "note")
    with transaction.atomic():
        if kind == "dispute":
            Claim.objects.filter(pk=claim.pk).update(disputed_at=timezone.now())
        ClaimEvent.objects.create(
            claim=claim, actor=actor.name, before=claim.status, after=claim.status, note=note.strip()[:MAX_NOTE],
            side=ClaimEvent.Side.PROVIDER,
        )  # fmt: skip
        actor.record(f"claim.{kind}", claim.label, after={"note": note[:200]})
    claim.refresh_from_db()
    return claim


def _step(
    claim: Claim,
    to: str,
    actor: Actor,
    note: str,
    changes: dict[str, Any],
    money: Decimal | None = None,
    side: str = ClaimEvent.Side.CUSTOMER,
) -> Claim:
    before = claim.status
    if before not in BEGINS[Status(to)]:
        raise ClaimStateError(
            f"{claim.label} is {claim.get_status_display().lower()}: it can't become {Status(to).label.lower()}."
        )
    with transaction.atomic():
        if side == ClaimEvent.Side.CUSTOMER:
            changes = {**changes, "disputed_at": None}
        if not Claim.objects.filter(pk=claim.pk, status=before).update(status=to, **changes):
            raise ClaimStateError(f"{claim.label} was changed by somebody else just now. Look again.")
        ClaimEvent.objects.create(
            claim=claim,
            actor=actor.name,
            before=before,
            after=to,
            amount=money,
            note=note.strip()[:MAX_NOTE],
            side=side,
        )
        after = {"status": to, "note": note[:200], "amount": None if money is None else str(money)}
        actor.record(f"claim.{to}", claim.label, before=before, after=after)
    claim.refresh_from_db()
    return claim
