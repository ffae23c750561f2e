"""A task opens the org of its id, or does not run."""

from __future__ import annotations

import logging
import subprocess
import sys
from typing import Any

import pytest
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


def test_a_page_sends_its_tasks_to_our_broker() -> None:
    """In a web process, which starts from wsgi.py and not from the worker's command line."""
    code = (
        "import django; django.setup(); from django.conf import settings; from orgs.tasks import mail_reset;"
        "assert mail_reset.app.conf.broker_url == settings.REDIS_URL, mail_reset.app.conf.broker_url"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
