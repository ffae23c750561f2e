"""One-time links: signed, good for three days, dead after the first login or a change of password."""

from __future__ import annotations

from django.contrib.auth.tokens import PasswordResetTokenGenerator
from django.urls import reverse
from django.utils.encoding import force_bytes, force_str
from django.utils.http import urlsafe_base64_decode, urlsafe_base64_encode

from orgs.models import User


class _LinkTokens(PasswordResetTokenGenerator):
    """Django's token covers the password hash and the last login, so using it once ends it."""

    key_salt = "goodput.orgs.one-time-link"


_tokens = _LinkTokens()


def make_link(user: User, base_url: str) -> str:
    """The link for `user` on the server at `base_url`."""
    uid = urlsafe_base64_encode(force_bytes(user.pk))
    return base_url.rstrip("/") + reverse("one_time_link", args=[uid, _tokens.make_token(user)])


def user_of(uid: str, token: str) -> User | None:
    """The active user that this link lets in; None when it is used up, too old or made up."""
    try:
        user = User.objects.get(pk=int(force_str(urlsafe_base64_decode(uid))), is_active=True)
    except (User.DoesNotExist, ValueError, OverflowError):
        return None
    return user if _tokens.check_token(user, token) else None
