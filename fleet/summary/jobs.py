"""What the console knows of work in the background: when each clocked job ran last, and which tasks failed.

Celery tells by its signals, in the worker. Nothing here may make a task fail: what can't be written is logged.
"""

from __future__ import annotations

import json
import logging
import time
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import redis
from celery import current_app
from celery.signals import task_failure, task_postrun
from django.conf import settings
from django.db import DatabaseError, transaction
from django.utils import timezone
from django_tenants.utils import schema_context

from fleet.summary.models import FailedTask, JobBeat
from orgs.models import Org
from orgs.services import record

log = logging.getLogger(__name__)
NOTED_EVERY_SECONDS = 30  # a job of each second is noted twice a minute
LATE_AFTER_PERIODS = 3
LATE_AFTER_SECONDS = 180  # at least: a busy worker is not a dead one
KEPT = timedelta(days=30)
LISTED = 50
QUEUE = "celery"  # Celery's name of the one queue
_noted: dict[str, float] = {}


@task_postrun.connect(dispatch_uid="fleet.summary.jobs.note_run")  # type: ignore[untyped-decorator]
def note_run(task: Any = None, state: str | None = None, **_: Any) -> None:
    """Note that a clocked job was done, at most twice a minute."""
    name = getattr(task, "name", "")
    if state != "SUCCESS" or name not in clocked() or time.monotonic() - _noted.get(name, -1e9) < NOTED_EVERY_SECONDS:
        return
    _noted[name] = time.monotonic()
    try:
        with schema_context("public"):
            JobBeat.objects.update_or_create(name=name, defaults={"at": timezone.now()})
    except DatabaseError as error:
        log.warning("that %s ran can't be noted: %s", name, error)


@task_failure.connect(dispatch_uid="fleet.summary.jobs.keep_failure")  # type: ignore[untyped-decorator]
def keep_failure(sender: Any = None, args: Any = None, kwargs: Any = None, exception: Any = None, **_: Any) -> None:
    """Keep a task that failed for good, with what it was called with, so that it can be sent again."""
    try:
        given = json.loads(json.dumps({"args": list(args or ()), "kwargs": dict(kwargs or {})}))
        error = f"{type(exception).__name__}: {exception}"[:1000]
        org_id = given["args"][0] if getattr(sender.run, "is_of_an_org", False) else None
        with schema_context("public"):
            FailedTask.objects.create(task=sender.name, org_id=org_id, given=given, error=error)
    except (DatabaseError, TypeError, ValueError) as problem:
        log.warning("that %s failed can't be noted: %s", getattr(sender, "name", "?"), problem)


def clocked() -> dict[str, float]:
    """The clocked jobs: task → seconds between two runs."""
    schedule: dict[str, dict[str, Any]] = settings.CELERY_BEAT_SCHEDULE
    return {one["task"]: float(one["schedule"]) for one in schedule.values()}


@dataclass(frozen=True)
class Job:
    """A clocked job as the console shows it. `at` None: not since the tables were made."""

    task: str
    every: float
    at: datetime | None
    is_late: bool


def list_jobs(now: datetime) -> list[Job]:
    """Every clocked job, late ones first, then the most frequent."""
    beats = dict(JobBeat.objects.values_list("name", "at"))
    oldest = Org.objects.order_by("created_at").values_list("created_at", flat=True).first() or now
    found = []
    for task, every in clocked().items():
        at = beats.get(task)
        patience = max(LATE_AFTER_SECONDS, LATE_AFTER_PERIODS * every)
        is_late = (now - (at or oldest)).total_seconds() > patience  # a new server has not done each of them yet
        found.append(Job(task, every, at, is_late))
    return sorted(found, key=lambda job: (not job.is_late, job.every, job.task))


def queue_length() -> int | None:
    """Messages that wait in the broker; None where it does not answer."""
    try:
        with redis.Redis.from_url(settings.REDIS_URL, socket_timeout=1, socket_connect_timeout=1) as broker:
            return int(broker.llen(QUEUE))
    except redis.RedisError:
        return None


@dataclass(frozen=True)
class Failure:
    """A failed task that nobody sent again, and the org that it was for, where it was for one."""

    row: FailedTask
    org: Org | None


def list_failures() -> tuple[list[Failure], int]:
    """(the latest failed tasks, how many there are)."""
    waiting = FailedTask.objects.filter(retried_at=None)
    rows = list(waiting[:LISTED])
    orgs = {org.pk: org for org in Org.objects.filter(pk__in=[row.org_id for row in rows if row.org_id])}
    return [Failure(row, orgs.get(row.org_id)) for row in rows], waiting.count()


def retry_task(failed: FailedTask, *, actor: str, address: str | None = None) -> bool:
    """Send a failed task again, once. False where somebody did, or where no such task is left in this version."""
    if failed.task not in current_app.tasks:
        return False
    with schema_context("public"), transaction.atomic():
        waiting = FailedTask.objects.filter(pk=failed.pk, retried_at=None)
        if not waiting.update(retried_at=timezone.now(), retried_by=actor[:254]):
            return False
        org = Org.objects.filter(pk=failed.org_id).first() if failed.org_id else None
        record("task.retried", actor=actor, org=org, target=failed.task, address=address)
        task = current_app.tasks[failed.task]
        task.apply_async(args=failed.given["args"], kwargs=failed.given["kwargs"], retry=False)  # fails: nothing noted
    return True


def clear_failures(now: datetime) -> int:
    """Forget failures of last month."""
    return FailedTask.objects.filter(failed_at__lt=now - KEPT).delete()[0]
