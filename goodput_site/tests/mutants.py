"""A plugin for pytest that takes away one of the things that keep orgs apart, named by GOODPUT_MUTANT.

Used by test_isolation_mutations.py: with any of them gone, the isolation tests must fail.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any


def membership() -> None:
    """Whoever is signed in may enter every org."""
    from orgs import middleware
    from orgs.access import Access
    from orgs.models import Org

    real = middleware.get_access

    def open_door(user: Any, slug: str) -> Access:
        org = Org.objects.filter(slug=slug, status="active").first()
        return Access(org, "viewer") if org and user.is_authenticated else real(user, slug)

    middleware.get_access = open_door  # type: ignore[assignment]


def cache_prefix() -> None:
    """Cached values carry no org."""
    from django.conf import settings
    from django.core.cache import caches
    from django.core.cache.backends.base import default_key_func

    settings.CACHES["default"]["KEY_FUNCTION"] = default_key_func
    caches["default"].key_func = default_key_func


def schema_reset() -> None:
    """A request leaves its connection in the org that it was in."""
    from orgs.middleware import OrgMiddleware

    OrgMiddleware.__call__ = lambda self, request: self.get_response(request)  # type: ignore[method-assign]


def task_org() -> None:
    """A task runs wherever the connection happens to be."""
    from celery import current_app

    from orgs.models import Org

    current_app.loader.import_default_modules()
    for task in list(current_app.tasks.values()):
        if getattr(task.run, "is_of_an_org", False):
            run = task.run.__wrapped__
            task.run = lambda org_id, *args, run=run: run(Org.objects.get(pk=org_id), *args)


def key_org() -> None:
    """A key opens the first org that has one, not its own."""
    from dataclasses import replace

    from orgs import authentication
    from orgs.models import ApiKey

    real = authentication.key_of

    def wrong(request: Any) -> Any:
        key = real(request)
        other = ApiKey.objects.exclude(org_id=key.org_id).select_related("org").order_by("pk").first()
        return replace(key, org_id=other.org_id, schema_name=other.org.schema_name) if other else key

    authentication.key_of = wrong


MUTANTS: dict[str, Callable[[], None]] = {
    one.__name__: one for one in (membership, cache_prefix, schema_reset, task_org, key_org)
}


def pytest_sessionstart() -> None:
    """Take it away; without a name nothing is taken."""
    name = os.environ.get("GOODPUT_MUTANT")
    if name:
        MUTANTS[name]()
