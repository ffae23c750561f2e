"""Celery's doors to the fold. A message only says "look at this org": losing one loses nothing."""

from __future__ import annotations

import logging

from celery import shared_task
from django.core.management import call_command
from django.db import DatabaseError
from django.utils import timezone
from django_tenants.utils import schema_context

from fleet import probe as probing
from fleet import silence
from fleet.alerts.silence_watch import watch_silence
from fleet.folding import fold_waiting
from fleet.partitions import ensure_partitions
from fleet.refolding import refold_dirty
from fleet.selectors_waiting import orgs_with_probes, orgs_with_work
from orgs.models import Org
from orgs.tasks import fan_out, org_task

log = logging.getLogger(__name__)
SPREAD_SECONDS = 50  # of a minute's jobs of all orgs
HINT_SECONDS = 10  # a message that waited longer is dropped: the next sweep sends another


@shared_task(name="fleet.tasks.sweep")  # type: ignore[untyped-decorator]
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


@shared_task(name="fleet.tasks.close_silence")  # type: ignore[untyped-decorator]
def close_silence() -> int:
    """Send every org to a worker to write the hours of its silent nodes; the number of orgs."""
    with schema_context("public"):
        ids = list(Org.objects.filter(status=Org.Status.ACTIVE).values_list("pk", flat=True))
    return fan_out(close_silence_of_org, ids, over=SPREAD_SECONDS, expires=60)


@org_task(name="fleet.tasks.close_silence_of_org")
def close_silence_of_org(org: Org) -> int:
    """Write the hours of an org's silent nodes, and tell of those that fell silent."""
    watch_silence(timezone.now())
    return silence.close_silence(timezone.now())


@shared_task(name="fleet.tasks.probe")  # type: ignore[untyped-decorator]
def probe() -> int:
    """Send every org that has a probe to a worker; the number of orgs. Nothing while the probe is off."""
    if not probing.networks():
        return 0
    with schema_context("public"):
        ids = orgs_with_probes(Org.objects.filter(status=Org.Status.ACTIVE))
    for org_id in ids:
        probe_org.apply_async(args=[org_id], expires=probing.ROUND_SECONDS)
    return len(ids)


@org_task(name="fleet.tasks.probe_org")
def probe_org(org: Org) -> int:
    """One round of an org's probes."""
    return probing.probe_round(timezone.now())


@shared_task(name="fleet.tasks.make_partitions")  # type: ignore[untyped-decorator]
def make_partitions() -> int:
    """Make next weeks' inbox partitions in every org; the number made. One bad org does not stop the others."""
    made = 0
    with schema_context("public"):
        for org in Org.objects.filter(status=Org.Status.ACTIVE):
            try:
                made += ensure_partitions(org.schema_name, timezone.now())
            except DatabaseError:
                log.exception("org %s: its partitions could not be made", org.slug)
    return made


@shared_task(name="fleet.tasks.clear_sessions")  # type: ignore[untyped-decorator]
def clear_sessions() -> None:
    """Delete sessions that have expired."""
    call_command("clearsessions")
