"""How often a password may be guessed: counted in the database, so that a lost cache neither opens nor shuts the door.

Two limits within a quarter of an hour: one per sender, and a wider one per account against guesses from many places.
The wider one can be used to keep a person out for a while; a one-time link still lets them in.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from django.db.models import Q
from django.utils import timezone
from django.utils.crypto import salted_hmac

from orgs.addresses import sender_of
from orgs.errors import TooManyAttempts
from orgs.models import LoginAttempt

WINDOW = timedelta(minutes=15)
PER_SENDER = 20
PER_ACCOUNT = 50  # 4,800 guesses a day, against passwords of ten characters and more


@dataclass(frozen=True)
class Attempt:
    """One try at a password, counted before the password is looked at."""

    sender: str
    account: str

    def succeeded(self) -> None:
        """Forget this sender's tries at this account; those at other accounts and of other senders still count."""
        LoginAttempt.objects.filter(sender=self.sender, account=self.account).delete()


def begin(address: str | None, email: str) -> Attempt:
    """Count one try from `address` at `email`. Raises TooManyAttempts → 429; a refused try is not counted."""
    attempt = Attempt(sender_of(address), _account(email))
    now = timezone.now()
    LoginAttempt.objects.filter(at__lt=now - WINDOW).delete()
    for mine, limit in ((Q(sender=attempt.sender), PER_SENDER), (Q(account=attempt.account), PER_ACCOUNT)):
        latest = list(LoginAttempt.objects.filter(mine).order_by("-at").values_list("at", flat=True)[:limit])
        if len(latest) >= limit:
            raise TooManyAttempts(latest[-1] + WINDOW - now)
    LoginAttempt.objects.create(sender=attempt.sender, account=attempt.account, at=now)
    return attempt


def _account(email: str) -> str:
    """A name for the account that tells nothing: people type passwords into the wrong field."""
    return salted_hmac("goodput.orgs.attempts", email.strip().lower(), algorithm="sha256").hexdigest()
