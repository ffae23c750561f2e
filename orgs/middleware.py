"""Opens the org that a path names, for the time of one request, after checking that this person may enter it."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from allauth.account.adapter import get_adapter
from allauth.core.exceptions import ReauthenticationRequired
from django.contrib import messages
from django.contrib.auth.views import redirect_to_login
from django.core.exceptions import PermissionDenied
from django.db import connection as _connection
from django.http import Http404, HttpRequest, HttpResponseBase
from django.shortcuts import redirect

from orgs import second_factor, skew, viewing
from orgs.access import PROVIDER, get_access
from orgs.errors import NoSuchOrg

connection: Any = _connection  # django-tenants' backend, which has no types
SAFE = ("GET", "HEAD", "OPTIONS")


def honours_clusters(view: Callable[..., Any]) -> Callable[..., Any]:
    """Mark a view that shows nothing outside `request.access.clusters`; no other opens to restricted people."""
    view.honours_clusters = True  # type: ignore[attr-defined]
    return view


def ask_for_second_factor(request: HttpRequest) -> HttpResponseBase:
    """To the page where provider staff set one up."""
    messages.warning(request, second_factor.MISSING)
    return redirect("mfa_index")


def enter_org(request: HttpRequest, view: Callable[..., Any], kwargs: dict[str, Any]) -> HttpResponseBase | None:
    """Enter the org that `kwargs` name, if this person may: request.org, request.role and the schema are set.

    A response says why not. Raises Http404, PermissionDenied.
    """
    slug = kwargs.pop("org_slug", None)
    if slug is None:
        return None
    try:
        access = get_access(request.user, slug)
    except NoSuchOrg as error:
        if not request.user.is_authenticated:
            return redirect_to_login(request.get_full_path())
        raise Http404(str(error)) from error
    if access.role == PROVIDER and second_factor.is_missing(request.user):
        return ask_for_second_factor(request)
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


def sensitive(view: Callable[..., Any]) -> Callable[..., Any]:
    """Mark a step before which people prove again who they are, unless they did within half an hour.

    What they sent is kept meanwhile and done afterwards. Goes outermost: the library then calls the view by its URL,
    past the middleware, so the org is entered here.
    """

    @functools.wraps(view)
    def asked(request: HttpRequest, *args: Any, **kwargs: Any) -> Any:
        if "org_slug" in kwargs:
            refused = enter_org(request, asked, kwargs)
            if refused is not None:
                return refused
        is_step = request.method not in SAFE and request.user.is_authenticated
        if is_step and get_adapter().is_reauthentication_required(app="orgs"):
            raise ReauthenticationRequired
        return view(request, *args, **kwargs)

    return asked


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
        return enter_org(request, view, kwargs)

    def process_exception(self, request: HttpRequest, exception: Exception) -> HttpResponseBase | None:
        """503 while the org's tables and this code are a version apart."""
        schema = connection.schema_name
        if schema == "public" or not skew.is_skew(exception, schema):
            return None
        if hasattr(request, "org"):
            del request.org  # its pages need tables that are not there yet
        return skew.upgrading(request)
