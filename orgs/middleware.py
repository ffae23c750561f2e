"""Opens the org that a path names, for the time of one request, after checking that this person may enter it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django.contrib.auth.views import redirect_to_login
from django.core.exceptions import PermissionDenied
from django.db import connection as _connection
from django.http import Http404, HttpRequest, HttpResponseBase

from orgs import viewing
from orgs.access import get_access
from orgs.errors import NoSuchOrg

connection: Any = _connection  # django-tenants' backend, which has no types
SAFE = ("GET", "HEAD", "OPTIONS")


def honours_clusters(view: Callable[..., Any]) -> Callable[..., Any]:
    """Mark a view that shows nothing outside `request.access.clusters`; no other opens to restricted people."""
    view.honours_clusters = True  # type: ignore[attr-defined]
    return view


class OrgMiddleware:
    """`/o/<slug>/…`: sets request.org, request.role and the schema; every other path stays in the public schema."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponseBase]):
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        connection.set_schema_to_public()
        try:
            response = self.get_response(request)
            if getattr(response, "streaming", False) and hasattr(request, "org"):
                raise RuntimeError("A page of an org must not stream: its rows would be read outside the org.")
            if hasattr(request, "org") and not response.has_header("Cache-Control"):
                response["Cache-Control"] = (
                    "private, no-store"  # not for a proxy, nor for whoever goes back after logout
                )
            return response
        finally:
            connection.set_schema_to_public()

    def process_view(
        self, request: HttpRequest, view: Callable[..., Any], args: Any, kwargs: dict[str, Any]
    ) -> HttpResponseBase | None:
        """Take `org_slug` out of the URL's arguments and enter that org, before any transaction begins."""
        slug = kwargs.pop("org_slug", None)
        if slug is None:
            return None
        try:
            access = get_access(request.user, slug)
        except NoSuchOrg as error:
            if not request.user.is_authenticated:
                return redirect_to_login(request.get_full_path())
            raise Http404(str(error)) from error
        access = viewing.seen_through(request, access)
        if access.is_viewing and request.method not in SAFE:
            raise PermissionDenied("You are looking at this org as its viewers do. End the view to change anything.")
        if access.clusters and not getattr(view, "honours_clusters", False):
            raise PermissionDenied("You may see some clusters of this org only, and this page shows all.")
        request.access, request.org, request.role = access, access.org, access.role  # type: ignore[attr-defined]
        if request.user.is_authenticated and request.session.get("last_org") != slug:
            request.session["last_org"] = slug
        connection.set_tenant(access.org)
        return None
