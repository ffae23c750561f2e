"""Installations for tests: a real Ed25519 key, real enrolments and batches over the test client."""

from __future__ import annotations

import base64
import json
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from django.test import Client

from agent import wire
from fleet.ingest import receive
from fleet.tests.bodies import packed
from orgs.keys import KeyInfo


class Installation:
    """One agent: its identity, its key, what it says of itself."""

    def __init__(self, agent_id: str = "a1", node: str = "n1", **more: Any) -> None:
        self.private = Ed25519PrivateKey.generate()
        self.said = {
            "agent_id": agent_id, "public_key": base64.b64encode(self.public).decode(), "cluster_id": "c1",
            "node_id": node, "agent_version": "0.1.0", **more,
        }  # fmt: skip

    @property
    def public(self) -> bytes:
        """Its public key."""
        return self.private.public_key().public_bytes_raw()

    def enrol(self, token: str | None, body: bytes | None = None, signature: str | None = None, **more: Any) -> Any:
        """The answer to its enrolment."""
        raw = json.dumps({**self.said, **more}).encode() if body is None else body
        proof = base64.b64encode(self.private.sign(wire.enrolment_message(raw))).decode()
        headers = {"HTTP_X_GOODPUT_SIGNATURE": proof if signature is None else signature}
        if token is not None:
            headers["HTTP_AUTHORIZATION"] = f"Bearer {token}"
        client = Client(HTTP_HOST="localhost")
        return client.post("/v1/enrol", raw, content_type="application/json", **headers)

    def send(self, org: Any, seq: int, signed: bool | bytes = True, **more: Any) -> bytes:
        """Its batch `seq` into the inbox; the hash. `signed`: by its own key, not at all, or these bytes."""
        own = {"agent_id": self.said["agent_id"], "node_id": self.said["node_id"], "seq": seq}
        body, sha256 = packed(**{**own, **more})
        digest = bytes.fromhex(sha256)
        made: bytes | None = signed if isinstance(signed, bytes) else None
        if signed is True:
            made = self.private.sign(wire.signed_message(digest))
        key = KeyInfo(0, "test", frozenset({"ingest"}), "", None, org.pk, org.slug, org.schema_name)
        headers = {} if made is None else {wire.HEADER_SIGNATURE: base64.b64encode(made).decode()}
        receive(body, key, headers)
        return digest
