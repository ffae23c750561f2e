"""agents.json of a pack: the enrolled keys of the installations whose batches it encloses, and those batches'
signatures as they came.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable
from typing import Any

from claims.ledger import Proofs, micros, revocations
from claims.models import Leaf
from claims.verify.agents import key_name, name_digest
from fleet.agents.selectors import keys_of
from fleet.packs import Row


def agents_of(rows: Iterable[Row], size: int, tree: Proofs | None) -> dict[str, Any]:
    """Keys and signatures of these batches; the log's leaf of each key that is in its first `size` leaves, and every
    revocation among these: a key ends with its first one, whatever was said of it since.
    """
    rows = list(rows)
    keys = keys_of(one.agent_id for one in rows if one.agent_id)
    names = [key_name(bytes.fromhex(key["public_key"]), key["agent_id"]) for key in keys]
    known = Leaf.objects.filter(what=Leaf.What.DOCUMENT, position__lt=size, detail__in=names)
    leaves = {} if tree is None else {leaf.detail: leaf for leaf in known}
    ended = revocations(size)
    ends: dict[str, Leaf] = {}
    for leaf, (name, _) in ended:
        ends.setdefault(name, leaf)
    plain = []
    for key, name in zip(keys, names, strict=True):
        enrolled, end = leaves.get(name), ends.get(name_digest(name))
        revoked_at = key["revoked_at"] if end is None else end.received_at
        plain.append(
            {
                "agent": key["agent_id"],
                "node": key["node"],
                "public_key": key["public_key"],
                "enrolled_us": str(micros(key["enrolled_at"] if enrolled is None else enrolled.received_at)),
                "revoked_us": None if revoked_at is None else str(micros(revoked_at)),
                "index": None if enrolled is None else str(enrolled.position),
                "path": [] if enrolled is None or tree is None else _path(tree, enrolled),
                "revocation": None
                if end is None or tree is None
                else {"index": str(end.position), "path": _path(tree, end)},
            }
        )
    signatures = {one.sha256.hex(): base64.b64encode(bytes(one.signature)).decode() for one in rows if one.signature}
    return {"keys": plain, "signatures": signatures, "revocations": [line for _, line in ended]}


def _path(tree: Proofs, leaf: Leaf) -> list[str]:
    return [part.hex() for part in tree.of(leaf.position)]
