"""One-time links: signed, good for three days, dead after the first login or a change of password."""

from __future__ import annotations

from django.contrib.auth.base_user import AbstractBaseUser
from django.contrib.auth.tokens import PasswordResetTokenGenerator
from django.urls import reverse
from django.utils.encoding import force_bytes, force_str
from django.utils.http import urlsafe_base64_decode, urlsafe_base64_encode

from orgs.models import User


class _LinkTokens(PasswordResetTokenGenerator):
    """Covers the password hash and the last login to the microsecond, so that any login ends it.

    Django's own value cuts the last login to seconds, and a second login within that second would leave it alive.
    """

    key_salt = "goodput.orgs.one-time-link"

    def _make_hash_value(self, user: AbstractBaseUser, timestamp: int) -> str:
        last = user.last_login.isoformat() if user.last_login else ""
        return f"{user.pk}{user.password}{last}{timestamp}{user.get_username()}"


_tokens = _LinkTokens()


def make_link(user: User, base_url: str) -> str:
    """The link for `user` on the server at `base_url`."""
    uid = urlsafe_base64_encode(force_bytes(user.pk))
    return base_url.rstrip("/") + reverse("one_time_link", args=[uid, _tokens.make_token(user)])


def user_of(uid: str, token: str, *, lock: bool = False) -> User | None:
    """The active user that this link lets in; None when it is used up, too old or made up.

    With `lock` the user's row is locked until the end of the transaction, so that two clicks can't both enter.
    """
    people = User.objects.select_for_update() if lock else User.objects
    try:
        user = people.get(pk=int(force_str(urlsafe_base64_decode(uid))), is_active=True)
    except (User.DoesNotExist, ValueError, OverflowError):
        return None
    return user if _tokens.check_token(user, token) else None
