"""Signed instance tokens of a provider over a checkpoint's root, checked offline: JWTs (RS256) of Google's kind."""

from __future__ import annotations

import base64
import binascii
import json
from datetime import UTC, datetime
from typing import Any

from claims.errors import ProofError
from claims.verify.signatures import Key

GOOGLE = ("https://accounts.google.com", "accounts.google.com")


def audience_of(root: bytes) -> str:
    """The audience that stands for a root."""
    return f"goodput-log-root:{root.hex()}"


def read_keys(text: str) -> dict[str, Key]:
    """Key id → RSA key of a JWKS. Raises ProofError."""
    try:
        keys = {
            one["kid"]: Key((_number(one["n"]), _number(one["e"])))
            for one in json.loads(text)["keys"]
            if one.get("kty") == "RSA"
        }
    except (ValueError, KeyError, TypeError) as error:
        raise ProofError(f"These are no public keys (JWKS): {error}", "keys") from error
    if not keys:
        raise ProofError("There is no RSA key among the provider's keys.", "keys")
    return keys


def check_google(token: bytes, root: bytes, keys: str) -> tuple[datetime, str]:
    """(when it was signed, which instance) of an identity token over the root. Raises ProofError."""
    parts = token.strip().split(b".")
    if len(parts) != 3:
        raise ProofError("An instance token has three parts.", "token")
    head, said = _json(parts[0]), _json(parts[1])
    if head.get("alg") != "RS256":
        raise ProofError("An instance token is signed RS256.", "token")
    key = read_keys(keys).get(str(head.get("kid")))
    if key is None:
        raise ProofError("The instance token is signed with a key that is not pinned.", "token")
    if not key.verify(parts[0] + b"." + parts[1], _bytes(parts[2]), "sha256"):
        raise ProofError("The instance token does not bear the provider's signature.", "token")
    if said.get("aud") != audience_of(root):
        raise ProofError("The instance token is over another root.", "token")
    if said.get("iss") not in GOOGLE:
        raise ProofError("The instance token is of another issuer.", "token")
    machine = said.get("google", {}).get("compute_engine", {})
    if not machine.get("instance_id") or not isinstance(said.get("iat"), int):
        raise ProofError("The instance token names no instance and time.", "token")
    who = f"{machine.get('project_id', '')} {machine.get('instance_name', '')} {machine['instance_id']}".strip()
    return datetime.fromtimestamp(said["iat"], UTC), f"Google, instance {who}"


def _json(part: bytes) -> dict[str, Any]:
    try:
        found = json.loads(_bytes(part))
    except ValueError as error:
        raise ProofError("A part of the instance token is no JSON.", "token") from error
    if not isinstance(found, dict):
        raise ProofError("A part of the instance token is no JSON object.", "token")
    return found


def _bytes(part: bytes) -> bytes:
    try:
        return base64.b64decode(part + b"=" * (-len(part) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError) as error:
        raise ProofError("A part of the instance token is no base64url.", "token") from error


def _number(text: str) -> int:
    return int.from_bytes(_bytes(text.encode()), "big")
