"""Everything that writes people, orgs and keys: one function per use case, a transaction and an audit entry each."""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import datetime
from typing import Any

from django.core.exceptions import ValidationError
from django.db import connection, transaction
from django.utils import timezone
from django_tenants.utils import schema_context

from orgs import keys
from orgs.errors import OrgInvalid
from orgs.models import ApiKey, AuditEntry, Membership, Org, OrgTombstone, User

SLUG = re.compile(r"^[a-z0-9](?:[a-z0-9-]{0,38}[a-z0-9])?$")
RESERVED_SLUGS = frozenset({"new", "admin", "provider", "public", "static"})
SYSTEM = "system"


def record(
    action: str,
    *,
    actor: str,
    org: Org | None = None,
    target: str = "",
    before: Any = None,
    after: Any = None,
    address: str | None = None,
) -> AuditEntry:
    """Append one audit entry; call it inside the transaction of what it tells of."""
    return AuditEntry.objects.create(
        action=action,
        actor=actor,
        org_id=org.pk if org else None,
        org_slug=org.slug if org else "",
        target=target,
        before=before,
        after=after,
        address=address,
    )


def create_org(slug: str, name: str = "", *, actor: str = SYSTEM) -> Org:
    """A new org with its own migrated schema.

    Raises OrgInvalid('invalid_slug' or 'slug_taken') → 422. A failure midway leaves neither a row nor a schema.
    """
    if not SLUG.match(slug) or slug in RESERVED_SLUGS:
        raise OrgInvalid("A slug has 1 to 40 lower-case letters, digits and hyphens, such as acme-ai.", "invalid_slug")
    with schema_context("public"), transaction.atomic():
        if Org.objects.filter(slug=slug).exists():
            raise OrgInvalid(f"There is an org {slug} already.", "slug_taken")
        with connection.cursor() as cursor:
            cursor.execute("select nextval(pg_get_serial_sequence('public.orgs_org', 'id'))")
            org_id = cursor.fetchone()[0]
        org = Org(id=org_id, schema_name=f"org_{org_id}", slug=slug, name=name or slug)
        org.save(force_insert=True)
        org.create_schema(check_if_exists=False, verbosity=0)
        record("org.created", actor=actor, org=org, target=slug, after={"name": org.name})
    return org


def delete_org(org: Org, *, actor: str) -> None:
    """Drop the org's schema and rows for good; a tombstone keeps its id and names."""
    with schema_context("public"), transaction.atomic():
        OrgTombstone.objects.create(org_id=org.pk, slug=org.slug, name=org.name)
        record("org.deleted", actor=actor, org=org, target=org.slug)
        org.delete(force_drop=True)
    keys.cache.clear()


def set_org_status(org: Org, status: str, *, actor: str) -> None:
    """Suspend or reactivate an org. Its keys follow within the life of the key cache."""
    with schema_context("public"), transaction.atomic():
        before = org.status
        if Org.objects.filter(pk=org.pk, status=before).update(status=status):
            record("org.status", actor=actor, org=org, target=org.slug, before=before, after=status)
    org.status = status
    keys.cache.clear()


def issue_key(
    org: Org,
    name: str,
    scopes: Iterable[str],
    *,
    actor: str,
    cluster: str = "",
    expires_at: datetime | None = None,
    literal: str | None = None,
) -> tuple[ApiKey, str]:
    """(key, token): the token is shown once and never stored. `literal` makes a given word a key (as devtoken)."""
    chosen = sorted(set(scopes))
    if not chosen or any(scope not in ApiKey.Scope.values for scope in chosen):
        raise OrgInvalid(f"Scopes are: {', '.join(ApiKey.Scope.values)}.", "invalid_scope")
    token, prefix = keys.new_token()
    if literal is not None:
        token, prefix = literal, literal[:4]
    with schema_context("public"), transaction.atomic():
        key = ApiKey.objects.create(
            org=org,
            name=name,
            prefix=prefix,
            secret_hash=keys.hash_of(token),
            scopes=chosen,
            cluster=cluster,
            created_by=actor,
            expires_at=expires_at,
        )
        record("key.created", actor=actor, org=org, target=prefix, after={"name": name, "scopes": chosen})
    return key, token


def revoke_key(key: ApiKey, *, actor: str) -> None:
    """Revoke a key; it stays listed and stops working within the life of the key cache."""
    with schema_context("public"), transaction.atomic():
        if ApiKey.objects.filter(pk=key.pk, revoked_at=None).update(revoked_at=timezone.now()):
            record("key.revoked", actor=actor, org=key.org, target=key.prefix)
    keys.cache.clear()


def create_user(
    email: str, *, actor: str, owner_of: Org | None = None, is_provider: bool = False, password: str | None = None
) -> User:
    """A person, found again by their address when they exist; made owner of an org or provider staff as asked.

    Raises OrgInvalid('invalid_email') → 422.
    """
    with schema_context("public"), transaction.atomic():
        user = User.objects.filter(email__iexact=email.strip()).first()
        if user is None:
            try:
                user = User.objects.create_user(email, password)
            except ValidationError as error:
                raise OrgInvalid(f"{email!r} is not an e-mail address.", "invalid_email") from error
            record("user.created", actor=actor, org=owner_of, target=user.email)
        if is_provider and not user.is_staff:
            user.is_staff = user.is_superuser = True
            user.save(update_fields=["is_staff", "is_superuser"])
            record("user.made_provider", actor=actor, target=user.email)
        if owner_of is not None:
            set_role(user, owner_of, Membership.Role.OWNER, actor=actor)
    return user


def set_role(user: User, org: Org, role: str, *, actor: str) -> Membership:
    """Give a person a role in an org, in place of the one they had."""
    with schema_context("public"), transaction.atomic():
        before = Membership.objects.filter(user=user, org=org).values_list("role", flat=True).first()
        membership, _ = Membership.objects.update_or_create(user=user, org=org, defaults={"role": role})
        if before != role:
            record("member.role", actor=actor, org=org, target=user.email, before=before, after=role)
    return membership
