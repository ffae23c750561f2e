"""A task opens the org of its id, or does not run."""

from __future__ import annotations

import logging
import multiprocessing
import subprocess
import sys
from typing import Any

import pytest
from django.db import connections, transaction
from django_tenants.utils import tenant_context

from fleet.models import Cluster
from orgs.models import Org
from orgs.services import set_org_status
from orgs.tasks import in_org, org_task
from orgs.tests.probe_urls import ask

pytestmark = pytest.mark.django_db


@in_org
def run_there(org: Org, extra: int = 0) -> tuple[str, str, int]:
    """What the database says inside the task."""
    return org.slug, ask()["schema"], extra


def test_the_body_runs_inside_its_org_and_the_task_leaves_it(alpha: Any, beta: Any) -> None:
    assert run_there(alpha.pk, extra=1) == ("alpha", alpha.schema_name, 1)
    assert run_there(beta.pk) == ("beta", beta.schema_name, 0)
    assert ask()["schema"] == "public"


def test_a_task_called_inside_another_org_comes_back_to_it(alpha: Any, beta: Any) -> None:
    with tenant_context(alpha):
        assert run_there(beta.pk) == ("beta", beta.schema_name, 0)
        assert ask()["schema"] == alpha.schema_name


def test_an_exception_leaves_the_org(alpha: Any) -> None:
    @in_org
    def fail(org: Org) -> None:
        raise KeyError(org.slug)

    with pytest.raises(KeyError):
        fail(alpha.pk)
    assert ask()["schema"] == "public"


@pytest.mark.parametrize("status", ["missing", "suspended"])
def test_no_org_no_run(status: str, alpha: Any, caplog: Any) -> None:
    ran: list[str] = []

    @in_org
    def body(org: Org) -> None:
        ran.append(org.slug)

    org_id = alpha.pk
    if status == "missing":
        org_id = 2**40
    else:
        set_org_status(alpha, Org.Status.SUSPENDED, actor="test")
    with caplog.at_level(logging.WARNING, "orgs.tasks"):
        assert body(org_id) is None
    assert ran == []
    assert status in caplog.text
    assert ask()["schema"] == "public"


def test_a_celery_task_takes_the_id_only(alpha: Any) -> None:
    @org_task(name="orgs.tests.make_cluster")
    def make_cluster(org: Org, name: str) -> str:
        Cluster.objects.create(name=name)
        return ask()["schema"]

    assert make_cluster.name == "orgs.tests.make_cluster"
    assert make_cluster(alpha.pk, "c1") == alpha.schema_name
    with tenant_context(alpha):
        assert Cluster.objects.get().name == "c1"


def test_a_task_that_is_tried_again_opens_its_org_each_time(alpha: Any, beta: Any) -> None:
    seen: list[tuple[str, int]] = []

    @org_task(name="orgs.tests.fail_twice", autoretry_for=(OSError,), max_retries=2, retry_backoff=0)
    def fail_twice(org: Org) -> str:
        Cluster.objects.create(name=f"c{len(seen)}")
        seen.append((ask()["schema"], Cluster.objects.count()))
        if len(seen) < 3:
            raise OSError("the other side is away")
        return org.slug

    with tenant_context(beta):  # whatever the connection did before
        assert fail_twice.apply(args=[alpha.pk]).get() == "alpha"
    assert seen == [(alpha.schema_name, 1), (alpha.schema_name, 2), (alpha.schema_name, 3)]
    assert ask()["schema"] == "public"
    with tenant_context(beta):
        assert not Cluster.objects.exists()


@in_org
def add_cluster(org: Org, hold: Any = None) -> tuple[str, str]:
    """A row in one transaction; with `hold`, a pipe, it says where it is and stays there."""
    with transaction.atomic():
        Cluster.objects.create(name="c1")
        if hold is not None:
            hold.send(ask()["schema"])
            hold.recv()
        return org.slug, ask()["schema"]


@pytest.mark.django_db(transaction=True)
def test_a_task_killed_amid_its_work_leaves_nothing_and_is_done_again_in_its_org(alpha: Any, beta: Any) -> None:
    connections.close_all()  # a connection must not be shared between processes
    ours, theirs = multiprocessing.Pipe()
    worker = multiprocessing.get_context("fork").Process(target=add_cluster, args=(alpha.pk, theirs))
    worker.start()
    try:
        assert ours.poll(60)
        assert ours.recv() == alpha.schema_name
    finally:
        worker.kill()
        worker.join(60)
    assert add_cluster(alpha.pk) == ("alpha", alpha.schema_name)  # the same row: the first one is gone
    assert ask()["schema"] == "public"
    for org, count in ((alpha, 1), (beta, 0)):
        with tenant_context(org):
            assert Cluster.objects.count() == count


def test_a_page_sends_its_tasks_to_our_broker() -> None:
    """In a web process, which starts from wsgi.py and not from the worker's command line."""
    code = (
        "import django; django.setup(); from django.conf import settings; from orgs.tasks import mail_reset;"
        "assert mail_reset.app.conf.broker_url == settings.REDIS_URL, mail_reset.app.conf.broker_url"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
