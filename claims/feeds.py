"""The door of calendar programs: they have no session, so the address itself is the secret."""

from __future__ import annotations

from datetime import datetime

from django_tenants.utils import schema_context, tenant_context

from claims.ics import calendar
from claims.models import CalendarFeed
from claims.selectors import deadline_board
from claims.services import feed_hash
from orgs.models import Org


def feed_text(org_id: int, token: str, now: datetime) -> str | None:
    """The calendar of this org, for a token that was made there and not revoked; None for anything else."""
    if org_id >= 2**63:
        return None
    with schema_context("public"):
        org = Org.objects.filter(pk=org_id, status=Org.Status.ACTIVE).first()
    if org is None:
        return None
    with tenant_context(org):
        if not CalendarFeed.objects.filter(token_hash=feed_hash(token), revoked_at=None).exists():
            return None
        return calendar(org.slug, deadline_board(now), now)
