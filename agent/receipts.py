"""Receipts: checked against the log's key where one is known, and kept.

The key is pinned by the settings, else the one that the enrolment told (trust on first use). A pinned key is never
given up; a learnt one is asked for again when a receipt does not bear its signature.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from typing import Any, Callable, Mapping, Optional

from agent import ed25519, wire
from agent.errors import ConfigError

KEPT_BYTES = 32_000_000  # some hundred days of one node
_BASE64 = re.compile(r"[A-Za-z0-9+/=]{1,128}")
Keep = Callable[[int, str], None]


def read_log_key(text: str) -> bytes:
    """The 32 bytes of a verifier key (C2SP signed note: name+id+base64). Raises ConfigError."""
    try:
        raw = base64.b64decode(text.strip().split("+", 2)[2], validate=True)
    except (IndexError, binascii.Error, ValueError):
        raw = b""
    if len(raw) != 1 + ed25519.PUBLIC_BYTES or raw[:1] != b"\x01":
        raise ConfigError("the log's key must be a verifier key as GET /v1/log-key gives it: name+id+base64")
    return raw[1:]


class Receipts:
    """Checks and keeps the receipts of one node. `learnt` gives the key of the enrolment, `doubt` asks for it anew."""

    def __init__(
        self,
        pinned: Optional[str] = None,
        learnt: Callable[[], Optional[str]] = lambda: None,
        doubt: Callable[[], None] = lambda: None,
        keep: Keep = lambda at_ms, line: None,
    ) -> None:
        self._pinned = read_log_key(pinned) if pinned else None
        self._learnt = learnt
        self._doubt = doubt
        self._keep = keep

    def check(self, receipt: Mapping[str, Any]) -> str:
        """What is wrong with the signature of a receipt; empty: it is good, or there is no key to check it with."""
        key = self._pinned or self._learnt_key()
        if key is None:
            return ""
        if _is_by(key, receipt):
            return ""
        if self._pinned is None:
            self._doubt()
            return "the receipt does not bear the signature of the log's key; asking for the key again"
        return "the receipt does not bear the signature of the pinned log key"

    def keep(self, at_ms: int, receipt: Mapping[str, Any]) -> None:
        """Keeps a receipt: what was signed, and the signature."""
        signature = receipt.get("signature")
        if isinstance(signature, str) and _BASE64.fullmatch(signature):
            self._keep(at_ms, f"{json.dumps(_parts(receipt), separators=(',', ':'))} {signature}")

    def _learnt_key(self) -> Optional[bytes]:
        text = self._learnt()
        try:
            return read_log_key(text) if text else None
        except ConfigError:
            return None


def _parts(receipt: Mapping[str, Any]) -> list[Any]:
    return [receipt.get(key) for key in ("batch_sha256", "node", "seq", "received_at")]


def _is_by(key: bytes, receipt: Mapping[str, Any]) -> bool:
    """Whether the key signed the receipt; where nothing here can tell, whether it bears a signature."""
    try:
        signature = base64.b64decode(receipt.get("signature") or "", validate=True)
        return ed25519.verify(key, wire.receipt_message(*_parts(receipt)), signature) is not False
    except (binascii.Error, ValueError, TypeError):  # no base64, or text that no bytes can say
        return False
