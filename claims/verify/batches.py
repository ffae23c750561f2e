"""The enclosed batches: unpacked and decoded once, what other checks than the fold need of them is remembered."""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from agent import wire
from claims.errors import PackError

Files = Mapping[str, bytes]


def gunzip(body: bytes) -> bytes:
    """The content of one gzip member, bounded. Raises PackError."""
    stream = zlib.decompressobj(wbits=31)
    try:
        raw = stream.decompress(body, wire.MAX_RAW_BYTES + 1)
    except zlib.error as error:
        raise PackError("A batch is no gzip member.") from error
    if len(raw) > wire.MAX_RAW_BYTES or not stream.eof or stream.unused_data:
        raise PackError("A batch is not exactly one gzip member.")
    return raw


def decoder() -> Callable[[bytes], Any]:
    """msgspec's where it is present, else the one of the standard library."""
    try:
        from fleet.decode import decode_trusted
    except ImportError:
        from claims.verify.unpack import decode as plain

        return plain
    return decode_trusted


class BatchFacts(NamedTuple):
    """What other checks than the fold need of a batch: the hash of its content, hex, its samples' instants (ms), what
    its clocks said, the node that it names.
    """

    sha256: str
    instants: tuple[int, ...]
    clocks: tuple[str, ...]
    errors_ms: tuple[int, ...]
    node: str


#: Facts by the batch's own bytes, so that no pack can leave wrong ones behind for another.
_known: dict[bytes, BatchFacts] = {}
MOST_KNOWN = 200_000


def remember(body: bytes, raw: bytes, batch: Any) -> BatchFacts:
    """Keep the facts of a batch that was decoded anyway: `body` as it was packed, `raw` without the gzip."""
    clocks = [interval.clock for interval in batch.intervals if interval.clock is not None]
    found = BatchFacts(
        hashlib.sha256(raw).hexdigest(),
        tuple(interval.ts for interval in batch.intervals),
        tuple(clock.status for clock in clocks),
        tuple(clock.error_ms for clock in clocks if clock.error_ms is not None),
        batch.node_id,
    )
    _keep(body, found)
    return found


def _keep(body: bytes, found: BatchFacts) -> None:
    if len(_known) >= MOST_KNOWN:
        _known.clear()
    _known[body] = found


def forget_batches() -> None:
    """Drop what is remembered of batches: a server makes packs for as long as it runs."""
    _known.clear()


def keep_facts(files: Files, facts: Iterable[tuple[str, BatchFacts]]) -> None:
    """Keep what another process found of these batches of the pack."""
    for sha, found in facts:
        _keep(files[f"batches/{sha}.msgpack.gz"], found)


def facts_of_batch(body: bytes) -> BatchFacts:
    """The facts of a batch, decoded once."""
    if (found := _known.get(body)) is not None:
        return found
    raw = gunzip(body)
    return remember(body, raw, decoder()(raw))


def hash_of_batch(body: bytes) -> str:
    """The SHA-256 of a batch's content, hex. Raises PackError."""
    found = _known.get(body)
    return hashlib.sha256(gunzip(body)).hexdigest() if found is None else found.sha256
