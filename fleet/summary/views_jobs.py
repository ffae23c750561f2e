"""The console's page of work in the background: clocked jobs, queues, what failed and may be tried again."""

from __future__ import annotations

from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils import timezone
from django.views.decorators.http import require_POST, require_safe
from kombu.exceptions import OperationalError

from fleet.summary import jobs as background
from fleet.summary import services
from fleet.summary.models import Export, FailedTask
from fleet.summary.selectors import failed_batches, last_beat, queues
from fleet.summary.views import org_of, staff_only, who
from orgs.models import Org


@staff_only
@require_safe
def jobs(request: HttpRequest) -> HttpResponse:
    """Whether the work in the background goes on: clocked jobs, the queue of each org, what was set aside and why."""
    now = timezone.now()
    rows = queues(Org.objects.filter(status=Org.Status.ACTIVE))
    busy = sorted((q for q in rows if q.waiting or q.failed), key=lambda q: (-q.failed, -(q.oldest_seconds or 0)))
    beat_at, is_late = last_beat(now)
    failures, failure_count = background.list_failures()
    context = {
        "section": "jobs",
        "now": now,
        "jobs": background.list_jobs(now),
        "queue_length": background.queue_length(),
        "failures": failures,
        "failure_count": failure_count,
        "queues": [(queue, failed_batches(queue.org) if queue.failed else []) for queue in busy[:50]],
        "more": max(0, len(busy) - 50),
        "org_count": len(rows),
        "waiting": sum(queue.waiting for queue in rows),
        "failed": sum(queue.failed for queue in rows),
        "oldest": max((queue.oldest_seconds or 0 for queue in rows), default=0),
        "beat_at": beat_at,
        "is_late": is_late,
        "exports": Export.objects.exclude(state=Export.State.DONE)[:20],
    }
    return render(request, "provider/jobs.html", context)


@staff_only
@require_POST
def retry(request: HttpRequest, org_id: int) -> HttpResponse:
    """Let the fold try an org's failed batches again."""
    org = org_of(org_id)
    count = services.retry_failed(org, **who(request))
    messages.success(request, f"{count} batches of {org.slug} are tried again within seconds.")
    return redirect("provider_jobs")


@staff_only
@require_POST
def retry_task(request: HttpRequest, failed_id: int) -> HttpResponse:
    """Send a failed task again."""
    failed = FailedTask.objects.filter(pk=failed_id).first()
    if failed is None:
        raise Http404("There is no such task.")
    try:
        is_sent = background.retry_task(failed, **who(request))
    except OperationalError:
        messages.error(request, "The broker does not answer. Nothing was sent.")
    else:
        told = "is sent again" if is_sent else "was sent again before, or this version has no such task"
        (messages.success if is_sent else messages.warning)(request, f"{failed.task} {told}.")
    return redirect("provider_jobs")
