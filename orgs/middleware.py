"""Opens the org that a path names, for the time of one request, after checking that this person may enter it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django.contrib.auth.views import redirect_to_login
from django.db import connection as _connection
from django.http import Http404, HttpRequest, HttpResponseBase

from orgs.access import get_access
from orgs.errors import NoSuchOrg

connection: Any = _connection  # django-tenants' backend, which has no types


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
        request.access, request.org, request.role = access, access.org, access.role  # type: ignore[attr-defined]
        if request.user.is_authenticated and request.session.get("last_org") != slug:
            request.session["last_org"] = slug
        connection.set_tenant(access.org)
        return None
