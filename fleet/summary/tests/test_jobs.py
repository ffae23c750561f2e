"""Background job health: clocked jobs on time or late, failed tasks kept and sent again, and never a task harmed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from celery import shared_task
from django.core import mail
from django.test import Client
from django.utils import timezone

from fleet.summary import jobs
from fleet.summary.models import FailedTask, JobBeat
from fleet.summary.selectors import BEAT
from orgs.models import AuditEntry, Org
from orgs.tasks import mail_notice, mail_reset, org_task

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("lan")]


@org_task(name="fleet.summary.tests.break_org")
def break_org(org: Org, word: str) -> None:
    """Fails, unless told to be good."""
    if word != "good":
        raise ValueError(f"{org.slug} can't {word}")


@shared_task(name="fleet.summary.tests.break_all")  # type: ignore[untyped-decorator]
def break_all() -> None:
    """Fails."""
    raise OSError("no disk")


@pytest.fixture
def at_once() -> Iterator[None]:
    """Tasks run where they are sent from, with the signals that a worker sends."""
    from goodput_site.celery import app

    eager, app.conf.task_always_eager = app.conf.task_always_eager, True
    jobs._noted.clear()
    yield
    app.conf.task_always_eager = eager


@pytest.fixture
def staff(pat: Any, client_of: Any) -> Client:
    """Pat at the console."""
    return client_of(pat)


@pytest.mark.usefixtures("at_once")
def test_a_failed_task_is_kept_with_its_org_and_sent_again_once(alpha: Any, staff: Client) -> None:
    break_org.delay(alpha.pk, "sing")
    break_all.delay()
    failed = FailedTask.objects.get(task="fleet.summary.tests.break_org")
    assert (failed.org_id, failed.error) == (alpha.pk, "ValueError: alpha can't sing")
    page = staff.get("/provider/jobs/").content.decode()
    assert "alpha can&#x27;t sing" in page
    assert "OSError: no disk" in page
    assert f'href="/provider/orgs/{alpha.pk}/">alpha</a>' in page

    FailedTask.objects.filter(pk=failed.pk).update(given={"args": [alpha.pk, "good"], "kwargs": {}})
    path = f"/provider/jobs/tasks/{failed.pk}/retry/"
    assert staff.post(path).status_code == 302
    assert "t sing" not in staff.get("/provider/jobs/").content.decode()
    assert AuditEntry.objects.get(action="task.retried").actor == "pat@provider.example"
    staff.post(path)
    assert AuditEntry.objects.filter(action="task.retried").count() == 1


@pytest.mark.usefixtures("at_once")
def test_mail_that_no_server_takes_is_shown_and_sent_from_the_page(ada: Any, staff: Client, settings: Any) -> None:
    """Links to a new password and notices; invitations stand beside their rows."""
    backend, settings.EMAIL_BACKEND = settings.EMAIL_BACKEND, "django.core.mail.backends.smtp.EmailBackend"
    settings.EMAIL_HOST, settings.EMAIL_PORT = "127.0.0.1", 1
    mail_reset.apply(args=[ada.email, "http://localhost"])
    mail_notice.apply(args=[ada.email, "Your password was changed", "At noon."])
    page = staff.get("/provider/jobs/").content.decode()
    assert page.count("ConnectionRefusedError") == 2
    assert mail.outbox == []
    settings.EMAIL_BACKEND = backend
    for failed in FailedTask.objects.order_by("pk"):
        staff.post(f"/provider/jobs/tasks/{failed.pk}/retry/")
    assert [one.to for one in mail.outbox] == [[ada.email], [ada.email]]
    assert "/password/new/" in mail.outbox[0].body
    assert "ConnectionRefusedError" not in staff.get("/provider/jobs/").content.decode()


@pytest.mark.usefixtures("at_once")
def test_a_task_that_this_version_has_not_is_left_alone(staff: Client) -> None:
    failed = FailedTask.objects.create(task="no.such.task", given={"args": [], "kwargs": {}}, error="x")
    page = staff.post(f"/provider/jobs/tasks/{failed.pk}/retry/", follow=True).content.decode()
    assert "this version has no such task" in page
    assert staff.post("/provider/jobs/tasks/999/retry/").status_code == 404


@pytest.mark.usefixtures("at_once")
def test_clocked_jobs_are_noted_when_they_are_done(staff: Client) -> None:
    from orgs.tasks import send_mails

    now = timezone.now()
    Org.objects.update(created_at=now - timedelta(seconds=170))
    assert not any(job.is_late for job in jobs.list_jobs(now))  # a server that has just begun
    late = {job.task for job in jobs.list_jobs(now + timedelta(minutes=1)) if job.is_late}
    assert "orgs.tasks.send_mails" in late
    assert "claims.tasks.checkpoint_all" not in late  # its hours are not over
    send_mails.delay()
    at = JobBeat.objects.get(name="orgs.tasks.send_mails").at
    send_mails.delay()
    assert JobBeat.objects.get(name="orgs.tasks.send_mails").at == at  # at most twice a minute
    assert not next(job for job in jobs.list_jobs(timezone.now()) if job.task == "orgs.tasks.send_mails").is_late


def test_a_job_is_late_after_three_periods_and_three_minutes_at_least() -> None:
    now = timezone.now()
    for task, seconds, is_late in (
        ("fleet.tasks.sweep", 179, False),
        ("fleet.tasks.sweep", 181, True),
        ("claims.tasks.checkpoint_all", 3 * 3600 - 1, False),
        ("claims.tasks.checkpoint_all", 3 * 3600 + 1, True),
    ):
        JobBeat.objects.update_or_create(name=task, defaults={"at": now - timedelta(seconds=seconds)})
        assert next(job for job in jobs.list_jobs(now) if job.task == task).is_late is is_late, (task, seconds)


def test_failures_of_last_month_are_forgotten() -> None:
    old = timezone.now() - timedelta(days=31)
    FailedTask.objects.create(task="x", given={"args": [], "kwargs": {}}, error="x", failed_at=old)
    FailedTask.objects.create(task="y", given={"args": [], "kwargs": {}}, error="x")
    jobs.clear_failures(timezone.now())
    assert [one.task for one in FailedTask.objects.all()] == ["y"]


def test_a_lost_broker_is_told_of(staff: Client, settings: Any) -> None:
    settings.REDIS_URL = "redis://127.0.0.1:1/0"
    assert jobs.queue_length() is None
    assert ">away<" in staff.get("/provider/jobs/").content.decode()


@pytest.mark.django_db(transaction=True)
def test_a_real_worker_and_a_real_beat_are_seen_at_work(database_url: str) -> None:
    """Started as the product starts them; the console's rows come from their signals."""
    JobBeat.objects.all().delete()
    command = [sys.executable, "-m", "celery", "-A", "goodput_site.celery:app", "worker", "-B", "-c", "1", "-s"]
    environ = {**os.environ, "DATABASE_URL": database_url, "DJANGO_SETTINGS_MODULE": "goodput_site.settings"}
    worker = subprocess.Popen(
        [*command, f"/tmp/beat-{os.getpid()}"],
        env=environ,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        process_group=0,
    )
    try:
        until = time.monotonic() + 90
        while time.monotonic() < until and not JobBeat.objects.filter(name="fleet.tasks.sweep").exists():
            time.sleep(0.5)
        assert JobBeat.objects.filter(name="fleet.tasks.sweep").exists()
    finally:
        os.killpg(worker.pid, signal.SIGTERM)
        worker.wait(30)
    assert BEAT in jobs.clocked()
