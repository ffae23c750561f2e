"""Mail of this app: invitations. What can't be sent now is tried again, and what went wrong stands beside it."""

from __future__ import annotations

import logging

from django.core.mail import EmailMessage
from django.template.loader import render_to_string
from django.utils import timezone
from django_tenants.utils import schema_context

from orgs.invitations import link_of, mail_is_configured
from orgs.models import Invitation, Org, User
from orgs.services import SYSTEM, issue_link

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


def send_link(email: str, base_url: str) -> bool:
    """Mail a one-time link to the person with this address. False, and nothing happens, where there is none."""
    user = User.objects.filter(email__iexact=email.strip(), is_active=True).first()
    if user is None or not mail_is_configured():
        return False
    context = {"link": issue_link(user, base_url, actor=SYSTEM)}
    EmailMessage("Your link to Goodput", render_to_string("orgs/mail/link.txt", context), to=[user.email]).send()
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
