"""Secrets of channels, encrypted at rest with a key made from the server's own secret key.

Nothing decrypted is ever put into a page, an answer of the API, the audit trail or a log.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping

from cryptography.fernet import Fernet, InvalidToken, MultiFernet
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from django.conf import settings

PURPOSE = b"goodput alert channels 1"


class SealBroken(Exception):
    """This can't be decrypted: the server's secret key is another than the one that sealed it."""


def seal(secrets: Mapping[str, str]) -> bytes:
    """The secrets, encrypted and authenticated."""
    return _fernet().encrypt(json.dumps(dict(secrets)).encode())


def unseal(sealed: bytes | memoryview | None) -> dict[str, str]:
    """The secrets again; nothing for nothing. Raises SealBroken."""
    if sealed is None:
        return {}
    try:
        found: dict[str, str] = json.loads(_fernet().decrypt(bytes(sealed)))
    except InvalidToken as error:
        raise SealBroken("Its secrets were sealed with another secret key of this server: enter them again.") from error
    return found


def _fernet() -> MultiFernet:
    keys = [settings.SECRET_KEY, *settings.SECRET_KEY_FALLBACKS]
    return MultiFernet([Fernet(_derived(key)) for key in keys])


def _derived(secret_key: str) -> bytes:
    derived = HKDF(algorithm=SHA256(), length=32, salt=None, info=PURPOSE).derive(secret_key.encode())
    return base64.urlsafe_b64encode(derived)
