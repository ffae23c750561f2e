"""Which rule set each org folds by, and adopting one for orgs: an org's own dated row, from a full hour on.

Hours before stay as they were folded, and so do reports and claims; an org can compare both rule sets before
(`manage.py refold --rules … --compare`).
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from django.db import connection
from django_tenants.utils import schema_context, tenant_context
from psycopg import sql

from fleet.domain.rules import LATEST, RuleChange, diff, load_rules, versions
from fleet.errors import FleetError
from fleet.services_dated import DatedInvalid
from fleet.services_incidents import Actor
from fleet.services_rules import adopt_rules
from orgs.models import Org
from orgs.schemas import ORGS_PER_STATEMENT

COLUMNS = ("slug", "name", "rule_set", "since", "next_rule_set", "next_from", "amendments")
_ROW = (
    "(select {id}::bigint, now_.version, now_.from_at, next_.version, next_.from_at,"
    " (select count(*) from {amendment} where withdrawn_at is null and from_at <= %(now)s"
    "   and (until_at is null or until_at > %(now)s))"
    " from (select 1) one"
    " left join lateral (select version, from_at from {adoption} where withdrawn_at is null and from_at <= %(now)s"
    "   order by from_at desc, id desc limit 1) now_ on true"
    " left join lateral (select version, from_at from {adoption} where withdrawn_at is null and from_at > %(now)s"
    "   order by from_at, id limit 1) next_ on true)"
)


@dataclass(frozen=True)
class Adopted:
    """An org's rule set now and the one to come; how many amendments of its own are in force."""

    org: Org
    version: str
    since: datetime | None
    next_version: str | None
    next_from: datetime | None
    amendments: int

    @property
    def is_latest(self) -> bool:
        """Whether it is on the newest rule set, or will be."""
        return (self.next_version or self.version) == LATEST

    def values(self) -> list[object]:
        """The row for a download, in the order of COLUMNS."""
        moments = [at and at.strftime("%Y-%m-%dT%H:%M:%SZ") for at in (self.since, self.next_from)]
        row = [self.org.slug, self.org.name, self.version, moments[0], self.next_version, moments[1], self.amendments]
        return list(row)


def list_adopted(now: datetime) -> list[Adopted]:
    """Every active org, those on an older rule set first; asked in statements of 200 orgs."""
    orgs = list(Org.objects.filter(status=Org.Status.ACTIVE))
    by_id = {org.pk: org for org in orgs}
    found: list[Adopted] = []
    for start in range(0, len(orgs), ORGS_PER_STATEMENT):
        branches = [
            sql.SQL(_ROW).format(
                id=org.pk,
                adoption=sql.Identifier(org.schema_name, "fleet_ruleadoption"),
                amendment=sql.Identifier(org.schema_name, "fleet_amendment"),
            )
            for org in orgs[start : start + ORGS_PER_STATEMENT]
        ]
        with connection.cursor() as cursor:
            cursor.execute(sql.SQL(" union all ").join(branches).as_string(cursor.connection), {"now": now})
            found += [Adopted(by_id[row[0]], row[1] or LATEST, *row[2:]) for row in cursor.fetchall()]
    return sorted(found, key=lambda one: (one.is_latest, one.version, one.org.slug))


def changes_to_latest(rows: list[Adopted]) -> list[tuple[str, tuple[RuleChange, ...]]]:
    """(older rule set that an org is on, what the newest says otherwise)."""
    older = sorted({row.version for row in rows if row.version != LATEST and row.version in versions()})
    return [(version, diff(load_rules(version), load_rules(LATEST))) for version in older]


def adopt_for(
    orgs: list[Org], *, version: str, reason: str, from_at: datetime, now: datetime, actor: str, address: str | None
) -> tuple[list[Org], list[tuple[Org, str]]]:
    """(orgs that fold by `version` from then on, those that refused and why): a transaction and an audit entry each.

    Raises DatedInvalid for an instant that is over: history is no business of the provider's.
    """
    if from_at < now:
        raise DatedInvalid("from_at", "A rule set is adopted for the future; hours that are over stay as they are.")
    done, refused = [], []
    for org in orgs:
        with schema_context("public"), tenant_context(org):
            try:
                adopt_rules(Actor(actor, org, address), version=version, reason=reason, from_at=from_at)
            except (DatedInvalid, FleetError) as error:
                refused.append((org, getattr(error, "detail", str(error))))
            else:
                done.append(org)
    return done, refused
