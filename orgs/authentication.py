"""Who calls the API: a key (it names the org), a signed-in person, or in local mode anybody on this machine."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.conf import settings
from django.db import DatabaseError, connection
from rest_framework import authentication, exceptions
from rest_framework.request import Request

from orgs import keys, second_factor, viewing
from orgs.access import PROVIDER, get_access, is_open_to_all, list_orgs
from orgs.addresses import client_address
from orgs.errors import KeyRefused
from orgs.keys import KeyInfo
from orgs.models import Org


class Unavailable(exceptions.APIException):
    """The database can't be asked who this is: try again later."""

    status_code = 503
    default_code = "unavailable"
    default_detail = "The database does not answer right now. Try again."


_LOCAL = b"local"  # the place of the standing-in key in the cache of keys


class Refused(exceptions.APIException):
    """A KeyRefused for DRF: keeps its status, code and sentence."""

    def __init__(self, error: KeyRefused):
        super().__init__(error.detail, error.code)
        self.status_code = error.status
        self.wait = error.wait_seconds  # becomes Retry-After
        if error.status == 401:
            self.auth_header = "Bearer"


def local_key() -> KeyInfo | None:
    """What stands for the missing key in local mode: the default org with both scopes; None in any other mode."""
    slug = settings.GOODPUT_DEFAULT_ORG
    if not is_open_to_all(slug):
        return None
    known = keys.cache.get(_LOCAL)
    if not isinstance(known, KeyInfo):
        org = Org.objects.filter(slug=slug, status=Org.Status.ACTIVE).first()
        if org is None:
            return None
        known = KeyInfo(0, "local", frozenset({"ingest", "read"}), "", None, org.pk, org.slug, org.schema_name)
        keys.cache.put(_LOCAL, known)
    return known


def key_of(request: Any) -> KeyInfo:
    """The key of a request (Django's or DRF's). Raises KeyRefused → 401 when there is none and none stands in."""
    return key_of_meta(request.META)


def key_of_meta(meta: Mapping[str, Any]) -> KeyInfo:
    """The key of a request with these WSGI headers. Raises KeyRefused → 401 when there is none and none stands in."""
    header = meta.get("HTTP_AUTHORIZATION")
    if header is not None:
        return keys.resolve(keys.token_of(header), client_address(meta))
    standing_in = local_key()
    if standing_in is None:
        raise KeyRefused("This server wants a key: Authorization: Bearer <key>.", "missing_key")
    return standing_in


class KeyAuthentication(authentication.BaseAuthentication):
    """A bearer key, or the local org in local mode. request.auth is the KeyInfo."""

    def authenticate(self, request: Request) -> tuple[Any, KeyInfo]:
        """(user, auth), both the KeyInfo. Raises Refused → 401 or 403."""
        try:
            info = key_of(request)
        except KeyRefused as error:
            raise Refused(error) from error
        except DatabaseError as error:
            connection.close()  # a dead connection must not refuse the next request too
            raise Unavailable from error
        return info, info

    def authenticate_header(self, request: Request) -> str:
        """What a 401 answers in WWW-Authenticate."""
        return "Bearer"


class KeyOrSessionAuthentication(KeyAuthentication):
    """A key when there is one; else the signed-in person's session, for the org that they choose with `?org=`."""

    def authenticate(self, request: Request) -> tuple[Any, KeyInfo]:
        """(user, KeyInfo with the scope `read` for a session). Raises Refused → 401, 403 or 404."""
        if "HTTP_AUTHORIZATION" not in request.META:
            user = getattr(request._request, "user", None)
            if user is not None and user.is_authenticated:
                if request.method not in ("GET", "HEAD", "OPTIONS"):
                    authentication.SessionAuthentication().enforce_csrf(request)
                    if viewing.current(request._request):
                        raise Refused(KeyRefused("You are viewing as a customer: reading only.", "viewing", 403))
                return user, self._org_of_session(request, user)
        return super().authenticate(request)

    def _org_of_session(self, request: Request, user: Any) -> KeyInfo:
        orgs = {org.slug: org for org in list_orgs(user)}
        wanted = request.query_params.get("org")
        org = orgs.get(wanted) if wanted else next(iter(orgs.values())) if len(orgs) == 1 else None
        if org is None:
            detail = "Say which org: ?org=" + ", ".join(orgs) if not wanted else "No such org, or it is not yours."
            raise Refused(KeyRefused(detail, "no_such_org", 404 if wanted else 400))
        access = get_access(user, org.slug)
        if access.role == PROVIDER and second_factor.is_missing(user):
            raise Refused(KeyRefused(second_factor.MISSING, "second_factor", 403))
        access = viewing.seen_through(request._request, access)
        if len(access.clusters) > 1:  # a key's cluster is one: rather nothing than too much
            detail = "You may see some clusters of this org only. Ask an admin for a key of the cluster that you need."
            raise Refused(KeyRefused(detail, "restricted", 403))
        scopes = {"read", "admin-read"} if access.may_audit else {"read"}
        cluster = access.clusters[0] if access.clusters else ""
        return KeyInfo(0, "session", frozenset(scopes), cluster, None, org.pk, org.slug, org.schema_name)
