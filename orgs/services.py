"""Everything that writes people, orgs and keys: one function per use case, a transaction and an audit entry each."""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import datetime
from typing import Any

from django.conf import settings
from django.contrib.auth.password_validation import validate_password
from django.core.exceptions import ValidationError
from django.db import IntegrityError, connection, transaction
from django.utils import timezone
from django_tenants.utils import schema_context

from orgs import keys, links
from orgs.errors import KeyRefused, OrgInvalid
from orgs.models import ApiKey, AuditEntry, Membership, Org, OrgTombstone, User
from orgs.schemas import make_schema

SLUG = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,38}[a-z0-9])?")
RESERVED_SLUGS = frozenset({"new", "admin", "provider", "public", "static"})
SYSTEM = "system"
MAX_NAME_CHARS = 120
MAX_CLUSTER_CHARS = 256
MAX_CLUSTERS = 50  # of a restriction
MIN_LITERAL_CHARS = 16  # of a key that somebody chose, where others than this machine can try one


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


def create_org(slug: str, name: str = "", *, actor: str = SYSTEM, address: str | None = None) -> Org:
    """A new org with its own migrated schema.

    Raises OrgInvalid('invalid_slug', 'slug_taken' or 'invalid_name') → 422. A failure midway leaves neither a row nor
    a schema.
    """
    if not SLUG.fullmatch(slug) or slug in RESERVED_SLUGS:
        raise OrgInvalid("A slug has 1 to 40 lower-case letters, digits and hyphens, such as acme-ai.", "invalid_slug")
    if len(name) > MAX_NAME_CHARS:
        raise OrgInvalid(f"A name has at most {MAX_NAME_CHARS} characters.", "invalid_name")
    with schema_context("public"), transaction.atomic():
        with connection.cursor() as cursor:
            cursor.execute("select nextval(pg_get_serial_sequence('public.orgs_org', 'id'))")
            org_id = cursor.fetchone()[0]
        org = Org(id=org_id, schema_name=f"org_{org_id}", slug=slug, name=name or slug)
        try:
            with transaction.atomic():
                org.save(force_insert=True)
        except IntegrityError as error:
            raise OrgInvalid(f"There is an org {slug} already.", "slug_taken") from error
        make_schema(org)
        record("org.created", actor=actor, org=org, target=slug, after={"name": org.name}, address=address)
    return org


def delete_org(org: Org, *, actor: str, address: str | None = None) -> None:
    """Drop the org's schema and rows for good; a tombstone keeps its id and names."""
    with schema_context("public"), transaction.atomic():
        OrgTombstone.objects.create(org_id=org.pk, slug=org.slug, name=org.name)
        record("org.deleted", actor=actor, org=org, target=org.slug, address=address)
        org.delete(force_drop=True)
    keys.cache.clear()


def set_org_status(org: Org, status: str, *, actor: str, address: str | None = None) -> None:
    """Suspend or reactivate an org. Its keys follow within the life of the key cache."""
    with schema_context("public"), transaction.atomic():
        before = org.status
        if Org.objects.filter(pk=org.pk, status=before).update(status=status):
            record("org.status", actor=actor, org=org, target=org.slug, before=before, after=status, address=address)
    org.status = status
    keys.cache.clear()


