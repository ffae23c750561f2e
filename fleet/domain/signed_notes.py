"""Bytes that are signed with the log's key, as server, agent and verifier write them (C2SP signed notes)."""

from __future__ import annotations

import hashlib
import json

ED25519 = b"\x01"
RECEIPT_TAG = b"goodput/receipt/v1\x00"


def key_id(name: str, public: bytes) -> bytes:
    """Four bytes that name a key in a note: SHA-256(name, newline, type, public key)."""
    return hashlib.sha256(name.encode() + b"\n" + ED25519 + public).digest()[:4]


def receipt_bytes(batch_sha256: str, node: str, seq: int | None, received_at: str) -> bytes:
    """What a receipt's signature is over; `received_at` as it stands in the receipt. A duplicate's is the same."""
    parts = [batch_sha256, node, seq, received_at]
    return RECEIPT_TAG + json.dumps(parts, separators=(",", ":"), ensure_ascii=False).encode()
