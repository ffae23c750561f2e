"""What pages and the API read of people, keys and the audit trail."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from django.conf import settings
from django.db.models import Q, QuerySet
from django.utils import timezone
from django.utils.module_loading import import_string

from orgs.models import ApiKey, AuditEntry, Invitation, Membership, Org

PAGE = 50
MOST_ROWS = 50_000  # of a download
SOON = timedelta(days=14)
LISTED_INVITATIONS = 50  # that are over
ACTIONS = {
    "cluster.demo_removed": "removed the demo cluster",
    "invitation.accepted": "accepted an invitation",
    "invitation.created": "invited",
    "invitation.resent": "sent an invitation again",
    "invitation.revoked": "withdrew an invitation",
    "key.created": "created key",
    "key.revoked": "revoked key",
    "key.rolled": "rolled key",
    "member.clusters": "changed the clusters of",
    "member.removed": "removed",
    "member.role": "changed the role of",
    "org.keys_revoked": "revoked every key of",
    "org.created": "created the org",
    "org.deleted": "deleted the org",
    "org.exported": "exported the org",
    "org.export_read": "downloaded an export",
    "org.status": "changed the org's status",
    "org.view_began": "began to view as customer",
    "org.view_ended": "ended viewing as customer",
    "batches.retried": "sent failed batches to the fold again",
    "task.retried": "sent a failed task again:",
    "rules.adopted": "adopted rule set",
    "user.address": "changed the address to",
    "user.address_asked": "asked for another address of",
    "user.created": "made an account for",
    "user.link": "made a one-time link for",
    "user.login": "signed in",
    "user.login_by_link": "signed in by a link",
    "user.made_provider": "made provider staff:",
    "user.reset_link": "mailed a link to a new password to",
    "user.second_factor_added": "added a second factor to",
    "user.second_factor_removed": "removed a second factor of",
    "user.second_factor_reset": "took the second factors from",
    "user.second_factor_wrong": "tried a wrong code of",
    "user.sso_connected": "connected single sign-on to",
    "user.sso_disconnected": "disconnected single sign-on from",
    "user.password": "set the password of",
}
AUDIT_HEAD = ("at", "org", "actor", "action", "target", "before", "after", "address")


def list_members(org: Org) -> list[Membership]:
    """Members, owners first."""
    order = {role: number for number, role in enumerate(Membership.Role.values)}
    rows = Membership.objects.filter(org=org).select_related("user")
    return sorted(rows, key=lambda one: (order.get(one.role, 9), one.user.email.lower()))


def list_invitations(org: Org) -> list[Invitation]:
    """Open ones first, then the latest of those that are over."""
    now = timezone.now()
    rows = Invitation.objects.filter(org=org).select_related("org")
    waiting = list(rows.filter(accepted_at=None, revoked_at=None, expires_at__gt=now))
    over = rows.exclude(pk__in=[one.pk for one in waiting])[:LISTED_INVITATIONS]
    return [*waiting, *over]


def list_keys(org: Org) -> list[ApiKey]:
    """Keys that work first, each group newest first; expired and revoked ones stay.

    Not the keys that nodes got by enrolment: there are as many as nodes, and they stand with their agents.
    """
    now = timezone.now()
    order = {"active": 0, "rolled": 1, "expired": 2, "revoked": 3}
    return sorted(
        ApiKey.objects.filter(org=org, node=""), key=lambda key: (order[key.state(now)], -key.created_at.timestamp())
    )


def keys_expiring(org: Org, now: datetime) -> int:
    """Keys that still work and end within two weeks, unless a successor took their place."""
    return ApiKey.objects.filter(
        org=org, node="", revoked_at=None, successor="", expires_at__gt=now, expires_at__lt=now + SOON
    ).count()


def cluster_names(org: Org) -> list[str]:
    """Names of the org's clusters, for choosing; asked of the app that `GOODPUT_CLUSTER_NAMES` names."""
    ask = getattr(settings, "GOODPUT_CLUSTER_NAMES", "")
    return list(import_string(ask)(org)) if ask else []


@dataclass(frozen=True)
class AuditFilter:
    """What of the trail is asked for; `before` is the id below which a page begins."""

    text: str = ""
    action: str = ""
    org: str = ""
    since: datetime | None = None
    until: datetime | None = None
    before: int | None = None

    @classmethod
    def of(cls, query: Mapping[str, Any]) -> AuditFilter:
        """From a URL; what means nothing is left out."""
        before = str(query.get("before", ""))
        action = str(query.get("action", ""))
        return cls(
            text=str(query.get("q", "")).replace("\x00", "").strip()[:120],
            action=action if re.fullmatch(r"[a-z_.]{1,64}", action) else "",
            org=str(query.get("org", ""))[:40].replace("\x00", ""),
            since=_day(query.get("from")),
            until=_day(query.get("to")),
            before=int(before) if re.fullmatch(r"[1-9]\d{0,17}", before) else None,
        )

    @property
    def is_narrow(self) -> bool:
        """Whether anything but the page is asked for."""
        return bool(self.text or self.action or self.org or self.since or self.until)


def _day(text: Any) -> datetime | None:
    try:
        return datetime.strptime(str(text or ""), "%Y-%m-%d").replace(tzinfo=UTC)
    except ValueError:
        return None


def audit_entries(org: Org | None, wanted: AuditFilter) -> QuerySet[AuditEntry]:
    """Entries of one org, or of all for the provider (None), newest first."""
    rows = AuditEntry.objects.order_by("-id")
    if org is not None:
        rows = rows.filter(org_id=org.pk)
    elif wanted.org:
        rows = rows.filter(org_slug=wanted.org)
    if wanted.text:
        rows = rows.filter(Q(actor__icontains=wanted.text) | Q(target__icontains=wanted.text))
    if wanted.action:
        rows = rows.filter(action__startswith=wanted.action)
    if wanted.since:
        rows = rows.filter(at__gte=wanted.since)
    if wanted.until:
        rows = rows.filter(at__lt=wanted.until + timedelta(days=1))
    return rows.filter(id__lt=wanted.before) if wanted.before else rows


def audit_page(org: Org | None, wanted: AuditFilter) -> tuple[list[AuditEntry], int | None]:
    """(a page, the `before` of the next one or None). Each entry carries `words`, its action in words."""
    rows = list(audit_entries(org, wanted)[: PAGE + 1])
    page = rows[:PAGE]
    for entry in page:
        entry.words = ACTIONS.get(entry.action, entry.action)  # type: ignore[attr-defined]
    return page, page[-1].pk if len(rows) > PAGE else None


def audit_rows(org: Org | None, wanted: AuditFilter) -> Iterator[tuple[Any, ...]]:
    """The same entries for a download."""
    for entry in audit_entries(org, wanted)[:MOST_ROWS]:
        yield (
            entry.at.strftime("%Y-%m-%dT%H:%M:%SZ"),
            entry.org_slug,
            entry.actor,
            entry.action,
            entry.target,
            "" if entry.before is None else json.dumps(entry.before, ensure_ascii=False),
            "" if entry.after is None else json.dumps(entry.after, ensure_ascii=False),
            entry.address or "",
        )


def action_groups() -> list[tuple[str, str]]:
    """Prefixes to filter by, with a word each."""
    return [
        ("member.", "members"),
        ("invitation.", "invitations"),
        ("key.", "keys"),
        ("user.", "sign-in and accounts"),
        ("org.", "the org itself"),
        ("incident.", "incidents"),
        ("review.", "what asks for a look"),
        ("claim.", "claims"),
    ]
