"""`@org_task`: a Celery task that takes the id of an org and runs inside it. No org, no run.

And this app's own tasks, which send mail.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable
from typing import Any, Concatenate, ParamSpec, TypeVar

from celery import shared_task
from django.core.mail import EmailMessage
from django_tenants.utils import schema_context, tenant_context

from orgs.mails import send_reset, send_waiting
from orgs.models import Org

P = ParamSpec("P")
R = TypeVar("R")
log = logging.getLogger(__name__)


def in_org(run: Callable[Concatenate[Org, P], R]) -> Callable[Concatenate[int, P], R | None]:
    """`run(org, …)` as a function of the org's id; a missing or suspended org is logged and dropped."""

    def opened(org_id: int, /, *args: P.args, **kwargs: P.kwargs) -> R | None:
        with schema_context("public"):
            org = Org.objects.filter(pk=org_id).first()
        if org is None or org.status != Org.Status.ACTIVE:
            log.warning("%s: org %s is %s; not run", run.__name__, org_id, "missing" if org is None else org.status)
            return None
        with tenant_context(org):
            return run(org, *args, **kwargs)

    functools.update_wrapper(opened, run)
    opened.is_of_an_org = True  # type: ignore[attr-defined]  # its first argument names one
    return opened


def org_task(**options: Any) -> Callable[[Callable[Concatenate[Org, P], R]], Any]:
    """Decorator: a Celery task whose first argument is an org's id and whose body gets the Org, inside its schema."""

    def wrap(run: Callable[Concatenate[Org, P], R]) -> Any:
        return shared_task(**options)(in_org(run))

    return wrap


@shared_task(name="orgs.tasks.send_mails")  # type: ignore[untyped-decorator]
def send_mails() -> int:
    """Send what waits to be mailed; the number sent."""
    return send_waiting()


@shared_task(name="orgs.tasks.mail_reset", autoretry_for=(OSError,), max_retries=3, retry_backoff=10)  # type: ignore[untyped-decorator]
def mail_reset(email: str, base_url: str) -> None:
    """Mail a link to a new password, if the address belongs to somebody; the link is made here and never queued."""
    with schema_context("public"):
        send_reset(email, base_url)


@shared_task(name="orgs.tasks.mail_notice", autoretry_for=(OSError,), max_retries=5, retry_backoff=30)  # type: ignore[untyped-decorator]
def mail_notice(email: str, subject: str, text: str) -> None:
    """Mail a notice about an account; it holds no secret and no link that lets in."""
    EmailMessage(subject, text, to=[email]).send()
