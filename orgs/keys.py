"""Customer keys: made, read from a header, resolved to their org.

A key is a random 256-bit secret, so its SHA-256 is a safe index: the database is asked for the hash of what came, and
no comparison of secrets happens in Python. Resolved keys are kept in this process for a few seconds.
"""

from __future__ import annotations

import hashlib
import secrets
import threading
import time
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.conf import settings
from django.db import connection
from django.utils import timezone

from orgs.errors import KeyRefused
from orgs.models import ApiKey, Org

PREFIX = "gp_"
MAX_TOKEN_CHARS = 256
MAX_CACHED = 20_000
LAST_USED_EVERY = timedelta(minutes=1)
_COLUMNS = """select k.id, k.prefix, k.scopes, k.cluster, k.node, k.expires_at, k.revoked_at, k.last_used_at,
       o.id, o.slug, o.schema_name, o.status
  from public.orgs_apikey k join public.orgs_org o on o.id = k.org_id where k.secret_hash = %s"""


@dataclass(frozen=True)
class KeyInfo:
    """What a request needs to know of its key. `is_authenticated` lets DRF treat it as a user."""

    id: int
    prefix: str
    scopes: frozenset[str]
    cluster: str
    expires_at: datetime | None
    org_id: int
    org_slug: str
    schema_name: str
    node: str = ""

    is_authenticated = True

    def require(self, scope: str) -> None:
        """Raises KeyRefused('missing_scope') → 403 unless the key has `scope`."""
        if scope not in self.scopes:
            raise KeyRefused(f"This key lacks the scope {scope}.", "missing_scope", 403)


def hash_of(token: str) -> bytes:
    """The SHA-256 of a token, as stored."""
    return hashlib.sha256(token.encode()).digest()


def new_token() -> tuple[str, str]:
    """(token, prefix): `gp_` and 8 + 43 characters; secret scanners can match it, the prefix may be shown."""
    prefix = PREFIX + secrets.token_hex(4)
    return f"{prefix}_{secrets.token_urlsafe(32)}", prefix


def token_of(header: str) -> str:
    """The token in an Authorization header. Raises KeyRefused → 401 for anything but one printable bearer token."""
    scheme, _, token = header.partition(" ")
    token = token.strip(" ")
    if scheme.lower() != "bearer" or not token:
        raise KeyRefused("Send the key as: Authorization: Bearer <key>.")
    if len(token) > MAX_TOKEN_CHARS or not token.isascii() or not token.isprintable() or " " in token or "," in token:
        raise KeyRefused("This is not a key.")
    return token


def is_public_knowledge(token: str) -> bool:
    """Whether this is a default such as devtoken, which is a key in local mode only, even when it is stored as one."""
    return token in settings.GOODPUT_DEFAULT_SECRETS and not settings.GOODPUT_EXPOSE.is_open


class _Cache:
    """hash -> KeyInfo or refusal, for `GOODPUT_KEY_CACHE_SECONDS`; revocation takes effect within that time."""

    def __init__(self) -> None:
        self._entries: dict[bytes, tuple[float, KeyInfo | KeyRefused]] = {}
        self._lock = threading.Lock()

    def get(self, digest: bytes) -> KeyInfo | KeyRefused | None:
        entry = self._entries.get(digest)
        if entry is None or entry[0] < time.monotonic():
            return None
        return entry[1]

    def put(self, digest: bytes, found: KeyInfo | KeyRefused) -> None:
        with self._lock:
            if len(self._entries) >= MAX_CACHED:  # a flood of made-up keys must not grow this process
                self._entries.clear()
            self._entries[digest] = (time.monotonic() + settings.GOODPUT_KEY_CACHE_SECONDS, found)

    def clear(self) -> None:
        with self._lock:
            self._entries.clear()


cache = _Cache()


def resolve(token: str, address: str | None = None) -> KeyInfo:
    """The key's org, scopes and cluster.

    Raises KeyRefused → 401: `invalid_key`, `expired_key`, `revoked_key`, `default_secret`; → 403 `org_suspended`.
    """
    if is_public_knowledge(token):
        raise KeyRefused("This key is public knowledge and opens nothing here. Create a new one.", "default_secret")
    digest = hash_of(token)
    found = cache.get(digest)
    if found is None:
        found = _look_up(digest, address)
        cache.put(digest, found)
    if isinstance(found, KeyRefused):
        raise KeyRefused(found.detail, found.code, found.status)
    if found.expires_at is not None and found.expires_at <= timezone.now():
        raise KeyRefused("This key has expired. Create a new one.", "expired_key")
    return found


def _look_up(digest: bytes, address: str | None) -> KeyInfo | KeyRefused:
    """The key as the database has it now, with `last_used_at` brought up to date at most once a minute."""
    with connection.cursor() as cursor:
        cursor.execute(_COLUMNS, [digest])
        row = cursor.fetchone()
    if row is None:
        return KeyRefused("This key is not known here.")
    key_id, prefix, scopes, cluster, node, expires_at, revoked_at, last_used_at, org_id, slug, schema, status = row
    if revoked_at is not None:
        return KeyRefused("This key was revoked.", "revoked_key")
    if status != Org.Status.ACTIVE:
        return KeyRefused("This org is suspended.", "org_suspended", 403)
    now = timezone.now()
    if last_used_at is None or now - last_used_at > LAST_USED_EVERY:
        ApiKey.objects.filter(pk=key_id).update(last_used_at=now, last_used_address=address)
    granted = frozenset(scopes) | ({"read"} if ApiKey.Scope.ADMIN_READ in scopes else frozenset())
    return KeyInfo(key_id, prefix, granted, cluster, expires_at, org_id, slug, schema, node)
