"""Writes of the org's rules: adopting a rule set, amending a reason. Dated, audited, in force in whole hours.

Whether a change fits the rule sets that it meets is asked before it is written. History that it touches is folded
again; `manage.py refold --rules … --compare` says beforehand what that will change.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from django.db import transaction

from fleet.dated import read_book
from fleet.domain.rules import Rules, RulesError, versions
from fleet.domain.slots import HOUR_MS
from fleet.models import Amendment, DatedStamp, RuleAdoption, RuleVariant
from fleet.services_dated import DatedInvalid, check_reason, check_span, mark_dirty, set_withdrawn, touch_stamp
from fleet.services_incidents import Actor
from orgs.services import record

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def full_hour(at: datetime) -> datetime:
    """The first full hour at or after this instant: rules hold for whole hours."""
    floor = at.replace(minute=0, second=0, microsecond=0)
    return floor if floor == at else floor + timedelta(hours=1)


def amend_rule(
    actor: Actor,
    *,
    code: str,
    changes: Mapping[str, Any],
    reason: str,
    from_at: datetime,
    until_at: datetime | None = None,
) -> Amendment:
    """The org's own rule for one reason from a full hour on. Raises DatedInvalid, also for what no rule may say."""
    check_span(from_at, until_at)
    with transaction.atomic():
        _hold()
        row = Amendment(
            code=code[:64],
            changes=dict(changes),
            reason=check_reason(reason),
            from_at=full_hour(from_at),
            until_at=None if until_at is None else full_hour(until_at),
            author=actor.name[:254],
        )
        if row.until_at is not None and row.until_at <= row.from_at:
            raise DatedInvalid("until_at", "It holds for whole hours: its end lies in a later hour than its beginning.")
        row.save()
        _written("rules.amended", code, actor, {"id": row.pk, "changes": row.changes, "from": row.from_at.isoformat()})
        mark_dirty(None, row.from_at, row.until_at)
    return row


def end_amendment(row: Amendment, until_at: datetime, actor: Actor) -> bool:
    """Set the end of an amendment that has none. False if it has one. Raises DatedInvalid."""
    end = full_hour(until_at)
    check_span(row.from_at, end)
    with transaction.atomic():
        _hold()
        if not Amendment.objects.filter(pk=row.pk, until_at=None, withdrawn_at=None).update(until_at=end):
            return False
        _written("rules.amendment_ended", row.code, actor, {"id": row.pk, "until": end.isoformat()})
        mark_dirty(None, end)
    return True


def withdraw_amendment(row: Amendment, actor: Actor) -> bool:
    """Take an amendment back for all its hours. False if somebody did before. Raises DatedInvalid."""
    with transaction.atomic():
        _hold()
        if not set_withdrawn(row, actor):
            return False
        _written("rules.amendment_withdrawn", row.code, actor, {"id": row.pk})
        mark_dirty(None, row.from_at, row.until_at)
    return True


def adopt_rules(actor: Actor, *, version: str, reason: str, from_at: datetime) -> RuleAdoption:
    """Fold by this rule set from a full hour on. Raises DatedInvalid."""
    check_span(from_at)
    if version not in versions():
        raise DatedInvalid("version", f"One of {', '.join(versions())}.")
    with transaction.atomic():
        _hold()
        row = RuleAdoption.objects.create(
            version=version, from_at=full_hour(from_at), reason=check_reason(reason), author=actor.name[:254]
        )
        _written("rules.adopted", version, actor, {"id": row.pk, "from": row.from_at.isoformat()})
        mark_dirty(None, row.from_at)
    return row


def withdraw_adoption(row: RuleAdoption, actor: Actor) -> bool:
    """Take an adoption back. False if somebody did before. Raises DatedInvalid for the org's first rule set."""
    if row.from_at <= EPOCH:
        raise DatedInvalid("version", "The org's first rule set stays.")
    with transaction.atomic():
        _hold()
        if not set_withdrawn(row, actor):
            return False
        _written("rules.adoption_withdrawn", row.version, actor, {"id": row.pk})
        mark_dirty(None, row.from_at)
    return True


def _hold() -> None:
    """One change of rules at a time."""
    list(DatedStamp.objects.select_for_update())


def _written(action: str, target: str, actor: Actor, after: dict[str, Any]) -> None:
    """Check the rules as they are now, keep what each of their spans is called, write the audit entry."""
    book = read_book_checked()
    for at_ms in book.edges():
        rules, ids = _rules_at(book, at_ms), [one.pk for one in book.in_force(at_ms)]
        if ids:
            names = {"base": book.base(at_ms), "digest": rules.digest, "amendments": ids}
            RuleVariant.objects.get_or_create(version=rules.version, defaults=names)
    touch_stamp()
    record(action, actor=actor.name, org=actor.org, target=target[:256], after=after, address=actor.address)


def read_book_checked() -> Any:
    """The org's rules. Raises DatedInvalid where a row can't be."""
    try:
        return read_book()
    except RulesError as error:
        raise DatedInvalid("changes", str(error)) from error


def _rules_at(book: Any, at_ms: int) -> Rules:
    try:
        found: Rules = book.at(at_ms // HOUR_MS)
        return found
    except RulesError as error:
        raise DatedInvalid("changes", str(error)) from error
