"""The daily checkpoint by mail: to the provider's notice address, with finance in copy."""

from __future__ import annotations

from datetime import datetime

from django.core.mail import EmailMessage
from django.template.loader import render_to_string

from claims.errors import AnchorError
from claims.models import AnchorPlan, SignedCheckpoint
from fleet.log_key import load_key
from orgs.invitations import mail_is_configured
from orgs.models import Org


def send_checkpoint(org: Org, plan: AnchorPlan, checkpoint: SignedCheckpoint, now: datetime) -> tuple[bytes, str]:
    """(the mail as it was handed over, to whom). Raises AnchorError where the mail server did not take it."""
    if not mail_is_configured():
        raise AnchorError("Mail is not set up on this server: GOODPUT_EMAIL_URL.")
    context = {"org": org, "checkpoint": checkpoint, "verifier": load_key().verifier(), "now": now}
    text = render_to_string("claims/mail/checkpoint.txt", context)
    subject = " ".join(f"Checkpoint {checkpoint.size} of the evidence log of {org.name}".split())
    mail = EmailMessage(subject, text, to=[plan.notice_address], cc=[one for one in [plan.finance_address] if one])
    try:
        mail.send()
    except Exception as error:  # a mail server fails in many ways; each of them means: try again later
        raise AnchorError(f"The mail server did not take it: {type(error).__name__}: {error}") from error
    return mail.message().as_bytes(), plan.notice_address
