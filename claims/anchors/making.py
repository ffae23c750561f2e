"""Making anchors: once a day the newest checkpoint goes to every planned party; what is away is tried again."""

from __future__ import annotations

import logging
from datetime import datetime, timedelta
from typing import Any

from django.db import transaction

from claims.anchors.mails import send_checkpoint
from claims.anchors.plan import get_plan
from claims.anchors.stamps import ask_stamp
from claims.anchors.tokens import ask_token
from claims.errors import AnchorError
from claims.ledger import make_checkpoint
from claims.models import Anchor, AnchorPlan, SignedCheckpoint
from orgs.models import Org

log = logging.getLogger(__name__)
Kind, State = Anchor.Kind, Anchor.State
#: Minutes until the next try after so many failures; the last one is repeated.
WAITS = (5, 15, 60, 180, 360)
#: A checkpoint that nobody took for so long is given up: a newer one has long been asked for.
PATIENCE = timedelta(days=7)


def anchor_org(org: Org, now: datetime) -> int:
    """Ask for today's anchors of the org that is open now, and try what waits; how many were made."""
    plan = get_plan()
    if plan is None:
        return 0
    ask_today(org, plan, now)
    return try_waiting(org, plan, now)


def ask_today(org: Org, plan: AnchorPlan, now: datetime) -> list[Anchor]:
    """Rows for the anchors of this UTC day that are planned and not asked for yet, over the newest checkpoint."""
    kinds = [
        kind
        for kind, planned in (
            (Kind.MAIL, plan.notice_address),
            (Kind.STAMP, plan.tsa_url),
            (Kind.TOKEN, plan.token_adapter),
        )
        if planned
    ]
    today = now.replace(hour=0, minute=0, second=0, microsecond=0)
    asked = set(Anchor.objects.filter(asked_at__gte=today).values_list("kind", flat=True))
    wanted = [kind for kind in kinds if kind not in asked]
    checkpoint = make_checkpoint(org, now) if wanted else None
    if checkpoint is None:
        return []
    rows = [Anchor(checkpoint=checkpoint, kind=kind, asked_at=now, next_try_at=now) for kind in wanted]
    return Anchor.objects.bulk_create(rows, ignore_conflicts=True)  # a day without anything new has its anchor


def try_waiting(org: Org, plan: AnchorPlan, now: datetime) -> int:
    """Try every anchor whose time has come; how many were made."""
    waiting = Anchor.objects.filter(state=State.WAITING, next_try_at__lte=now).select_related("checkpoint")
    return sum(_try(org, plan, one, now) for one in waiting.order_by("asked_at", "pk"))


def _try(org: Org, plan: AnchorPlan, anchor: Anchor, now: datetime) -> bool:
    # Claimed before the call: two workers never ask the same party at once, and a crash leaves a later try.
    until = now + timedelta(minutes=WAITS[min(anchor.attempts, len(WAITS) - 1)])
    mine = Anchor.objects.filter(pk=anchor.pk, state=State.WAITING, next_try_at=anchor.next_try_at)
    if not mine.update(next_try_at=until, attempts=anchor.attempts + 1):
        return False
    try:
        values = _made(org, plan, anchor, now)
    except AnchorError as error:
        log.info("org %s: %s is not made yet: %s", org.slug, anchor, error)
        state = State.FAILED if now - anchor.asked_at > PATIENCE else State.WAITING
        Anchor.objects.filter(pk=anchor.pk).update(error=str(error)[:300], state=state)
        return False
    Anchor.objects.filter(pk=anchor.pk).update(state=State.MADE, error="", **values)
    return True


def _made(org: Org, plan: AnchorPlan, anchor: Anchor, now: datetime) -> dict[str, Any]:
    checkpoint = anchor.checkpoint
    if anchor.kind == Kind.MAIL:
        raw, who = send_checkpoint(org, plan, checkpoint, now)
        return {"at": now, "who": who, "evidence": raw}
    if anchor.kind == Kind.STAMP:
        raw, at, who = ask_stamp(plan.tsa_url, plan.tsa_certificate, checkpoint.note.encode())
        return {"at": at, "who": who[:300], "evidence": raw, "key": plan.tsa_certificate}
    raw, at, who = ask_token(plan.token_adapter, bytes(checkpoint.root), plan.token_keys)
    return {"at": at, "who": who[:300], "evidence": raw, "key": plan.token_keys}


def newest_note() -> SignedCheckpoint | None:
    """The checkpoint whose root a ticket's text carries."""
    return SignedCheckpoint.objects.order_by("-size").first()


@transaction.atomic
def note_ticket(size: int, *, at: datetime, provider: str, reference: str, text: str) -> Anchor | None:
    """A ticket whose text carried the checkpoint of this size was opened with the provider. None where there is no such
    checkpoint, no reference, or it is noted already.
    """
    checkpoint = SignedCheckpoint.objects.filter(size=size).first()
    if checkpoint is None or not reference.strip() or checkpoint.note.strip() not in text:
        return None
    if checkpoint.made_at > at:
        return None  # the ticket is older than what it is said to carry
    anchor, is_new = Anchor.objects.get_or_create(
        checkpoint=checkpoint,
        kind=Kind.TICKET,
        reference=reference.strip()[:200],
        defaults={"state": State.MADE, "at": at, "who": provider[:300] or "the provider", "evidence": text.encode()},
    )
    return anchor if is_new else None
