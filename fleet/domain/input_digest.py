"""The input digest of a node hour: rule set, context, items, and the witnesses of the silences that items ended."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import NamedTuple

from fleet.domain.context import Context, Dated
from fleet.domain.placement import Item
from fleet.domain.rules import Rules
from fleet.domain.slots import VOUCH_MS
from fleet.domain.state import NodeState


def seed(rules: Rules, context: Context) -> bytes:
    """The beginning of an hour's input digest: rule set and context."""
    return hashlib.sha256(bytes.fromhex(rules.digest) + context.digest()).digest()


def _digest(digest: bytes, items: Sequence[Item]) -> bytes:
    """The input digest after these items: for each run of items of one batch the SHA-256 over the digest before it, the
    batch's SHA-256 and the items' kind, position and event's position.
    """
    at, count = 0, len(items)
    while at < count:
        sha, names = items[at].sha256, []
        while at < count and items[at].sha256 == sha:
            item = items[at]
            names.append(f"{item.kind}.{item.position}.{item.sub}")
            at += 1
        digest = hashlib.sha256(digest + sha + " ".join(names).encode()).digest()
    return digest


class _Silence(NamedTuple):
    """The sample at `position` of an hour's items ended a silence that began at `from_ms`, or is its boot's first."""

    position: int
    from_ms: int
    rebooted: bool


def _silences(items: Sequence[Item], state: NodeState | None) -> list[_Silence]:
    """Where these items end a silence. A function of the items and the state before them, however they were cut."""
    out = []
    known = state is not None
    last, boot, boot_at = (state.last_ms, state.boot_id, state.boot_at) if state is not None else (0, "", 0)
    for position, item in enumerate(items):
        if item.event is not None:
            continue
        now = item.batch.boot_id or boot
        if known and now != boot and item.boot_ms and item.boot_ms < boot_at:
            continue  # a boot that a later one has already ended
        if known and (item.ms - last > VOUCH_MS or now != boot):
            out.append(_Silence(position, last, now != boot))
        if now != boot or not known:
            boot, boot_at = now, item.boot_ms
        last, known = item.ms, True
    return out


def asked(items: Sequence[Item], state: NodeState | None, context: Context, dated: Dated) -> list[tuple[int, Context]]:
    """(position, context) of the items that end a silence to which somebody was a witness."""
    out = []
    for position, from_ms, rebooted in _silences(items, state):
        item = items[position]
        seen = dated.witnessed(context, from_ms, item.ms, max(item.ms, item.received_ms), rebooted)
        if seen is not context:
            out.append((position, seen))
    return out


def digest_with(digest: bytes, items: Sequence[Item], asked: Sequence[tuple[int, Context]]) -> bytes:
    """The input digest after these items; a silence's witnesses go in before the sample that ended it."""
    start = 0
    for position, seen in asked:
        digest = hashlib.sha256(_digest(digest, items[start:position]) + seen.digest()).digest()
        start = position
    return _digest(digest, items[start:])
