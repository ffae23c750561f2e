"""Outside anchors of a pack: each one checked, and the share of the claimed seconds that lie between two of them.

A claimed second lies between two anchors where one was made before it, and another one covers the batches whose samples
stand on both sides of it. Whose word an anchor is, and whether a signature proves it, is said with the share.
"""

from __future__ import annotations

import json
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from email import message_from_bytes, policy
from itertools import pairwise
from typing import Any

from claims.domain.merkle import Checkpoint, read_checkpoint
from claims.domain.periods import ms_of
from claims.errors import ProofError
from claims.verify.batches import facts_of_batch
from claims.verify.documents import checkpoints, read
from claims.verify.timestamps import certificates_of, check_stamp
from claims.verify.tokens import check_google

Files = Mapping[str, bytes]
SLOT_MS = 15_000
STAMP, MAIL, TICKET, TOKEN = "rfc3161", "mail", "ticket", "token"
#: Kinds that a signature of somebody else proves; the others are known to whoever received them.
PROVED = (STAMP, TOKEN)
WORDS = {STAMP: "time stamps of {}", TOKEN: "instance tokens of {}", MAIL: "mails to {}", TICKET: "tickets with {}"}


@dataclass(frozen=True)
class Anchored:
    """One anchor that holds: its kind, whose it is, the log's size and the instant (ms) at which that was there."""

    kind: str
    who: str
    size: int
    at_ms: int


def read_anchors(files: Files) -> list[Anchored]:
    """Every anchor of the pack, checked; by time. Raises ProofError for one that does not hold."""
    if "anchors.json" not in files:
        return []
    notes = {one.size: files[name].decode() for name, one in checkpoints(files).items()}
    out = []
    for one in json.loads(files["anchors.json"]):
        size = int(one["size"])
        if size not in notes:
            raise ProofError(f"An anchor is of a checkpoint of {size}, which is not in the pack.", "anchor")
        note, raw = notes[size], files[one["file"]]
        at, who = _CHECKS[one["kind"]](one, note, raw, files)
        stated = ms_of(one["at"])
        if at is not None and round(at.timestamp()) != stated // 1000:
            raise ProofError(f"An anchor is said to be of {one['at']}, and is of {at.isoformat()}.", "anchor")
        out.append(Anchored(one["kind"], who or one["who"], size, stated))
    out.sort(key=lambda one: (one.at_ms, one.size))
    for before, after in pairwise(out):
        if before.kind in PROVED and after.kind in PROVED and after.size < before.size:
            raise ProofError("A later anchor is of an earlier state of the log.", "anchor")
    return out


_Check = Callable[[Mapping[str, Any], str, bytes, Files], tuple[datetime | None, str]]


def _stamp(one: Mapping[str, Any], note: str, raw: bytes, files: Files) -> tuple[datetime | None, str]:
    certificate = certificates_of(files[one["key"]].decode())[0]
    found = check_stamp(raw, note.encode(), certificate)
    return found.at, f"{certificate.subject} (certificate {certificate.fingerprint[:16]}…)"


def _token(one: Mapping[str, Any], note: str, raw: bytes, files: Files) -> tuple[datetime | None, str]:
    checkpoint: Checkpoint = read_checkpoint(note)
    return check_google(raw, checkpoint.root, files[one["key"]].decode())


def _mail(one: Mapping[str, Any], note: str, raw: bytes, files: Files) -> tuple[datetime | None, str]:
    body = message_from_bytes(raw, policy=policy.default)
    to = str(body["To"])
    if _plain(note) not in _plain(str(body.get_content())) or one["who"] not in to:
        raise ProofError("A mail of the pack does not hold the checkpoint, or went to somebody else.", "anchor")
    return None, one["who"]


def _ticket(one: Mapping[str, Any], note: str, raw: bytes, files: Files) -> tuple[datetime | None, str]:
    if _plain(note) not in _plain(raw.decode()):
        raise ProofError("The text of a ticket does not hold the checkpoint.", "anchor")
    return None, f"{one['who']}, {one['reference']}"


