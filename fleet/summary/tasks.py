"""Celery's doors: each minute every org's job writes its row; exports are written one by one."""

from __future__ import annotations

from celery import shared_task
from django.utils import timezone
from django_tenants.utils import schema_context

from fleet.summary import export, jobs, services
from fleet.summary.models import Export, OrgSummary
from orgs.models import Org
from orgs.tasks import fan_out, org_task

SPREAD_SECONDS = 40  # the orgs' jobs of a minute do not start at once


@shared_task(name="fleet.summary.tasks.summarise")  # type: ignore[untyped-decorator]
def summarise() -> int:
    """Send every org to a worker, look after exports; the number of orgs."""
    now = timezone.now()
    with schema_context("public"):
        ids = list(Org.objects.filter(status=Org.Status.ACTIVE).values_list("pk", flat=True))
        known = set(OrgSummary.objects.values_list("org_id", flat=True))
        waiting = list(Export.objects.filter(state=Export.State.QUEUED).values_list("pk", flat=True))
        services.clear_exports(now)
        jobs.clear_failures(now)
    fan_out(summarise_org, [org_id for org_id in ids if org_id not in known], over=0, expires=60)
    fan_out(summarise_org, [org_id for org_id in ids if org_id in known], over=SPREAD_SECONDS, expires=60)
    for export_id in waiting:
        export_org.apply_async(args=[export_id], expires=60)
    return len(ids)


@org_task(name="fleet.summary.tasks.summarise_org")
def summarise_org(org: Org) -> None:
    """Write the row of one org."""
    services.write_summary(org, timezone.now())


@shared_task(name="fleet.summary.tasks.export_org")  # type: ignore[untyped-decorator]
def export_org(export_id: int) -> None:
    """Write a waiting export. It reads a suspended org too, by the names of its tables, without entering it."""
    with schema_context("public"):
        export.run_export(export_id)
