"""Where we differ from django-allauth: limits in the database, the audit trail, invitations instead of sign-up.

The library does the rest: login, password reset, second factors, passkeys, sessions, single sign-on.
"""

from __future__ import annotations

import base64
import hashlib
import logging
import secrets
from typing import Any

from allauth.account.adapter import DefaultAccountAdapter
from allauth.account.internal.flows.login import get_authentication_records
from allauth.account.utils import user_email
from allauth.core import context
from allauth.mfa.adapter import DefaultMFAAdapter
from allauth.mfa.models import Authenticator
from allauth.socialaccount.adapter import DefaultSocialAccountAdapter
from cryptography.fernet import Fernet, InvalidToken
from django.conf import settings
from django.core.exceptions import ValidationError
from django.db import transaction
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.template.loader import render_to_string
from django.urls import reverse
from django.utils import timezone
from kombu.exceptions import OperationalError

from orgs import attempts
from orgs.addresses import client_address
from orgs.errors import TooManyAttempts
from orgs.invitations import mail_is_configured
from orgs.models import Invitation, Org, User
from orgs.services import record, set_password

log = logging.getLogger(__name__)
UNKNOWN_ADDRESS = "::"  # of a session that came through a Unix socket
WRONG_PAIR = "This address and password do not belong together."


class AccountAdapter(DefaultAccountAdapter):
    """Passwords, logins and notices."""

    error_messages = {
        **DefaultAccountAdapter.error_messages,
        "email_password_mismatch": WRONG_PAIR,
        "too_many_login_attempts": "Too many tries. Wait five minutes.",
    }

    def is_open_for_signup(self, request: HttpRequest) -> bool:
        """Never: people are invited."""
        return False

    def get_client_ip(self, request: HttpRequest) -> str:
        """The sender, through trusted proxies only."""
        return client_address(request.META) or UNKNOWN_ADDRESS

    def pre_authenticate(self, request: HttpRequest, **credentials: Any) -> None:
        """Count the try before the password is looked at. Raises ValidationError('too_many_attempts')."""
        try:
            self._attempt = attempts.begin(client_address(request.META), str(credentials.get("email", "")))
        except TooManyAttempts as error:
            wait = {"seconds": error.wait_seconds}
            raise ValidationError(error.detail, code=error.code, params=wait) from error

    def authenticate(self, request: HttpRequest, **credentials: Any) -> Any:
        """The active person with this address and password, else None: one answer for wrong, unknown and inactive."""
        user = super().authenticate(request, **credentials)
        if user is None or not user.is_active:
            return None
        self._attempt.succeeded()
        return user

    def reauthenticate(self, user: Any, password: str) -> bool:
        """Whether this is the person's password; counted like a login."""
        found = self.authenticate(context.request, email=user.email, password=password)
        return found is not None and found.pk == user.pk

    def is_reauthentication_required(self, *, app: str = "", **_: Any) -> bool:
        """Not within half an hour of a login, nor of somebody who has nothing to prove themselves by."""
        request = context.request
        if not self.get_reauthentication_methods(request.user):
            return False
        records = get_authentication_records(request, request.user)
        latest = max((one["at"] for one in records), default=0)
        return bool(timezone.now().timestamp() - latest >= settings.ACCOUNT_REAUTHENTICATION_TIMEOUT)

    def login(self, request: HttpRequest, user: Any) -> None:
        """Enter, with an audit entry in the same transaction that says by what."""
        ways = [one.get("type") or one["method"] for one in get_authentication_records(request, user)]
        with transaction.atomic():
            if ways != ["link"]:  # whose use stands in the trail already
                who = {"actor": user.email, "target": user.email, "address": client_address(request.META)}
                record("user.login", after={"by": ways or ["password"]}, **who)
            super().login(request, user)

    def set_password(self, user: Any, password: str) -> None:
        """As `services.set_password`: with an audit entry."""
        request = context.request
        set_password(user, password, actor=user.email, address=client_address(request.META))

    def get_password_change_redirect_url(self, request: HttpRequest) -> str:
        """To the start page."""
        return reverse("home")

    def respond_user_inactive(self, request: HttpRequest, user: Any) -> HttpResponse:
        """The login page: that an account is shut is nobody's business."""
        return redirect("login")

    def send_notification_mail(
        self, template_prefix: str, user: Any, context: Any = None, email: str | None = None
    ) -> None:
        """Tell somebody what changed about their account, where mail is configured."""
        if mail_is_configured():
            told = {
                "timestamp": timezone.now(),
                "ip": self.get_client_ip(self.request),
                "user_agent": self.get_http_user_agent(self.request)[:200],
                **(context or {}),
            }
            self.send_mail(template_prefix, email or user.email, told)

    def send_mail(self, template_prefix: str, email: str, context: dict[str, Any]) -> None:
        """Queue a mail. A worker sends it, so that neither a slow mail server nor a lost one holds up the page."""
        from orgs.tasks import mail_notice

        subject = " ".join(render_to_string(f"{template_prefix}_subject.txt", context).split())
        text = render_to_string(f"{template_prefix}_message.txt", context, request=self.request)
        try:
            mail_notice.apply_async(args=[email, subject, text], expires=86400, retry=False)
        except OperationalError as error:
            log.warning("a notice to %s can't be queued: %s", email, error)


