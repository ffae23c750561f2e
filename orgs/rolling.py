"""Rolling a key: a successor with the same rights, while the old one stays good for an overlap."""

from __future__ import annotations

from datetime import timedelta

from django.db import transaction
from django.utils import timezone
from django_tenants.utils import schema_context

from orgs import keys
from orgs.errors import OrgInvalid
from orgs.models import ApiKey
from orgs.services import issue_key, record

LONGEST_OVERLAP = timedelta(days=30)


def roll_key(key: ApiKey, overlap: timedelta, *, actor: str, address: str | None = None) -> tuple[ApiKey, str]:
    """(successor, its token). The old key ends after `overlap`, or when it would have ended anyway.

    A successor lives as long from now as the old key did from its beginning. Raises OrgInvalid('not_active',
    'invalid_overlap') → 422.
    """
    if not timedelta(0) <= overlap <= LONGEST_OVERLAP:
        raise OrgInvalid(f"An overlap is at most {LONGEST_OVERLAP.days} days.", "invalid_overlap")
    with schema_context("public"), transaction.atomic():
        now = timezone.now()
        old = ApiKey.objects.select_for_update().select_related("org").get(pk=key.pk)
        if old.state(now) != "active":
            raise OrgInvalid("Only an active key can be rolled. Create a new one.", "not_active")
        expires_at = now + (old.expires_at - old.created_at) if old.expires_at else None
        successor, token = issue_key(
            old.org,
            old.name,
            old.scopes,
            actor=actor,
            cluster=old.cluster,
            node=old.node,
            expires_at=expires_at,
            address=address,
        )
        ends_at = min(filter(None, (now + overlap, old.expires_at)))
        ApiKey.objects.filter(pk=old.pk).update(expires_at=ends_at, successor=successor.prefix)
        record(
            "key.rolled",
            actor=actor,
            org=old.org,
            target=old.prefix,
            after={"successor": successor.prefix, "ends_at": ends_at.isoformat()},
            address=address,
        )
    keys.cache.clear()
    return successor, token
