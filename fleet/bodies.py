"""How derived bytes lie in the database: zstd frames, one per value, small ones well packed."""

from __future__ import annotations

import threading

import zstandard

from fleet.domain.slots import SLOTS_PER_HOUR
from fleet.domain.state import NodeState, OtherFormat
from fleet.domain.strips import HourRow

LEVEL = 6
MANY_STRIPS_BYTES = 4 * SLOTS_PER_HOUR  # of a node hour; one with fewer has little to gain
_local = threading.local()


def compress(raw: bytes) -> bytes:
    """One zstd frame; the same bytes in give the same bytes out."""
    packed: bytes = _compressor().compress(raw)
    return packed


def pack_row(row: HourRow) -> bytes:
    """A node hour for the database, as `load_row` reads it: one zstd frame.

    With many different strips each kind of bytes is a block of its own: weights, JSON and random identities under one
    code take a tenth more.
    """
    header, ids, strips, state = row.parts()
    if len(strips) < MANY_STRIPS_BYTES:
        return compress(b"".join((header, ids, strips, state)))
    text = NodeState.text_of(state)
    kinds = (header, ids, strips, text, state[len(text) :])
    stream = _compressor().compressobj(size=sum(map(len, kinds)))
    blocks = [stream.compress(kind) + stream.flush(zstandard.COMPRESSOBJ_FLUSH_BLOCK) for kind in kinds]
    return b"".join((*blocks, stream.flush()))


def _compressor() -> zstandard.ZstdCompressor:
    if not hasattr(_local, "compressor"):
        _local.compressor = zstandard.ZstdCompressor(level=LEVEL, write_checksum=False, write_content_size=True)
    compressor: zstandard.ZstdCompressor = _local.compressor
    return compressor


def decompress(packed: bytes | memoryview) -> bytes:
    """The content of a frame made by `compress`."""
    if not hasattr(_local, "decompressor"):
        _local.decompressor = zstandard.ZstdDecompressor()
    raw: bytes = _local.decompressor.decompress(packed)
    return raw


def load_row(body: bytes | memoryview) -> HourRow:
    """The node hour in a stored body."""
    return HourRow.from_bytes(decompress(body))


def closing_state(row: HourRow) -> NodeState | None:
    """The node as the hour ended; None where the row keeps none, or one that a newer version of the fold wrote."""
    state = row.closing_state
    try:
        return NodeState.from_bytes(state, is_sealed=True) if state else None
    except OtherFormat:
        return None
