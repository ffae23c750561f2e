"""The signing key of this installation: receipts, checkpoints and packs bear its Ed25519 signature."""

from __future__ import annotations

import base64
import os
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from django.conf import settings

from fleet.domain.signed_notes import ED25519, key_id

_loaded: dict[tuple[Path, int, str], LogKey] = {}


@dataclass(frozen=True)
class LogKey:
    """The log's signing key: its name in notes, the private key, the public bytes."""

    name: str
    private: Ed25519PrivateKey

    @cached_property
    def public(self) -> bytes:
        """32 bytes."""
        return self.private.public_key().public_bytes(serialization.Encoding.Raw, serialization.PublicFormat.Raw)

    def sign(self, text: str) -> str:
        """The note: text, an empty line, the signature line of C2SP signed-note."""
        blob = key_id(self.name, self.public) + self.private.sign(text.encode())
        return f"{text}\n— {self.name} {base64.b64encode(blob).decode()}\n"

    def verifier(self) -> str:
        """The verifier key of C2SP: name, id and public key."""
        blob = base64.b64encode(ED25519 + self.public).decode()
        return f"{self.name}+{key_id(self.name, self.public).hex()}+{blob}"


def load_key() -> LogKey:
    """The log key of this installation, made when there is none; a file that only its owner reads.

    It is read again only when the file has changed: every receipt asks for it.
    """
    path = Path(settings.GOODPUT_VAR) / "secrets" / "log-ed25519.key"
    name = f"goodput-log/{(settings.GOODPUT_PUBLIC_URL or 'self-hosted').rpartition('/')[2]}"
    try:
        changed = path.stat().st_mtime_ns
    except FileNotFoundError:
        _make(path)
        changed = path.stat().st_mtime_ns
    key = _loaded.get((path, changed, name))
    if key is None:
        key = LogKey(name, Ed25519PrivateKey.from_private_bytes(base64.b64decode(path.read_bytes())))
        _loaded.clear()
        _loaded[path, changed, name] = key
    return key


def _make(path: Path) -> None:
    """Write a new key unless another process did; whole, or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    fresh = path.with_name(f"{path.name}.{os.getpid()}-{os.urandom(4).hex()}")
    handle = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(base64.b64encode(os.urandom(32)) + b"\n")
            file.flush()
            os.fsync(file.fileno())
        with suppress(FileExistsError):
            os.link(fresh, path)
    finally:
        fresh.unlink()
