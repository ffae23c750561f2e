"""What the signature of a batch says, given the keys that its installation enrolled. Pure but for Ed25519 itself."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from agent import wire

PUBLIC_BYTES = 32
SIGNATURE_BYTES = 64
VALID, UNSIGNED, UNKNOWN_KEY, BAD, REVOKED = "valid", "unsigned", "unknown_key", "bad", "revoked"


@dataclass(frozen=True)
class KnownKey:
    """An enrolled key, known from `since` on. `until`: when it was revoked; what came before stays signed."""

    public_key: bytes
    since: datetime
    until: datetime | None = None


def judge(sha256: bytes, signature: bytes | None, received_at: datetime, keys: Iterable[KnownKey]) -> str:
    """`valid`, `unsigned`, `unknown_key` (none was enrolled then), `revoked`, or `bad`: no key known then made it.

    Keys that became known after the batch came say nothing of it, so judging it again later finds the same.
    """
    if signature is None:
        return UNSIGNED
    found = BAD
    enrolled = False
    for key in keys:
        if received_at < key.since:
            continue
        enrolled = True
        if is_by(key.public_key, signature, wire.signed_message(sha256)):
            if key.until is None or received_at < key.until:
                return VALID
            found = REVOKED
    return found if enrolled else UNKNOWN_KEY


def is_by(public_key: bytes, signature: bytes, message: bytes) -> bool:
    """Whether the key's owner signed this message."""
    try:
        _loaded(public_key).verify(signature, message)
    except (InvalidSignature, ValueError):
        return False
    return True


@lru_cache(maxsize=16_384)
def _loaded(public_key: bytes) -> Ed25519PublicKey:
    return Ed25519PublicKey.from_public_bytes(public_key)
