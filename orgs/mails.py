"""Mail of this app: invitations, links to a new password. What can't go now is tried again; errors stand beside it."""

from __future__ import annotations

import logging

from allauth.account.forms import EmailAwarePasswordResetTokenGenerator
from allauth.account.utils import user_pk_to_url_str
from django.core.mail import EmailMessage
from django.template.loader import render_to_string
from django.urls import reverse
from django.utils import timezone
from django_tenants.utils import schema_context

from orgs.invitations import link_of, mail_is_configured
from orgs.models import Invitation, Org, User
from orgs.services import SYSTEM, record

log = logging.getLogger(__name__)
MOST_ATTEMPTS = 5
MOST_AT_ONCE = 50


def send_invitation(invitation: Invitation) -> bool:
    """Hand one invitation to the mail server; the outcome is kept in its row. True if it went."""
    context = {"invitation": invitation, "org": invitation.org, "link": link_of(invitation)}
    subject = " ".join(f"Join {invitation.org.name} on Goodput".split())  # one line, whatever the name holds
    text = render_to_string("orgs/mail/invitation.txt", context)
    row = Invitation.objects.filter(pk=invitation.pk)
    try:
        EmailMessage(subject, text, to=[invitation.email]).send()
    except Exception as error:  # a mail server fails in many ways; none may fail the request or the other mails
        log.warning("invitation %s can't be sent: %s", invitation.pk, error)
        row.update(mail_attempts=invitation.mail_attempts + 1, mail_error=f"{type(error).__name__}: {error}"[:300])
        return False
    row.update(sent_at=timezone.now(), mail_error="")
    return True


def send_reset(email: str, base_url: str) -> bool:
    """Mail a link to a new password to whose address this is. False, and nothing happens, where there is nobody."""
    user = User.objects.filter(email__iexact=email.strip(), is_active=True).first()
    if user is None or not mail_is_configured():
        return False
    with schema_context("public"):
        record("user.reset_link", actor=SYSTEM, target=user.email)
    key = EmailAwarePasswordResetTokenGenerator().make_token(user)
    path = reverse("account_reset_password_from_key", kwargs={"uidb36": user_pk_to_url_str(user), "key": key})
    text = render_to_string("orgs/mail/reset.txt", {"link": base_url.rstrip("/") + path})
    EmailMessage("A new password for Goodput", text, to=[user.email]).send()
    return True


def send_waiting() -> int:
    """Send the open invitations that no mail server took yet; the number sent."""
    if not mail_is_configured():
        return 0
    with schema_context("public"):
        waiting = Invitation.objects.select_related("org").filter(
            org__status=Org.Status.ACTIVE,
            sent_at=None,
            accepted_at=None,
            revoked_at=None,
            expires_at__gt=timezone.now(),
            mail_attempts__lt=MOST_ATTEMPTS,
        )
        return sum(send_invitation(invitation) for invitation in waiting[:MOST_AT_ONCE])