def issue_key(
    org: Org,
    name: str,
    scopes: Iterable[str],
    *,
    actor: str,
    cluster: str = "",
    node: str = "",
    expires_at: datetime | None = None,
    literal: str | None = None,
    address: str | None = None,
) -> tuple[ApiKey, str]:
    """(key, token): the token is shown once and never stored. `literal` makes a given word a key (as devtoken).

    Raises OrgInvalid → 422: `invalid_scope`, `invalid_name`, `invalid_cluster`, and for a literal `invalid_literal`,
    `default_secret`, `weak_literal`, `key_taken`.
    """
    chosen = sorted(set(scopes))
    if not chosen or any(scope not in ApiKey.Scope.values for scope in chosen):
        raise OrgInvalid(f"Scopes are: {', '.join(ApiKey.Scope.values)}.", "invalid_scope")
    token, prefix = keys.new_token()
    if literal is not None:
        _check_literal(literal)
        token, prefix = literal, literal[:4]
    if not 0 < len(name) <= MAX_NAME_CHARS or "\x00" in name:
        raise OrgInvalid(f"Name the key, in at most {MAX_NAME_CHARS} characters.", "invalid_name")
    if len(cluster) > MAX_CLUSTER_CHARS or "\x00" in cluster:
        raise OrgInvalid(f"A cluster's name has at most {MAX_CLUSTER_CHARS} characters.", "invalid_cluster")
    key = ApiKey(
        org=org,
        name=name,
        prefix=prefix,
        secret_hash=keys.hash_of(token),
        scopes=chosen,
        cluster=cluster,
        node=node,
        created_by=actor,
        expires_at=expires_at,
    )
    after = {"name": name, "scopes": chosen, "cluster": cluster, "expires_at": expires_at and expires_at.isoformat()}
    if node:
        after["node"] = node
    try:
        with schema_context("public"), transaction.atomic():
            key.save(force_insert=True)
            record("key.created", actor=actor, org=org, target=prefix, after=after, address=address)
    except IntegrityError as error:
        raise OrgInvalid("This word was a key before. Choose another.", "key_taken") from error
    keys.cache.clear()  # a word that was tried before it became a key is remembered as unknown
    return key, token


def _check_literal(literal: str) -> None:
    """Raise OrgInvalid for a word that can't be sent as a key, or that anybody could guess."""
    try:
        keys.token_of(f"Bearer {literal}")
    except KeyRefused as error:
        raise OrgInvalid("A key is one word of at most 256 printable ASCII characters.", "invalid_literal") from error
    if keys.is_public_knowledge(literal):
        raise OrgInvalid(f"{literal} is public knowledge. Choose another word.", "default_secret")
    if len(literal) < MIN_LITERAL_CHARS and not settings.GOODPUT_EXPOSE.is_open:
        raise OrgInvalid(f"A chosen key has at least {MIN_LITERAL_CHARS} characters.", "weak_literal")


def revoke_key(key: ApiKey, *, actor: str, address: str | None = None) -> None:
    """Revoke a key; it stays listed and stops working within the life of the key cache."""
    with schema_context("public"), transaction.atomic():
        if ApiKey.objects.filter(pk=key.pk, revoked_at=None).update(revoked_at=timezone.now()):
            record("key.revoked", actor=actor, org=key.org, target=key.prefix, address=address)
    keys.cache.clear()


def create_user(
    email: str, *, actor: str, owner_of: Org | None = None, is_provider: bool = False, password: str | None = None
) -> User:
    """A person, found again by their address when they exist; made owner of an org or provider staff as asked.

    Raises OrgInvalid('invalid_email') → 422; ValidationError for a weak password.
    """
    if password is not None:
        validate_password(password, User(email=email))
    with schema_context("public"), transaction.atomic():
        user = User.objects.filter(email__iexact=email.strip()).first()
        if user is None:
            try:
                with transaction.atomic():
                    user = User.objects.create_user(email, password)
            except (ValidationError, IntegrityError) as error:
                user = User.objects.filter(email__iexact=email.strip()).first()  # made by somebody else just now
                if user is None:
                    raise OrgInvalid(f"{email!r} is not an e-mail address.", "invalid_email") from error
            else:
                record("user.created", actor=actor, org=owner_of, target=user.email)
        if is_provider and not user.is_staff:
            user.is_staff = user.is_superuser = True
            user.save(update_fields=["is_staff", "is_superuser"])
            record("user.made_provider", actor=actor, target=user.email)
        if owner_of is not None:
            set_role(user, owner_of, Membership.Role.OWNER, actor=actor)
    return user


