"""agents.json of a pack: the enrolled keys of the installations whose batches it encloses, and those batches'
signatures as they came.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable
from typing import Any

from claims.ledger import Proofs, micros
from claims.models import Leaf
from claims.verify.agents import key_name, revocation_name
from fleet.agents.selectors import keys_of
from fleet.packs import Row


def agents_of(rows: Iterable[Row], size: int, tree: Proofs | None) -> dict[str, Any]:
    """Keys and signatures of these batches; the log's leaf of each key that is in its first `size` leaves."""
    rows = list(rows)
    keys = keys_of(one.agent_id for one in rows if one.agent_id)
    names = [key_name(bytes.fromhex(key["public_key"]), key["agent_id"]) for key in keys]
    ends = [
        revocation_name(bytes.fromhex(key["public_key"]), key["agent_id"], micros(key["revoked_at"]))
        if key["revoked_at"]
        else ""
        for key in keys
    ]
    known = Leaf.objects.filter(what=Leaf.What.DOCUMENT, position__lt=size, detail__in=[*names, *ends])
    leaves = {} if tree is None else {leaf.detail: leaf for leaf in known}
    plain = []
    for key, name, end in zip(keys, names, ends, strict=True):
        leaf, ended = leaves.get(name), leaves.get(end)
        plain.append(
            {
                "agent": key["agent_id"],
                "node": key["node"],
                "public_key": key["public_key"],
                "enrolled_us": str(micros(key["enrolled_at"] if leaf is None else leaf.received_at)),
                "revoked_us": None if key["revoked_at"] is None else str(micros(key["revoked_at"])),
                "index": None if leaf is None else str(leaf.position),
                "path": [] if leaf is None or tree is None else [part.hex() for part in tree.of(leaf.position)],
                "revocation": None
                if ended is None or tree is None
                else {"index": str(ended.position), "path": [part.hex() for part in tree.of(ended.position)]},
            }
        )
    signatures = {one.sha256.hex(): base64.b64encode(bytes(one.signature)).decode() for one in rows if one.signature}
    return {"keys": plain, "signatures": signatures}
