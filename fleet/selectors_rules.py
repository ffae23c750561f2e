"""Reads of the org's rules: what is in force, what a row's version names, what two rule sets say otherwise."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.utils import timezone

from fleet.dated import amended_of, get_org_dated, hour_at, ms_of
from fleet.domain.rules import RuleChange, Rules, RulesError, amend, base_version, diff, load_rules
from fleet.models import Amendment, RuleAdoption, RuleVariant


@dataclass(frozen=True)
class FoundRules:
    """A rule set with the amendments in it. `is_found` False: the version asked for is not here, this is the newest."""

    rules: Rules
    amendments: tuple[Amendment, ...]
    is_found: bool = True

    def of(self, code: str) -> tuple[Amendment, ...]:
        """The amendments of one reason."""
        return tuple(one for one in self.amendments if one.code == code)


def find_rules(version: str) -> FoundRules:
    """What a node hour's `rules` names; the newest, marked as not found, where it is not here any more."""
    try:
        base = load_rules(base_version(version))
    except RulesError:
        return FoundRules(load_rules(), (), not version)
    if base.version == version:
        return FoundRules(base, ())
    variant = RuleVariant.objects.filter(version=version).first()
    rows = {row.pk: row for row in Amendment.objects.filter(pk__in=variant.amendments)} if variant else {}
    if variant is None or len(rows) < len(variant.amendments):
        return FoundRules(base, (), False)
    chosen = tuple(rows[pk] for pk in variant.amendments)
    return FoundRules(amend(base, [amended_of(row).one for row in chosen]), chosen)


def rules_now(now: datetime | None = None) -> Rules:
    """The rule set in force in the current org."""
    return get_org_dated().book.at(hour_at(now or timezone.now()))


@dataclass(frozen=True)
class AmendmentLine:
    """An amendment as a page shows it: each changed key with what the rule set says and what the org says."""

    row: Amendment
    title: str
    keys: tuple[tuple[str, Any, Any], ...]
    state: str  # in force, to come, ended, withdrawn


@dataclass(frozen=True)
class RulesPage:
    """The org's rules: the version in force, adoptions and amendments, newest first."""

    rules: Rules
    base: str
    adoptions: tuple[tuple[RuleAdoption, str], ...]
    amendments: tuple[AmendmentLine, ...]


def get_rules_page(now: datetime) -> RulesPage:
    """What the settings show."""
    book = get_org_dated().book
    at_ms = ms_of(now)
    base = load_rules(book.base(at_ms))
    lines = [_line(row, base, now) for row in Amendment.objects.order_by("-pk")]
    adoptions = list(RuleAdoption.objects.order_by("-from_at", "-pk"))
    in_force = next((row.pk for row in adoptions if row.withdrawn_at is None and row.from_at <= now), None)
    return RulesPage(
        book.at(hour_at(now)),
        base.version,
        tuple((row, _adopted(row, in_force, now)) for row in adoptions),
        tuple(lines),
    )


def _adopted(row: RuleAdoption, in_force: int | None, now: datetime) -> str:
    if row.withdrawn_at is not None:
        return "withdrawn"
    if row.pk == in_force:
        return "in force"
    return "to come" if row.from_at > now else "replaced"


def _line(row: Amendment, base: Rules, now: datetime) -> AmendmentLine:
    reason = base.reasons.get(row.code)
    keys = tuple((key, getattr(reason, key, None), value) for key, value in sorted(row.changes.items()))
    return AmendmentLine(row, reason.title if reason else row.code, keys, state_of(row, now))


def state_of(row: Amendment, now: datetime) -> str:
    """`withdrawn`, `to come`, `ended` or `in force`."""
    if row.withdrawn_at is not None:
        return "withdrawn"
    if row.from_at > now:
        return "to come"
    return "ended" if row.until_at is not None and row.until_at <= now else "in force"


def get_difference(old: str, new: str) -> tuple[RuleChange, ...]:
    """What two versions that are here say otherwise. Raises RulesError for one that is not."""
    return diff(load_rules(old), load_rules(new))
