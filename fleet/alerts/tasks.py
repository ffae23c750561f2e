"""Celery's doors to the alerts. A message only says "look at this org": losing one loses nothing.

They run on a queue of their own: a receiver that hangs must not hold up the fold.
"""

from __future__ import annotations

from celery import shared_task
from django.utils import timezone
from django_tenants.utils import schema_context

from fleet.alerts.delivery import channels_with_work, deliver_to
from fleet.alerts.housekeeping import alone, forget_old
from fleet.alerts.routing import route_waiting
from fleet.alerts.selectors_waiting import orgs_with_alerts
from fleet.cluster_incidents import group_waiting
from orgs.models import Org
from orgs.tasks import MOST_SPREAD_SECONDS, fan_out, org_task

HINT_SECONDS = 30


@shared_task(name="fleet.alerts.tasks.sweep")  # type: ignore[untyped-decorator]
def sweep() -> int:
    """Ask one statement which orgs have something to tell and send each to a worker; the number of orgs."""
    with schema_context("public"):
        ids = orgs_with_alerts(Org.objects.filter(status=Org.Status.ACTIVE), timezone.now())
    for org_id in ids:
        tell_org.apply_async(args=[org_id], expires=HINT_SECONDS)
    return len(ids)


@org_task(name="fleet.alerts.tasks.tell_org")
def tell_org(org: Org) -> int:
    """Group, route, and send each channel with work to a worker of its own; the number of channels."""
    channels = prepare(org)
    for channel_id in channels:
        tell_channel.apply_async(args=[org.pk, channel_id], expires=HINT_SECONDS)
    return len(channels)


def prepare(org: Org) -> list[int]:
    """Bring cluster-wide incidents and deliveries up to date; the channels to which something is due."""
    for _ in range(3):  # a second pass where the first left neighbours to look at
        if not group_waiting():
            break
    route_waiting(org, timezone.now())
    return channels_with_work(timezone.now())


@org_task(name="fleet.alerts.tasks.tell_channel")
def tell_channel(org: Org, channel_id: int) -> int:
    """Send what is due to one channel, unless another worker is at it."""
    with alone(f"alerts.channel.{channel_id}") as is_alone:
        return deliver_to(org, channel_id) if is_alone else 0


@shared_task(name="fleet.alerts.tasks.forget")  # type: ignore[untyped-decorator]
def forget() -> int:
    """Send every org to a worker to remove what is old of its log."""
    with schema_context("public"):
        ids = list(Org.objects.filter(status=Org.Status.ACTIVE).values_list("pk", flat=True))
    return fan_out(forget_of_org, ids, over=MOST_SPREAD_SECONDS, expires=3600)


@org_task(name="fleet.alerts.tasks.forget_of_org")
def forget_of_org(org: Org) -> int:
    """Remove what is old of one org's log."""
    return forget_old(timezone.now())