class MfaAdapter(DefaultMFAAdapter):
    """Second factors; their secrets are kept under the server's own, so that a copy of the database opens nothing."""

    def encrypt(self, text: str) -> str:
        """`text` under a key made of the server's secret."""
        return _vault().encrypt(text.encode()).decode()

    def decrypt(self, encrypted_text: str) -> str:
        """The text again. With another server secret: something random that no code fits, and a line in the log."""
        try:
            return _vault().decrypt(encrypted_text.encode()).decode()
        except InvalidToken:
            log.error("a second factor was made under another GOODPUT_SECRET_KEY; reset it with reset_second_factor")
            return base64.b32encode(secrets.token_bytes(20)).decode()

    def build_totp_svg(self, url: str) -> str:
        """Nothing: the page draws it (templatetags/people.py)."""
        return ""

    def generate_authenticator_name(self, user: Any, type: Any) -> str:
        """What a new passkey is called until its owner says otherwise."""
        known = Authenticator.objects.filter(user_id=user.pk, type=type).count()
        return f"Passkey {known + 1}" if known else "Passkey"

    def _get_site_name(self) -> str:
        return "Goodput"


def _vault() -> Fernet:
    digest = hashlib.sha256(f"goodput.orgs.second-factor:{settings.SECRET_KEY}".encode()).digest()
    return Fernet(base64.urlsafe_b64encode(digest))


class SingleSignOnAdapter(DefaultSocialAccountAdapter):
    """Single sign-on lets in whoever is known here or invited by an address that the identity provider vouches for."""

    def is_open_for_signup(self, request: HttpRequest, sociallogin: Any) -> bool:
        """Whether an open invitation waits for a verified address of this login."""
        proved = [one.email for one in sociallogin.email_addresses if one.verified]
        waiting = Invitation.objects.filter(
            accepted_at=None, revoked_at=None, expires_at__gt=timezone.now(), org__status=Org.Status.ACTIVE
        )
        return any(waiting.filter(email__iexact=email).exists() for email in proved)

    def populate_user(self, request: HttpRequest, sociallogin: Any, data: dict[str, Any]) -> Any:
        """Address and name of a new person."""
        user = sociallogin.user
        user_email(user, str(data.get("email") or "")[:254])
        user.name = str(data.get("name") or "")[:120]
        return user

    def save_user(self, request: HttpRequest, sociallogin: Any, form: Any = None) -> Any:
        """Keep a new person, with an audit entry."""
        with transaction.atomic():
            user: User = super().save_user(request, sociallogin, form)
            record("user.created", actor=user.email, target=user.email, address=client_address(request.META))
        return user
