"""The provider's own signed instance tokens: an instance asks its cloud to sign who it is, with the log's root in it.

An adapter knows one cloud: `ask` fetches a token whose audience names the root, `check` says when and for whom it was
signed. The metadata address is the operator's setting, never an org's: GOODPUT_INSTANCE_TOKEN_URL.
"""

from __future__ import annotations

import urllib.request
from datetime import datetime
from typing import Protocol
from urllib.parse import quote

from django.conf import settings

from claims.errors import AnchorError, ProofError
from claims.verify.tokens import audience_of, check_google

TIMEOUT_SECONDS = 5
MOST_BYTES = 16 * 1024


class TokenAdapter(Protocol):
    """One provider's way of signing instance tokens."""

    def ask(self, root: bytes) -> bytes:
        """A fresh token over the root. Raises AnchorError."""

    def check(self, token: bytes, root: bytes, keys: str) -> tuple[datetime, str]:
        """(when, which instance) of a token over the root, signed by one of these keys (JWKS). Raises ProofError."""


class Google:
    """Compute Engine: the metadata server signs an identity token (JWT, RS256) for the audience that is asked for."""

    PATH = "/computeMetadata/v1/instance/service-accounts/default/identity"

    def ask(self, root: bytes) -> bytes:
        """See TokenAdapter."""
        base = settings.GOODPUT_INSTANCE_TOKEN_URL.rstrip("/")
        if not base:
            raise AnchorError("This server has no metadata address: GOODPUT_INSTANCE_TOKEN_URL is empty.")
        url = f"{base}{self.PATH}?audience={quote(audience_of(root), safe='')}&format=full"
        request = urllib.request.Request(url, headers={"Metadata-Flavor": "Google"})  # noqa: S310 (the operator's own)
        try:
            with _OPENER.open(request, timeout=TIMEOUT_SECONDS) as answer:
                raw = answer.read(MOST_BYTES + 1)
        except OSError as error:
            raise AnchorError(f"The metadata server does not answer: {error}") from error
        if len(raw) > MOST_BYTES:
            raise AnchorError("The metadata server answered too much.")
        return bytes(raw.strip())

    def check(self, token: bytes, root: bytes, keys: str) -> tuple[datetime, str]:
        """See TokenAdapter."""
        return check_google(token, root, keys)


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *args: object, **kwargs: object) -> None:
        """A metadata server redirects nowhere."""


_OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}), _NoRedirects)
ADAPTERS: dict[str, TokenAdapter] = {"google": Google()}


def ask_token(adapter: str, root: bytes, keys: str) -> tuple[bytes, datetime, str]:
    """(the token, when, which instance), checked. Raises AnchorError."""
    found = ADAPTERS.get(adapter)
    if found is None:
        raise AnchorError(f"There is no adapter {adapter!r}.")
    token = found.ask(root)
    try:
        return (token, *found.check(token, root, keys))
    except ProofError as error:
        raise AnchorError(f"The instance token is refused: {error}") from error
