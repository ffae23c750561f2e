"""Bytes that the log and the verifier agree on: leaves, key ids, signed notes (C2SP)."""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
from collections.abc import Sequence

from claims.errors import ProofError
from fleet.domain.signed_notes import ED25519, key_id


def leaf_bytes(sha256: str, received_us: int, cluster: str, node: str, agent: str | None, seq: int | None) -> bytes:
    """The bytes of a leaf; numbers as texts, so that no reader rounds them."""
    parts = ["goodput/leaf/1", sha256, str(received_us), cluster, node, agent, None if seq is None else str(seq)]
    return json.dumps(parts, separators=(",", ":"), ensure_ascii=False).encode()


def refused_bytes(sha256: str, refused_us: int, code: str) -> bytes:
    """The bytes of the leaf of an upload that was refused."""
    return json.dumps(["goodput/refused/1", sha256, str(refused_us), code], separators=(",", ":")).encode()


def document_bytes(digest: str, adopted_us: int, name: str) -> bytes:
    """The bytes of the leaf of a document that the org adopted: a contract's version, a rule set, an amendment."""
    parts = ["goodput/document/1", digest, str(adopted_us), name]
    return json.dumps(parts, separators=(",", ":"), ensure_ascii=False).encode()


#: What begins the line of a checkpoint that commits to the ends of agents' keys.
REVOCATIONS = "revocations"


def revocations_line(ends: Sequence[Sequence[str]]) -> str:
    """The line of a checkpoint that commits to the ends of agents' keys: how many, and the SHA-256 of their list, each
    `[SHA-256 of the key's name in the log, hex; microseconds]`, in the order of their leaves.
    """
    raw = json.dumps([list(one) for one in ends], separators=(",", ":")).encode()
    return f"{REVOCATIONS} {len(ends)} {hashlib.sha256(raw).hexdigest()}"


def public_key(verifier: str) -> tuple[str, bytes]:
    """(name, public key) of a C2SP verifier key. Raises ProofError."""
    name, _, rest = verifier.strip().partition("+")
    hexed, _, blob = rest.partition("+")
    try:
        raw = base64.b64decode(blob, validate=True)
    except (binascii.Error, ValueError) as error:
        raise ProofError("The log's key is no base64.", "key") from error
    if len(raw) != 33 or raw[:1] != ED25519 or key_id(name, raw[1:]).hex() != hexed:
        raise ProofError("The log's key does not fit its own id.", "key")
    return name, raw[1:]


def open_note(note: str, name: str, public: bytes) -> tuple[str, bytes]:
    """(signed text, signature) of the line that this key's name and id mark. Raises ProofError."""
    text, found, lines = note.rpartition("\n\n")
    if not found:
        raise ProofError("A note has an empty line before its signatures.", "note")
    for line in lines.splitlines():
        mark, _, blob = line.rpartition(" ")
        if mark != f"— {name}":
            continue
        try:
            raw = base64.b64decode(blob, validate=True)
        except (binascii.Error, ValueError) as error:
            raise ProofError("A signature is no base64.", "note") from error
        if raw[:4] == key_id(name, public) and len(raw) == 68:
            return text + "\n", raw[4:]
    raise ProofError(f"The note bears no signature of {name}.", "signature")
