"""Customer keys: made, read from a header, resolved to their org.

A key is a random 256-bit secret, so its SHA-256 is a safe index: the database is asked for the hash of what came, and
no comparison of secrets happens in Python. Resolved keys are kept in this process for a few seconds.

Guesses are counted per sender and per key id (a token's first part). Past the limit a key that was good in this process
before is looked up as ever, so an agent behind the guesser's address goes on; anything else only within a rate that the
database does not feel, so that a new agent there comes in too, if not at its first try.
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

from orgs.addresses import sender_of
from orgs.buckets import Buckets, Rate
from orgs.errors import KeyRefused
from orgs.models import ApiKey, Org

PREFIX = "gp_"
MAX_TOKEN_CHARS = 256
MAX_CACHED = 20_000
MAX_KNOWN = 50_000
GUESSES = {"sender": Rate(0.5, 60), "key id": Rate(0.2, 20)}  # wrong keys a second, and at once
PAST_THE_LIMIT = Rate(100, 100)  # look-ups a second for all who guessed too often
WAIT_S = 30  # for who guessed too often
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
guesses = Buckets()
_known: set[bytes] = set()  # hashes of keys that were good in this process


def resolve(token: str, address: str | None = None) -> KeyInfo:
    """The key's org, scopes and cluster.

    Raises KeyRefused → 401: `invalid_key`, `expired_key`, `revoked_key`, `default_secret`; → 403 `org_suspended`;
    → 429 `too_many_wrong_keys`.
    """
    if is_public_knowledge(token):
        raise KeyRefused("This key is public knowledge and opens nothing here. Create a new one.", "default_secret")
    digest = hash_of(token)
    found = cache.get(digest)
    if found is None:
        found = _look_up_unless_guessed(token, digest, address)
        cache.put(digest, found)
    if isinstance(found, KeyRefused):
        raise KeyRefused(found.detail, found.code, found.status)
    if found.expires_at is not None and found.expires_at <= timezone.now():
        raise KeyRefused("This key has expired. Create a new one.", "expired_key")
    return found


def _look_up_unless_guessed(token: str, digest: bytes, address: str | None) -> KeyInfo | KeyRefused:
    """The key, or what refuses it; a guess is counted. Raises KeyRefused → 429 for who made too many."""
    whose = {"sender": sender_of(address), "key id": token[: len(PREFIX) + 8]}
    if (
        digest not in _known
        and not all(guesses.has((kind, whose[kind]), rate) for kind, rate in GUESSES.items())
        and guesses.take((("past the limit", ""), PAST_THE_LIMIT, 1.0)) > 0
    ):
        refusal = KeyRefused("Too many wrong keys came from here or for this key.", "too_many_wrong_keys", 429)
        refusal.wait_seconds = WAIT_S
        raise refusal
    found = _look_up(digest, address)
    if isinstance(found, KeyInfo):
        if len(_known) >= MAX_KNOWN:
            _known.clear()
        _known.add(digest)
    elif found.code == "invalid_key":
        for kind, rate in GUESSES.items():
            guesses.take(((kind, whose[kind]), rate, 1.0))
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