def set_role(
    user: User, org: Org, role: str, *, actor: str, clusters: Iterable[str] | None = None, address: str | None = None
) -> Membership:
    """Give a person a role in an org, in place of the one they had; `clusters` None leaves their restriction alone.

    Raises OrgInvalid('invalid_role', 'invalid_clusters') and, where nobody would own the org any more,
    OrgInvalid('last_owner') → 422.
    """
    chosen = None if clusters is None else check_restriction(role, clusters)
    if role not in Membership.Role.values:
        raise OrgInvalid(f"Roles are: {', '.join(Membership.Role.values)}.", "invalid_role")
    with schema_context("public"), transaction.atomic():
        old = _lock_member(user, org)
        before = old.role if old else None
        if before == Membership.Role.OWNER != role:
            _keep_an_owner(user, org)
        if chosen is None:
            chosen = check_restriction(role, old.clusters if old else ())
        defaults = {"role": role, "clusters": chosen}
        membership, _ = Membership.objects.update_or_create(user=user, org=org, defaults=defaults)
        if before != role:
            record("member.role", actor=actor, org=org, target=user.email, before=before, after=role, address=address)
        if (was := old.clusters if old else []) != chosen:
            change: dict[str, Any] = {"before": was, "after": chosen}
            record("member.clusters", actor=actor, org=org, target=user.email, address=address, **change)
    return membership


def check_restriction(role: str, clusters: Iterable[str]) -> list[str]:
    """The clusters of a restriction, each once, sorted. Who may write sees all: a key of theirs would reach further.

    Raises OrgInvalid('invalid_clusters') → 422.
    """
    chosen = sorted({name.strip() for name in clusters} - {""})
    if any(len(name) > MAX_CLUSTER_CHARS or "\x00" in name for name in chosen) or len(chosen) > MAX_CLUSTERS:
        detail = f"At most {MAX_CLUSTERS} clusters, each name at most {MAX_CLUSTER_CHARS} characters."
        raise OrgInvalid(detail, "invalid_clusters")
    if chosen and role in (Membership.Role.OWNER, Membership.Role.ADMIN):
        detail = "An owner or admin sees every cluster. Restrict a viewer or a finance person."
        raise OrgInvalid(detail, "invalid_clusters")
    return chosen


def remove_member(user: User, org: Org, *, actor: str, address: str | None = None) -> None:
    """Take a person out of an org, from their next request on. Raises OrgInvalid('last_owner') → 422."""
    with schema_context("public"), transaction.atomic():
        old = _lock_member(user, org)
        if old and old.role == Membership.Role.OWNER:
            _keep_an_owner(user, org)
        if old and Membership.objects.filter(pk=old.pk).delete()[0]:
            record("member.removed", actor=actor, org=org, target=user.email, before=old.role, address=address)


def _lock_member(user: User, org: Org) -> Membership | None:
    """The person's membership; the org's row stays locked until the transaction's end, so that owners can't cross."""
    Org.objects.select_for_update(no_key=True).get(pk=org.pk)
    return Membership.objects.filter(user=user, org=org).first()


def _keep_an_owner(leaving: User, org: Org) -> None:
    owners = Membership.objects.filter(org=org, role=Membership.Role.OWNER, user__is_active=True)
    if not owners.exclude(user=leaving).exists():
        raise OrgInvalid("An org needs an owner. Make somebody else one first.", "last_owner")


def issue_link(user: User, base_url: str, *, actor: str) -> str:
    """A one-time link for this person on the server at `base_url`, with an audit entry."""
    with schema_context("public"):
        record("user.link", actor=actor, target=user.email)
    return links.make_link(user, base_url)


def use_link(uid: str, token: str, *, address: str | None = None) -> User | None:
    """The person whom this link lets in, once: it is dead afterwards. None when it already was."""
    with schema_context("public"), transaction.atomic():
        user = links.user_of(uid, token, lock=True)
        if user is not None:
            user.last_login = timezone.now()
            user.save(update_fields=["last_login"])
            record("user.login_by_link", actor=user.email, target=user.email, address=address)
    return user


def set_password(user: User, password: str, *, actor: str, address: str | None = None) -> None:
    """Set a person's password; their other sessions and open links end. Raises ValidationError for a weak one."""
    validate_password(password, user)
    with schema_context("public"), transaction.atomic():
        user.set_password(password)
        user.save(update_fields=["password"])
        record("user.password", actor=actor, target=user.email, address=address)
