"""`@org_task`: a Celery task that takes the id of an org and runs inside it. No org, no run.

And this app's own tasks, which send mail.
"""

from __future__ import annotations

import functools
import logging
import zlib
from collections.abc import Callable, Iterable
from typing import Any, Concatenate, ParamSpec, TypeVar

from celery import shared_task
from django.core.mail import EmailMessage
from django.db import ProgrammingError
from django_tenants.utils import schema_context, tenant_context

from orgs.mails import send_reset, send_waiting
from orgs.models import Org
from orgs.skew import is_skew

P = ParamSpec("P")
R = TypeVar("R")
log = logging.getLogger(__name__)
MOST_SPREAD_SECONDS = 100  # below the broker's visibility timeout (settings)


def in_org(run: Callable[Concatenate[Org, P], R]) -> Callable[Concatenate[int, P], R | None]:
    """`run(org, …)` as a function of the org's id; a missing or suspended org is logged and dropped."""

    def opened(org_id: int, /, *args: P.args, **kwargs: P.kwargs) -> R | None:
        with schema_context("public"):
            org = Org.objects.filter(pk=org_id).first()
        if org is None or org.status != Org.Status.ACTIVE:
            log.warning("%s: org %s is %s; not run", run.__name__, org_id, "missing" if org is None else org.status)
            return None
        with tenant_context(org):
            try:
                return run(org, *args, **kwargs)
            except ProgrammingError as error:
                if not is_skew(error, org.schema_name):
                    raise
                log.warning("%s: org %s is being upgraded; it waits for the next turn", run.__name__, org.slug)
                return None

    functools.update_wrapper(opened, run)
    opened.is_of_an_org = True  # type: ignore[attr-defined]  # its first argument names one
    return opened


def org_task(**options: Any) -> Callable[[Callable[Concatenate[Org, P], R]], Any]:
    """Decorator: a Celery task whose first argument is an org's id and whose body gets the Org, inside its schema."""

    def wrap(run: Callable[Concatenate[Org, P], R]) -> Any:
        return shared_task(**options)(in_org(run))

    return wrap


def fan_out(task: Any, org_ids: Iterable[int], *args: Any, over: float, expires: float) -> int:
    """Send a task of an org to each of these, spread over so many seconds; how many.

    An org has the same moment of the span every time, so its own interval stays what the clock says, and hundreds of
    orgs do not begin at once. `expires` counts from that moment.
    """
    if over > MOST_SPREAD_SECONDS:
        raise ValueError(f"Redis sends a message again that waits longer than {MOST_SPREAD_SECONDS} s in a worker.")
    listed = list(org_ids)
    for org_id in listed:
        wait = zlib.crc32(f"{task.name}:{org_id}".encode()) / 2**32 * over
        task.apply_async(args=[org_id, *args], countdown=wait, expires=wait + expires)
    return len(listed)


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
