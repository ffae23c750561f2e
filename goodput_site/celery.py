"""The Celery app. Tasks live in the apps' `tasks.py`; a task of an org takes its `org_id` and opens the org itself."""

from __future__ import annotations

import os
import time
from typing import Any

from celery import Celery, states
from celery.signals import task_postrun, task_prerun

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "goodput_site.settings")
app = Celery("goodput")
app.config_from_object("django.conf:settings", namespace="CELERY")
app.autodiscover_tasks()


@task_prerun.connect  # type: ignore[untyped-decorator]
def _begin(task: Any = None, **_: Any) -> None:
    task.request.goodput_began = time.perf_counter()


@task_postrun.connect  # type: ignore[untyped-decorator]
def _count(task: Any = None, state: str = "", **_: Any) -> None:
    from goodput_site import counters

    failed = state == states.FAILURE
    counters.count("goodput_task_failures_total" if failed else "goodput_task_runs_total", task.name)
    began = getattr(task.request, "goodput_began", None)
    if began is not None:
        counters.count("goodput_task_seconds_total", task.name, time.perf_counter() - began)
