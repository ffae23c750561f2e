"""Since when the terms stand: the leaves of contract, rule sets and amendments, and the first anchor after them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from claims.domain.merkle import leaf_hash, verify_inclusion
from claims.errors import ProofError
from claims.verify.anchors import Anchored
from claims.verify.documents import last_checkpoint, read
from claims.verify.notes import document_bytes
from claims.verify.rule_sets import base_of, rules_of
from fleet.domain.slots import SLOT_MS

Files = Mapping[str, bytes]


class Adopted(NamedTuple):
    """A document that the result rests on: the instant (ms) of the first anchor after its adoption (None: no anchor
    covers it), and the one from which it counts.
    """

    name: str
    anchored_ms: int | None
    from_ms: int

    @property
    def is_late(self) -> bool:
        """Whether it counts from before it was anchored."""
        return self.anchored_ms is None or self.anchored_ms > self.from_ms


def adopted(files: Files, anchors: Sequence[Anchored]) -> list[Adopted]:
    """Every document that the result rests on. Raises ProofError for one that is said to be in the log and is not."""
    wanted = _wanted(files)
    last = last_checkpoint(files)
    out: list[Adopted] = []
    found = set()
    for one in json.loads(files.get("adoptions.json", b"[]")):
        if last is None:
            raise ProofError("Adopted documents are named, and the log has no checkpoint.", "adoption")
        leaf = leaf_hash(document_bytes(one["digest"], int(one["adopted_us"]), one["name"]))
        path = [bytes.fromhex(part) for part in one["path"]]
        verify_inclusion(leaf, int(one["index"]), last.size, path, last.root)
        first = min((anchor.at_ms for anchor in anchors if anchor.size > int(one["index"])), default=None)
        if one["digest"] in wanted:
            out.append(Adopted(one["name"], first, wanted[one["digest"]][1]))
            found.add(one["digest"])
    missing = sorted({*wanted} - found)
    return [*out, *(Adopted(f"{wanted[one][0]} {one[:16]}… (not in the log)", None, wanted[one][1]) for one in missing)]


def _wanted(files: Files) -> dict[str, tuple[str, int]]:
    """Digest → (what it is, from when on it counts in this period, ms)."""
    period = read(files, "result.json")["assessment"]["result"]["period"]
    first, end = int(period["first_slot"]), int(period["first_slot"]) + int(period["slots"])
    out = {read(files, "inputs.json")["contract"]["digest"]: ("contract", first * SLOT_MS)}
    base, spans = base_of(files), rules_of(files)
    for at, span in enumerate(spans):
        until = spans[at + 1].first_slot if at + 1 < len(spans) else end
        if until <= first or span.first_slot >= end:
            continue
        from_ms = max(first, span.first_slot) * SLOT_MS
        out.setdefault(base(span.base).digest, (f"rules {span.base}", from_ms))
        for one in span.amendments:
            out.setdefault(one.digest(), (f"amendment of {one.code}", from_ms))
    return out