def _plain(text: str) -> str:
    return " ".join(text.split())


_CHECKS: dict[str, _Check] = {STAMP: _stamp, TOKEN: _token, MAIL: _mail, TICKET: _ticket}


@dataclass(frozen=True)
class Share:
    """Of `claimed` slots, how many lie between two anchors; `widest_ms` is the widest pair that was needed."""

    claimed: int
    between: int
    widest_ms: int


def claimed_spans(files: Files) -> list[tuple[set[str], int, int]]:
    """(nodes, first ms, end ms) of each counted incident; of a weighted contract each window."""
    result = read(files, "result.json")["assessment"]["result"]
    out = []
    for unit in result["units"]:
        for one in unit["incidents"]:
            nodes = {name.partition("/")[0] for name in one["subjects"] or [unit["name"]]}
            out.append((nodes, ms_of(one["start_utc"]), ms_of(one["end_utc"])))
    if out:
        return out
    return [
        ({one["node"]}, one["first_hour"] * 3_600_000, (one["last_hour"] - one["margin"]) * 3_600_000)
        for one in read(files, "windows.json")
    ]


def evidence(files: Files) -> dict[str, list[tuple[int, int]]]:
    """Node → (instant of a sample in ms, place of its batch in the log), by time, for the enclosed batches."""
    places = {sha: int(one["index"]) for sha, one in read(files, "proofs.json")["inclusion"].items()}
    out: dict[str, dict[tuple[int, int], None]] = {}
    for window in read(files, "windows.json"):
        mine = out.setdefault(window["node"], {})
        for sha in window["batches"]:
            if sha in places:
                facts = facts_of_batch(files[f"batches/{sha}.msgpack.gz"])
                mine.update({(instant, places[sha]): None for instant in facts.instants})
    return {node: sorted(points) for node, points in out.items()}


def share_of(
    anchors: Sequence[Anchored],
    spans: Sequence[tuple[set[str], int, int]],
    points: Mapping[str, Sequence[tuple[int, int]]],
) -> Share:
    """See the module: slot by slot, each against the narrowest pair of anchors."""
    times = [one.at_ms for one in anchors]
    claimed = between = widest = 0
    for nodes, start, end in spans:
        for slot in range(start // SLOT_MS, -(-end // SLOT_MS)):
            claimed += 1
            before = bisect_right(times, slot * SLOT_MS) - 1
            places = [_place(points.get(node, ()), slot * SLOT_MS) for node in nodes]
            if before < 0 or not places or any(place is None for place in places):
                continue
            newest = max(place for place in places if place is not None)
            after = next((one for one in anchors[before + 1 :] if one.size > newest), None)
            if after is not None and anchors[before].size <= newest:
                between += 1
                widest = max(widest, after.at_ms - anchors[before].at_ms)
    return Share(claimed, between, widest)


def _place(points: Sequence[tuple[int, int]], at_ms: int) -> int | None:
    """The later place in the log of the samples on both sides of a slot; None where one side has none."""
    right = bisect_left(points, (at_ms + SLOT_MS // 2, -1))
    if right == 0 or right == len(points):
        return None
    return max(points[right - 1][1], points[right][1])


def shares(files: Files) -> tuple[Share, Share, list[tuple[str, Share]]]:
    """(by any anchors, by anchors that a signature proves, by each party in words). Raises ProofError."""
    anchors = read_anchors(files)
    spans, points = claimed_spans(files), evidence(files) if anchors else {}
    parties = sorted({(one.kind, one.who) for one in anchors})
    return (
        share_of(anchors, spans, points),
        share_of([one for one in anchors if one.kind in PROVED], spans, points),
        [
            (
                WORDS[kind].format(who),
                share_of([one for one in anchors if (one.kind, one.who) == (kind, who)], spans, points),
            )
            for kind, who in parties
        ],
    )


def percent(share: Share) -> str:
    """`96.4 %`, floored."""
    tenths = share.between * 1000 // share.claimed if share.claimed else 0
    return f"{tenths // 10}.{tenths % 10} %"
