"""Celery's doors to the fold. A message only says "look at this org": losing one loses nothing."""

from __future__ import annotations

from celery import shared_task
from django.utils import timezone
from django_tenants.utils import schema_context

from fleet.folding import fold_waiting
from fleet.partitions import ensure_partitions
from fleet.refolding import refold_dirty
from fleet.selectors_waiting import orgs_with_work
from orgs.models import Org
from orgs.tasks import org_task

HINT_SECONDS = 10  # a message that waited longer is dropped: the next sweep sends another


@shared_task(name="fleet.tasks.sweep")
def sweep() -> int:
    """Ask one statement which orgs have work and send each to a worker; the number of orgs sent."""
    with schema_context("public"):
        ids = orgs_with_work(Org.objects.filter(status=Org.Status.ACTIVE))
    for org_id in ids:
        fold_org.apply_async(args=[org_id], expires=HINT_SECONDS)
    return len(ids)


@org_task(name="fleet.tasks.fold_org")
def fold_org(org: Org) -> int:
    """Fold what waits in an org, then the hours that late facts made dirty."""
    folded = fold_waiting(timezone.now())
    refold_dirty(timezone.now())
    return folded


@shared_task(name="fleet.tasks.make_partitions")
def make_partitions() -> int:
    """Make next weeks' inbox partitions in every org; the number made. One bad org does not stop the others."""
    made = 0
    with schema_context("public"):
        for org in Org.objects.filter(status=Org.Status.ACTIVE):
            made += ensure_partitions(org.schema_name, timezone.now())
    return made
