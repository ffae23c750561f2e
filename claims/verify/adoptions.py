"""Since when the terms stand: the log's leaves of contract and rule sets, and the first anchor after them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from claims.domain.merkle import leaf_hash, read_checkpoint, verify_inclusion
from claims.errors import ProofError
from claims.verify.anchors import Anchored
from claims.verify.notes import document_bytes

Files = Mapping[str, bytes]


def adopted(files: Files, anchors: Sequence[Anchored]) -> list[tuple[str, int | None]]:
    """(name, instant in ms of the first anchor after its adoption, None: no anchor covers it) of every document that
    the result rests on. Raises ProofError for one that is said to be in the log and is not.
    """
    frozen = json.loads(files["inputs.json"])
    wanted = {frozen["contract"]["digest"], *(span["digest"] for span in _whole(frozen))}
    last = max(
        (read_checkpoint(raw.decode()) for name, raw in files.items() if name.endswith(".note")),
        key=lambda one: one.size,
        default=None,
    )
    out, found = [], set()
    for one in json.loads(files.get("adoptions.json", b"[]")):
        if last is None:
            raise ProofError("Adopted documents are named, and the log has no checkpoint.", "adoption")
        leaf = leaf_hash(document_bytes(one["digest"], int(one["adopted_us"]), one["name"]))
        path = [bytes.fromhex(part) for part in one["path"]]
        verify_inclusion(leaf, int(one["index"]), last.size, path, last.root)
        first = min((anchor.at_ms for anchor in anchors if anchor.size > int(one["index"])), default=None)
        out.append((one["name"], first))
        found.add(one["digest"])
    return [*out, *((f"{digest[:16]}… (not in the log)", None) for digest in sorted(wanted - found))]


def _whole(frozen: Mapping[str, object]) -> list[dict[str, str]]:
    """The rule sets without amendments; an amended one's digest is made of its parts."""
    rules = frozen["rules"]
    assert isinstance(rules, dict)
    return [span for span in rules["spans"] if not span["amendments"]]
