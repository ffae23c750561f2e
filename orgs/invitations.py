"""Invitations: a link that lets one address join one org, once, within a week.

A link is `<id>-<HMAC of id, nonce, address>` under the server's secret: a copy of the database opens nothing, and a
mail that failed can be written again. Inviting gives one answer whether the address has an account or not; only who
holds the link and tries to join learns that.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterable

from django.conf import settings
from django.contrib.auth.password_validation import validate_password
from django.core.exceptions import ValidationError
from django.core.validators import validate_email
from django.db import IntegrityError, transaction
from django.urls import reverse
from django.utils import timezone
from django.utils.crypto import constant_time_compare, salted_hmac
from django_tenants.utils import schema_context

from orgs.errors import InvitationOver, NotAllowed, OrgInvalid
from orgs.models import Invitation, Membership, Org, User
from orgs.services import check_restriction, record, set_role

TOKEN = re.compile(r"([1-9]\d{0,17})-([0-9a-f]{64})")
OVER = "This invitation is over: it was used, withdrawn, sent again, or is older than a week."
MOST_OPEN = 200  # invitations of an org that may be open at once


def token_of(invitation: Invitation) -> str:
    """What the link carries."""
    value = f"{invitation.pk}:{invitation.nonce}:{invitation.email.lower()}"
    return f"{invitation.pk}-{salted_hmac('goodput.orgs.invitation', value, algorithm='sha256').hexdigest()}"


def link_of(invitation: Invitation) -> str:
    """The address that lets the person in."""
    return invitation.base_url.rstrip("/") + reverse("invitation", args=[token_of(invitation)])


def invite(
    org: Org,
    email: str,
    role: str,
    *,
    actor: str,
    base_url: str,
    clusters: Iterable[str] = (),
    address: str | None = None,
) -> Invitation:
    """An open invitation, to be sent. One answer whether the address is known here or not.

    Raises OrgInvalid('invalid_email', 'invalid_role', 'invalid_clusters', 'is_member', 'is_invited', 'too_many') → 422.
    """
    email = email.strip()
    try:
        validate_email(email)
    except ValidationError as error:
        raise OrgInvalid("This is not an e-mail address.", "invalid_email") from error
    if role not in Membership.Role.values:
        raise OrgInvalid(f"Roles are: {', '.join(Membership.Role.values)}.", "invalid_role")
    chosen = check_restriction(role, clusters)
    now = timezone.now()
    with schema_context("public"), transaction.atomic():
        Org.objects.select_for_update(no_key=True).get(pk=org.pk)
        if Membership.objects.filter(org=org, user__email__iexact=email).exists():
            raise OrgInvalid(f"{email} is a member already.", "is_member")
        waiting = Invitation.objects.filter(org=org, accepted_at=None, revoked_at=None)
        waiting.filter(expires_at__lte=now, email__iexact=email).update(revoked_at=now)  # over anyway; makes room
        if waiting.filter(expires_at__gt=now).count() >= MOST_OPEN:
            raise OrgInvalid(f"{MOST_OPEN} invitations are open. Withdraw some first.", "too_many")
        try:
            with transaction.atomic():
                invitation = Invitation.objects.create(
                    org=org,
                    email=email,
                    role=role,
                    clusters=chosen,
                    nonce=secrets.token_hex(16),
                    base_url=base_url,
                    created_by=actor,
                    expires_at=now + Invitation.LIVES,
                )
        except IntegrityError as error:
            raise OrgInvalid(f"{email} is invited already. Send it again instead.", "is_invited") from error
        after = {"role": role, "clusters": chosen}
        record("invitation.created", actor=actor, org=org, target=email, after=after, address=address)
    return invitation


def renew(invitation: Invitation, *, actor: str, base_url: str, address: str | None = None) -> Invitation:
    """The invitation with a new link and a new week; the old link ends. Raises InvitationOver → 410."""
    with schema_context("public"), transaction.atomic():
        changed = Invitation.objects.filter(pk=invitation.pk, accepted_at=None, revoked_at=None).update(
            nonce=secrets.token_hex(16),
            base_url=base_url,
            expires_at=timezone.now() + Invitation.LIVES,
            sent_at=None,
            mail_attempts=0,
            mail_error="",
        )
        if not changed:
            raise InvitationOver(OVER)
        record("invitation.resent", actor=actor, org=invitation.org, target=invitation.email, address=address)
    invitation.refresh_from_db()
    return invitation


def revoke(invitation: Invitation, *, actor: str, address: str | None = None) -> None:
    """Withdraw an open invitation; its link ends at once."""
    with schema_context("public"), transaction.atomic():
        waiting = Invitation.objects.filter(pk=invitation.pk, accepted_at=None, revoked_at=None)
        if waiting.update(revoked_at=timezone.now()):
            record("invitation.revoked", actor=actor, org=invitation.org, target=invitation.email, address=address)


def find(token: str, *, lock: bool = False) -> Invitation:
    """The open invitation of a link, of an active org. Raises InvitationOver → 410."""
    match = TOKEN.fullmatch(token)
    rows = Invitation.objects.select_related("org")
    if lock:
        rows = rows.select_for_update(of=("self",))
    invitation = rows.filter(pk=int(match[1])).first() if match else None
    if (
        invitation is None
        or not constant_time_compare(token_of(invitation), token)
        or invitation.state(timezone.now()) != "open"
        or invitation.org.status != Org.Status.ACTIVE
    ):
        raise InvitationOver(OVER)
    return invitation


def accept(
    token: str, *, user: User | None = None, password: str | None = None, name: str = "", address: str | None = None
) -> tuple[User, Org]:
    """Join: as the signed-in person to whom it was sent, or as a new person who chooses a password here.

    Raises InvitationOver → 410; NotAllowed('other_person', 'sign_in') → 403; ValidationError for a weak password.
    """
    with schema_context("public"), transaction.atomic():
        invitation = find(token, lock=True)
        if user is None:
            user = _new_person(invitation.email, password or "", name, invitation.org, address)
        elif user.email.lower() != invitation.email.lower():
            raise NotAllowed(f"This invitation is for {invitation.email}. Sign out first.", "other_person")
        Invitation.objects.filter(pk=invitation.pk).update(accepted_at=timezone.now())
        if not Membership.objects.filter(user=user, org=invitation.org).exists():  # a role given since then stays
            set_role(user, invitation.org, invitation.role, actor=user.email, clusters=invitation.clusters)
        after = {"invited_by": invitation.created_by, "role": invitation.role}
        record(
            "invitation.accepted",
            actor=user.email,
            org=invitation.org,
            target=user.email,
            after=after,
            address=address,
        )
    return user, invitation.org


def _new_person(email: str, password: str, name: str, org: Org, address: str | None) -> User:
    """An account for an address that has none. Whoever has one must prove it by signing in."""
    validate_password(password, User(email=email, name=name))
    try:
        with transaction.atomic():
            person = User.objects.create_user(email, password, name=name)
    except (ValidationError, IntegrityError) as error:
        raise NotAllowed(f"Sign in as {email} to accept.", "sign_in") from error
    record("user.created", actor=email, org=org, target=person.email, address=address)
    return person


def mail_is_configured() -> bool:
    """Whether messages leave this machine; else the link is shown to whoever invites."""
    return not any(kind in settings.EMAIL_BACKEND for kind in (".console.", ".dummy."))
