"""How derived bytes lie in the database: zstd frames, one per value, small ones well packed."""

from __future__ import annotations

import threading

import zstandard

from fleet.domain.state import NodeState, OtherFormat
from fleet.domain.strips import HourRow

LEVEL = 6
_local = threading.local()


def compress(raw: bytes) -> bytes:
    """One zstd frame; the same bytes in give the same bytes out."""
    if not hasattr(_local, "compressor"):
        _local.compressor = zstandard.ZstdCompressor(level=LEVEL, write_checksum=False, write_content_size=True)
    packed: bytes = _local.compressor.compress(raw)
    return packed


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
