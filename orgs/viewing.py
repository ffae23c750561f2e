"""View as customer: provider staff see an org as its viewers do, read-only, for half an hour, with a banner.

Beginning and end stand in the audit trail, the end also when the half hour runs out (told at the next request).
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.db import transaction
from django.http import HttpRequest
from django.utils import timezone
from django_tenants.utils import schema_context

from orgs.access import Access
from orgs.addresses import client_address
from orgs.models import Org
from orgs.services import record

LASTS = timedelta(minutes=30)
_KEY = "viewing"


@dataclass(frozen=True)
class View:
    """An org that somebody looks at as its viewers do, until an instant."""

    org_id: int
    slug: str
    until: datetime


def begin(request: HttpRequest, org: Org) -> View:
    """Start to see `org` as its viewers do; a view of another org ends."""
    end(request)
    view = View(org.pk, org.slug, timezone.now() + LASTS)
    with schema_context("public"), transaction.atomic():
        told: dict[str, Any] = {"after": {"until": view.until.isoformat()}, "address": client_address(request.META)}
        record("org.view_began", actor=_actor(request), org=org, target=org.slug, **told)
    request.session[_KEY] = {"org_id": org.pk, "slug": org.slug, "until": view.until.timestamp()}
    return view


def end(request: HttpRequest, *, why: str = "ended") -> None:
    """Stop; nothing happens where no view is open."""
    kept = request.session.pop(_KEY, None)
    if kept is None:
        return
    with schema_context("public"), transaction.atomic():
        org = Org.objects.filter(pk=kept["org_id"]).first()
        told: dict[str, Any] = {"after": {"why": why}, "address": client_address(request.META)}
        record("org.view_ended", actor=_actor(request), org=org, target=kept["slug"], **told)


def current(request: HttpRequest) -> View | None:
    """The open view of this session; None where there is none, or its time is over."""
    if not getattr(getattr(request, "user", None), "is_staff", False):  # the API puts a key there, or nobody
        return None
    kept = request.session.get(_KEY)
    if not kept:
        return None
    view = View(kept["org_id"], kept["slug"], datetime.fromtimestamp(kept["until"], timezone.get_default_timezone()))
    if view.until <= timezone.now():
        end(request, why="its time was over")
        return None
    return view


def seen_through(request: HttpRequest, access: Access) -> Access:
    """The access that holds now: a viewer's while this session views this org."""
    view = current(request)
    return access.as_viewer() if view is not None and view.org_id == access.org.pk else access


def _actor(request: HttpRequest) -> str:
    return request.user.email if request.user.is_authenticated else "nobody"
