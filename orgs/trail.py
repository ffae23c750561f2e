"""What the audit trail says of the rows that django-allauth keeps: second factors, identities of single sign-on.

Written where the row is written, in the same transaction.
"""

from __future__ import annotations

from typing import Any

from allauth.core import context
from allauth.mfa import signals
from allauth.mfa.models import Authenticator
from allauth.socialaccount.models import SocialAccount
from allauth.usersessions.internal.flows.sessions import end_other_sessions
from django.db.models.signals import post_delete, post_save
from django.dispatch import receiver

from orgs.addresses import client_address
from orgs.second_factor import REAL
from orgs.services import record


def _tell(action: str, user: Any, **more: Any) -> None:
    """Note what somebody did in a request; commands write their own entry."""
    request = context.request
    if request is not None:
        record(action, actor=user.email, target=user.email, address=client_address(request.META), **more)


@receiver(post_save, sender=Authenticator)
def _saved(instance: Authenticator, created: bool, update_fields: Any, **_: Any) -> None:
    """Note it in the same transaction; sessions elsewhere, which were opened without the new factor, end."""
    if created:
        _tell("user.second_factor_added", instance.user, after={"kind": str(instance.type)})
        if context.request is not None and instance.type in REAL:
            end_other_sessions(context.request, instance.user)


@receiver(post_delete, sender=Authenticator)
def _deleted(instance: Authenticator, **_: Any) -> None:
    _tell("user.second_factor_removed", instance.user, before={"kind": str(instance.type)})


@receiver(signals.authentication_failed)
def _failed(user: Any, **_: Any) -> None:
    _tell("user.second_factor_wrong", user)


@receiver(post_save, sender=SocialAccount)
def _connected(instance: SocialAccount, created: bool, **_: Any) -> None:
    if created:
        _tell("user.sso_connected", instance.user, after={"identity": instance.uid[:200]})


@receiver(post_delete, sender=SocialAccount)
def _disconnected(instance: SocialAccount, **_: Any) -> None:
    _tell("user.sso_disconnected", instance.user, before={"identity": instance.uid[:200]})
