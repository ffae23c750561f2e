"""The Celery app. Tasks live in the apps' `tasks.py`; a task of an org takes its `org_id` and opens the org itself."""

from __future__ import annotations

import os

from celery import Celery

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "goodput_site.settings")
app = Celery("goodput")
app.config_from_object("django.conf:settings", namespace="CELERY")
app.autodiscover_tasks()
