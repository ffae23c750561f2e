"""`@org_task`: a Celery task that takes the id of an org and runs inside it. No org, no run.

And this app's own tasks, which send mail.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable
from typing import Any, Concatenate, ParamSpec, TypeVar

from celery import shared_task
from django_tenants.utils import schema_context, tenant_context

from orgs.mails import send_link, send_waiting
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


@shared_task(name="orgs.tasks.mail_link", autoretry_for=(OSError,), max_retries=3, retry_backoff=10)  # type: ignore[untyped-decorator]
def mail_link(email: str, base_url: str) -> None:
    """Mail a one-time link, if the address belongs to somebody; the link is made here and never queued."""
    with schema_context("public"):
        send_link(email, base_url)
