"""Everything that writes contracts, their dated rows and invoices: a transaction and an audit entry each."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal, InvalidOperation
from typing import Any

from django.db import transaction
from django.utils import timezone

from claims.domain.contract import Contract as Terms
from claims.domain.contract_load import canonical, contract_from_json, contract_from_toml, digest
from claims.domain.periods import ms_of
from claims.errors import BadRow, ContractError, InputsError, NotThere
from claims.models import CalendarFeed, Contract, ContractVersion, Invoice, Overlay
from orgs.models import Org
from orgs.services import record

MAX_TEXT = 200


@dataclass(frozen=True)
class Actor:
    """Who does something, in which org, from where."""

    name: str
    org: Org
    address: str | None = None

    def record(self, action: str, target: str, before: Any = None, after: Any = None) -> None:
        """Append the audit entry of a change."""
        record(
            action, actor=self.name, org=self.org, target=target[:256], before=before, after=after, address=self.address
        )


def read_terms(text: str, name: str = "") -> Terms:
    """The contract of a file: JSON where it begins with a brace or is named so, else TOML. Raises ContractError."""
    is_json = name.endswith(".json") or text.lstrip().startswith("{")
    return contract_from_json(text) if is_json else contract_from_toml(text)


def add_contract(
    terms: Terms, actor: Actor, *, cluster: str = "", entitled_from: str | datetime | None = None
) -> ContractVersion:
    """A new contract, or the next version of the one with this name.

    The terms are copied: a later change of the catalogue or of the file changes nothing here. With `entitled_from`
    every unit of the contract is owed from that instant on. Raises ContractError or BadRow; then nothing is kept.
    """
    if len(terms.name) > MAX_TEXT:
        raise ContractError(f"A contract's name has at most {MAX_TEXT} characters.", "name")
    if not terms.units:
        raise ContractError("A contract names the units that a percentage is judged by: [[units]].", "units")
    valid_from, valid_until = _day(terms.effective_from, "effective_from"), _day(terms.effective_to, "effective_to")
    if valid_from and valid_until and valid_until <= valid_from:
        raise ContractError("The contract ends before it begins.", "effective_to")
    with transaction.atomic():
        contract, is_new = Contract.objects.select_for_update().get_or_create(
            name=terms.name, defaults={"cluster": cluster}
        )
        last = contract.versions.order_by("-number").first()
        if last is not None and last.digest == digest(terms) and (not cluster or cluster == contract.cluster):
            raise ContractError(f"{terms.name} has exactly these terms already: version {last.number}.")
        if cluster and cluster != contract.cluster:
            contract.cluster = cluster
            contract.save(update_fields=["cluster"])
        version = ContractVersion.objects.create(
            contract=contract,
            number=1 if last is None else last.number + 1,
            terms=canonical(terms).decode(),
            digest=digest(terms),
            valid_from=valid_from,
            valid_until=valid_until,
            source=terms.source[:500],
            author=actor.name,
        )
        actor.record(
            "contract.created" if is_new else "contract.version",
            f"{contract.name} version {version.number}",
            before=None if last is None else last.digest,
            after={"digest": version.digest, "valid_from": str(valid_from or "")},
        )
        if entitled_from:
            for unit in terms.units:
                add_overlay(actor, contract=contract, kind="entitlement", resource=unit.name, starts_at=entitled_from)
    return version


def _day(text: str, key: str) -> date | None:
    if not text:
        return None
    try:
        return date.fromisoformat(text)
    except ValueError as error:
        raise ContractError(f"{key} must be a day such as 2026-10-01, not {text!r}.", key) from error


def get_contract(name_or_id: str | int) -> Contract:
    """By id or name. Raises NotThere."""
    found = None
    if str(name_or_id).isascii() and str(name_or_id).isdigit():
        found = Contract.objects.filter(pk=int(name_or_id)).first()
    found = found or Contract.objects.filter(name=str(name_or_id)).first()
    if found is None:
        raise NotThere(f"There is no contract {name_or_id!r} in this org.")
    return found


def add_overlay(
    actor: Actor,
    *,
    contract: Contract | None,
    kind: str,
    resource: str,
    starts_at: str | datetime,
    ends_at: str | datetime | None = None,
    **more: Any,
) -> Overlay:
    """A dated row. Instants are ISO 8601 with an offset. `more`: acknowledged_at, pauses, notice_s, reference,
    provider_word. Raises BadRow.
    """
    acknowledged = more.pop("acknowledged_at", None)
    begins = _instant(starts_at, "starts_at")
    if begins is None:
        raise BadRow("A row needs its beginning.", "starts_at")
    one = Overlay(
        contract=contract,
        kind=kind,
        resource=resource.strip(),
        starts_at=begins,
        ends_at=_instant(ends_at, "ends_at"),
        acknowledged_at=_instant(acknowledged, "acknowledged_at"),
        author=actor.name,
        **more,
    )
    if not one.resource or len(one.resource) > 300:
        raise BadRow("A row names a node or a place, such as n1 or n1/gpu3.", "resource")
    if len(one.reference) > MAX_TEXT:
        raise BadRow(f"A reference has at most {MAX_TEXT} characters.", "reference")
    if one.ends_at is not None and one.ends_at < one.starts_at:
        raise BadRow(f"The {kind} of {one.resource} ends before it begins.", "ends_at")
    one.row()  # refuses what contradicts itself
    with transaction.atomic():
        one.save()
        after = {"kind": kind, "from": one.starts_at.isoformat(), "to": one.ends_at and one.ends_at.isoformat()}
        actor.record("overlay.added", one.resource, after={**after, "reference": one.reference})
    return one


def withdraw_overlay(one: Overlay, actor: Actor) -> None:
    """Take a row out of later computations; issued reports keep it."""
    with transaction.atomic():
        changed = Overlay.objects.filter(pk=one.pk, withdrawn_at=None).update(
            withdrawn_at=timezone.now(), withdrawn_by=actor.name
        )
        if changed:
            actor.record("overlay.withdrawn", one.resource, before={"kind": one.kind, "id": one.pk})


def _instant(value: str | datetime | None, key: str) -> datetime | None:
    if value is None or value == "":
        return None
    if isinstance(value, datetime):
        return value
    try:
        ms_of(value)
        return datetime.fromisoformat(value)
    except ValueError as error:
        raise BadRow(f"{key}: {value!r} is no ISO 8601 instant.", key) from error


def enter_invoice(
    contract: Contract,
    month: str,
    actor: Actor,
    *,
    fees: Mapping[str, str] | None = None,
    automatic: Sequence[Mapping[str, str]] = (),
    is_complete: bool = True,
    previous_month_spend: str | None = None,
) -> Invoice:
    """What was charged and credited for a month, in place of what was entered before. Raises InputsError."""
    values = {
        "fees": {unit: str(_amount(amount)) for unit, amount in (fees or {}).items()},
        "automatic": [
            {"unit": one["unit"], "amount": str(_amount(one["amount"])), "reference": one.get("reference", "")}
            for one in automatic
        ],
        "is_complete": is_complete,
        "previous_month_spend": None if previous_month_spend is None else _amount(previous_month_spend),
        "author": actor.name,
        "entered_at": timezone.now(),
    }
    with transaction.atomic():
        invoice, _ = Invoice.objects.update_or_create(contract=contract, month=month, defaults=values)
        actor.record("invoice.entered", f"{contract.name} {month}", after={"fees": values["fees"]})
    return invoice


def _amount(text: Any) -> Decimal:
    try:
        amount = Decimal(str(text))
    except InvalidOperation as error:
        raise InputsError(f"{text!r} is no amount.", "amount") from error
    if not amount.is_finite() or amount < 0:
        raise InputsError("An amount is a number from 0 on.", "amount")
    return amount


def make_feed(actor: Actor) -> str:
    """A new calendar address's token; shown once."""
    token = secrets.token_urlsafe(24)
    with transaction.atomic():
        CalendarFeed.objects.create(token_hash=feed_hash(token), made_by=actor.name)
        actor.record("calendar.made", actor.name)
    return token


def revoke_feeds(actor: Actor) -> int:
    """End every calendar address of the org; how many."""
    with transaction.atomic():
        ended = CalendarFeed.objects.filter(revoked_at=None).update(revoked_at=timezone.now())
        if ended:
            actor.record("calendar.revoked", str(ended))
    return ended


def feed_hash(token: str) -> str:
    """What is kept of a token."""
    return hashlib.sha256(token.encode()).hexdigest()
