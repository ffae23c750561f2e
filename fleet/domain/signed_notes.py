"""Bytes that are signed with the log's key, as server, agent and verifier write them (C2SP signed notes)."""

from __future__ import annotations

import hashlib

ED25519 = b"\x01"


def key_id(name: str, public: bytes) -> bytes:
    """Four bytes that name a key in a note: SHA-256(name, newline, type, public key)."""
    return hashlib.sha256(name.encode() + b"\n" + ED25519 + public).digest()[:4]
