"""`/provider/metrics`: the server about itself, in Prometheus' text format, for staff or with GOODPUT_METRICS_TOKEN.

Counters come from every process by way of the broker (`counters`); gauges from the orgs' summary rows, which are at
most a minute old. No customer's name is a label: an org is its number.
"""

from __future__ import annotations

import hmac
from collections.abc import Iterator

import redis
from django.conf import settings
from django.http import Http404, HttpRequest, HttpResponse
from django.utils import timezone
from django.views.decorators.http import require_GET

from fleet.metrics_text import CONTENT_TYPE
from fleet.summary.models import JobBeat, OrgSummary
from goodput_site import counters

# name -> (type, the label's name, help)
METRICS = {
    "goodput_ingest_batches_total": ("counter", "outcome", "Uploads that got a receipt: stored, or duplicate."),
    "goodput_ingest_refusals_total": ("counter", "code", "Uploads that were refused, by machine code."),
    "goodput_ingest_seconds_total": ("counter", "", "Time spent in uploads; divide by their number."),
    "goodput_task_failures_total": ("counter", "task", "Background jobs that failed."),
    "goodput_task_runs_total": ("counter", "task", "Background jobs that ended well."),
    "goodput_task_seconds_total": ("counter", "task", "Time spent in background jobs."),
    "goodput_counters_up": ("gauge", "", "1 when the broker gave the counters above; without it they are missing."),
    "goodput_inbox_waiting_batches": ("gauge", "org", "Batches that wait for the fold."),
    "goodput_inbox_oldest_seconds": ("gauge", "org", "Age of the oldest batch that waits: how far the fold is behind."),
    "goodput_inbox_failed_batches": ("gauge", "org", "Batches that the fold gave up on; an operator must look."),
    "goodput_agents_silent": ("gauge", "org", "Nodes that were not heard for three minutes."),
    "goodput_agents_dropped_batches_total": ("counter", "org", "Batches that agents had to evict, as they count."),
    "goodput_last_received_timestamp_seconds": ("gauge", "org", "When the newest batch came."),
    "goodput_job_beat_timestamp_seconds": ("gauge", "job", "When a job of the whole server last began."),
}


@require_GET
def metrics(request: HttpRequest) -> HttpResponse:
    """The page; 404 for whoever is neither staff nor has the token."""
    if not (_has_token(request) or getattr(request.user, "is_staff", False)):
        raise Http404
    response = HttpResponse(_text(), content_type=CONTENT_TYPE)
    response["Cache-Control"] = "no-store"
    return response


def _has_token(request: HttpRequest) -> bool:
    wanted: str = settings.GOODPUT_METRICS_TOKEN
    given = request.headers.get("Authorization", "").removeprefix("Bearer ")
    return bool(wanted) and hmac.compare_digest(given.encode(), wanted.encode())


def _text() -> str:
    samples: dict[str, list[tuple[str, float]]] = {name: [] for name in METRICS}
    try:
        for (name, label), amount in sorted(counters.read().items()):
            if name in METRICS:
                samples[name].append((label, amount))
        samples["goodput_counters_up"].append(("", 1))
    except redis.RedisError:
        samples["goodput_counters_up"].append(("", 0))
    for name, label, value in _gauges():
        samples[name].append((label, value))
    lines: list[str] = []
    for name, found in samples.items():
        kind, label_name, about = METRICS[name]
        if found:
            lines += [f"# HELP {name} {about}", f"# TYPE {name} {kind}"]
            lines += [_line(name, label_name, label, value) for label, value in found]
    return "\n".join(lines) + "\n"


def _line(name: str, label_name: str, label: str, value: float) -> str:
    number = str(int(value)) if value == int(value) else repr(value)
    return f'{name}{{{label_name}="{label}"}} {number}' if label_name else f"{name} {number}"


def _gauges() -> Iterator[tuple[str, str, float]]:
    for row in OrgSummary.objects.order_by("org_id"):
        org = str(row.org_id)
        yield "goodput_inbox_waiting_batches", org, row.waiting_batches
        yield "goodput_inbox_oldest_seconds", org, row.oldest_unfolded_seconds or 0
        yield "goodput_inbox_failed_batches", org, row.failed_batches
        yield "goodput_agents_silent", org, row.agents_silent
        yield "goodput_agents_dropped_batches_total", org, row.dropped_total
        if row.last_received_at:
            yield "goodput_last_received_timestamp_seconds", org, row.last_received_at.timestamp()
    for job in JobBeat.objects.order_by("name"):
        yield "goodput_job_beat_timestamp_seconds", job.name, min(job.at, timezone.now()).timestamp()
