"""Second factors: who must have one, how they are taken away from outside."""

from __future__ import annotations

from typing import Any

from allauth.mfa.models import Authenticator
from django.conf import settings
from django.db import transaction
from django_tenants.utils import schema_context

from orgs.models import User
from orgs.services import record

REAL = (Authenticator.Type.TOTP, Authenticator.Type.WEBAUTHN)  # recovery codes stand in for one of these
MISSING = "Provider staff need a second factor on this server. Set up an authenticator app or a passkey first."


def has_second_factor(user: Any) -> bool:
    """Whether somebody has an authenticator app or a passkey."""
    return bool(Authenticator.objects.filter(user_id=user.pk, type__in=REAL).exists())


def is_missing(user: Any) -> bool:
    """Whether this person must set up a second factor first: provider staff of a server that others can reach."""
    return bool(user.is_staff) and not settings.GOODPUT_EXPOSE.is_open and not has_second_factor(user)


def reset(user: User, *, actor: str) -> int:
    """Take all second factors from somebody who lost them; the number. Whoever has a password enters by that alone."""
    with schema_context("public"), transaction.atomic():
        count: int = Authenticator.objects.filter(user=user).delete()[0]
        if count:
            record("user.second_factor_reset", actor=actor, target=user.email, before={"factors": count})
    return count
