"""Which anchors an org wants: read, checked and kept with an audit entry."""

from __future__ import annotations

import json
from collections.abc import Mapping

from django.core.exceptions import ValidationError
from django.core.validators import validate_email
from django.db import transaction
from django.utils import timezone

from claims.anchors.tokens import ADAPTERS
from claims.errors import AnchorError, ProofError
from claims.models import AnchorPlan
from claims.services import Actor
from claims.verify.timestamps import certificates_of
from claims.verify.tokens import read_keys
from fleet.alerts.outward import TargetRefused, check_url

FIELDS = ("notice_address", "finance_address", "tsa_url", "tsa_certificate", "token_adapter", "token_keys")
MAX_KEY_CHARS = 60_000


def get_plan() -> AnchorPlan | None:
    """The org's plan; None where nobody made one."""
    return AnchorPlan.objects.order_by("pk").first()


def is_planned(plan: AnchorPlan | None) -> bool:
    """Whether any outside party sees the checkpoints."""
    return plan is not None and bool(plan.notice_address or plan.tsa_url or plan.token_adapter)


def set_plan(actor: Actor, values: Mapping[str, str]) -> AnchorPlan:
    """Keep the plan in place of the one before. Raises AnchorError naming the field; then nothing is kept."""
    clean = {name: values.get(name, "").strip() for name in FIELDS}
    _check(clean)
    with transaction.atomic():
        before = AnchorPlan.objects.select_for_update().order_by("pk").first()
        plan = before or AnchorPlan()
        old = {name: getattr(plan, name) for name in FIELDS}
        for name, value in clean.items():
            setattr(plan, name, value)
        plan.changed_by, plan.changed_at = actor.name, timezone.now()
        plan.save()
        actor.record(
            "anchors.planned",
            "anchors",
            before=None if before is None else {name: _short(old[name]) for name in FIELDS if old[name]},
            after={name: _short(value) for name, value in clean.items() if value},
        )
    return plan


def _short(value: str) -> str:
    """What the audit trail keeps of a field: certificates and keys by their beginning."""
    return value if len(value) <= 200 else f"{value[:60]}… ({len(value)} characters)"


def _check(clean: Mapping[str, str]) -> None:
    for name in ("notice_address", "finance_address"):
        if clean[name]:
            try:
                validate_email(clean[name])
            except ValidationError as error:
                raise AnchorError(f"{clean[name]!r} is no mail address.", name) from error
    if bool(clean["tsa_url"]) != bool(clean["tsa_certificate"]):
        raise AnchorError("A time-stamping authority needs its address and its certificate.", "tsa_certificate")
    if clean["tsa_url"]:
        try:
            check_url(clean["tsa_url"])
        except TargetRefused as error:
            raise AnchorError(str(error), "tsa_url") from error
        _check_certificate(clean["tsa_certificate"])
    if clean["token_adapter"]:
        if clean["token_adapter"] not in ADAPTERS:
            raise AnchorError(f"An adapter is one of {', '.join(ADAPTERS)}.", "token_adapter")
        try:
            read_keys(clean["token_keys"][:MAX_KEY_CHARS])
        except (ProofError, json.JSONDecodeError) as error:
            raise AnchorError(f"The provider's keys can't be read: {error}", "token_keys") from error


def _check_certificate(pem: str) -> None:
    try:
        found = certificates_of(pem[:MAX_KEY_CHARS])
    except ProofError as error:
        raise AnchorError(str(error), "tsa_certificate") from error
    if not found:
        raise AnchorError("Paste the signing certificate in PEM form, then its issuers.", "tsa_certificate")
    if not found[0].is_for_time_stamps():
        raise AnchorError("The first certificate must be the one that signs time stamps.", "tsa_certificate")
