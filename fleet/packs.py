"""Packs: batches of one node hour in one zstd frame, each of them recoverable bit for bit.

What a batch's hash, receipt and signature speak of are its MessagePack bytes; the frame holds them one after the other.
The gzip member around them is remembered as zlib's level and header where that gives the same bytes again, which is
tried when the pack is made; a member of another maker is kept as it came. The skeleton says of each batch what its
inbox row said, and is all that stays once the frame is dropped.
"""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import accumulate, pairwise
from struct import unpack
from typing import Any, NamedTuple

import msgspec
import zstandard

from agent import wire
from fleet.decode import gunzip
from fleet.domain.packed import column, spread
from fleet.errors import BatchRejected

LEVEL = 3  # level 6 is 7 % smaller for half as much CPU again
WINDOW_LOG = 24  # an hour of a node is some 2 MB; the frame must see its beginning from its end
VERSION = 1
LEVELS = {4: 1, 2: 9, 0: 6}  # a gzip header's hint about the speed -> the level that makers use for it
HEADER_BYTES, TRAILER_BYTES = 10, 8
AS_IT_CAME, DAMAGED = -1, -2  # in place of a level: the member is in the frame; the same, and its hash is not the row's


class PackError(ValueError):
    """A pack whose bytes are not what its hashes say."""


class Row(NamedTuple):
    """A batch as the inbox has it, in the order of `COLUMNS`."""

    sha256: bytes
    body: bytes
    received_us: int
    cluster: str
    node: str
    hw_id: str | None
    agent_id: str | None
    seq: int | None
    boot_id: str | None
    key_id: int | None
    signature: bytes | None
    dropped_total: int | None
    has_suspect_clock: bool
    is_seq_conflict: bool
    last_hour: int


#: Columns of the skeleton that mostly hold one value for the whole hour.
CONSTANT = ("cluster", "node", "hw_id", "agent_id", "boot_id", "key_id", "dropped_total", "last_hour")
FLAGS = ("has_suspect_clock", "is_seq_conflict")


class Entry(NamedTuple):
    """What a pack says of one batch; `level`, `header`, `crc` are those of its gzip member, `size` is in the frame."""

    row: Row  # its body is empty
    level: int
    header: bytes
    crc: int
    size: int


@dataclass(frozen=True, slots=True)
class Packed:
    """A pack ready to be stored."""

    skeleton: bytes
    body: bytes
    prefixes: list[int]
    member_bytes: int


def instant(micros: int) -> datetime:
    """Microseconds since 1970 UTC as an aware datetime, exactly."""
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=micros)


def micros(at: datetime) -> int:
    """Microseconds since 1970 UTC, exactly."""
    return (at - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)


def prefix_of(sha256: bytes) -> int:
    """The first four bytes as PostgreSQL's signed integer."""
    return int.from_bytes(sha256[:4], "big", signed=True)


def make_pack(rows: Sequence[Row]) -> Packed:
    """Pack these batches, at least one, and read the result back. Raises PackError when it is not what went in."""
    ordered = sorted(rows, key=lambda row: (row.received_us, row.sha256))
    parts, levels, headers = [], [], []
    for row in ordered:
        part, level = _part_of(row)
        parts.append(part)
        levels.append(level)
        headers.append(row.body[:HEADER_BYTES].hex() if level >= 0 else "")
    fields: dict[str, Any] = {
        "version": VERSION,
        "sha256": b"".join(row.sha256 for row in ordered),
        "received_us": _steps([row.received_us for row in ordered]),
        "seq": [row.seq for row in ordered] if any(row.seq is None for row in ordered) else None,
        "seq_steps": None if any(row.seq is None for row in ordered) else _steps([row.seq or 0 for row in ordered]),
        "signature": column([row.signature or b"" for row in ordered]),
        "size": _steps([len(part) for part in parts]),
        "level": column(levels),
        "header": column(headers),
        "crc": b"".join(zlib.crc32(row.body).to_bytes(4, "big") for row in ordered),
        "columns": {name: column([getattr(row, name) for row in ordered]) for name in CONSTANT},
        "flags": {name: column([int(getattr(row, name)) for row in ordered]) for name in FLAGS},
    }
    packed = Packed(
        _compressor().compress(msgspec.msgpack.encode(fields)),
        _compressor().compress(b"".join(parts)),
        [prefix_of(row.sha256) for row in ordered],
        sum(len(row.body) for row in ordered),
    )
    _check(packed, ordered)
    return packed


def read_skeleton(skeleton: bytes) -> list[Entry]:
    """What the pack says of its batches, by time of receipt."""
    fields = msgspec.msgpack.decode(zstandard.decompress(skeleton))
    if fields["version"] != VERSION:
        raise PackError(f"a pack of version {fields['version']}")
    hashes = fields["sha256"]
    count = len(hashes) // 32
    columns: dict[str, Iterable[Any]] = {name: spread(values, count) for name, values in fields["columns"].items()}
    columns |= {name: spread([bool(flag) for flag in values], count) for name, values in fields["flags"].items()}
    columns["sha256"] = [hashes[at : at + 32] for at in range(0, len(hashes), 32)]
    columns["body"] = [b""] * count
    columns["received_us"] = accumulate(fields["received_us"])
    columns["seq"] = fields["seq"] if fields["seq_steps"] is None else accumulate(fields["seq_steps"])
    columns["signature"] = spread([signature or None for signature in fields["signature"]], count)
    rows = map(Row._make, zip(*(columns[name] for name in Row._fields), strict=True))
    headers = spread([bytes.fromhex(header) for header in fields["header"]], count)
    crcs = unpack(f">{count}I", fields["crc"])
    sizes = accumulate(fields["size"])
    return list(map(Entry._make, zip(rows, spread(fields["level"], count), headers, crcs, sizes, strict=True)))


class Frame:
    """The bytes of a pack's batches, unpacked when the first of them is asked for: an hour of a node is some 2 MB."""

    __slots__ = ("_body", "_ends", "_whole")

    def __init__(self, entries: Sequence[Entry], body: bytes) -> None:
        self._ends = list(accumulate((entry.size for entry in entries), initial=0))
        self._body, self._whole = body, b""

    def part(self, at: int) -> bytes:
        """What the frame holds of the batch with this place in the skeleton: its MessagePack bytes, or its member where
        that was kept. Raises PackError."""
        if self._body:
            self._unpack()
        return self._whole[self._ends[at] : self._ends[at + 1]]

    def _unpack(self) -> None:
        try:
            whole = zstandard.decompress(self._body, max_output_size=self._ends[-1])
        except zstandard.ZstdError as error:
            raise PackError("the frame is damaged") from error
        if self._ends[-1] != len(whole):
            raise PackError("the frame is not as long as its batches")
        self._body, self._whole = b"", whole


def read_parts(entries: Sequence[Entry], body: bytes) -> list[bytes]:
    """What the frame holds of each batch. Raises PackError."""
    frame = Frame(entries, body)
    return [frame.part(at) for at in range(len(entries))]


def raw_of(entry: Entry, part: bytes) -> bytes:
    """A batch's MessagePack bytes, checked against its hash. Raises PackError."""
    raw = part if entry.level >= 0 else _unzipped(part)
    if raw is None or hashlib.sha256(raw).digest() != entry.row.sha256:
        raise PackError(f"batch {entry.row.sha256.hex()} is damaged")
    return raw


def member_of(entry: Entry, part: bytes) -> bytes:
    """The gzip member as it was received.

    Another zlib than the one that packed it may compress differently; then the same content comes in that one's member.
    """
    if entry.level < 0:
        return part
    member = _member(part, entry.level, entry.header)
    return member if zlib.crc32(member) == entry.crc else zlib.compress(part, 1, wbits=31)


def _part_of(row: Row) -> tuple[bytes, int]:
    """(what the frame holds of a batch, zlib's level or why there is none)."""
    raw = _unzipped(row.body)
    if raw is None or hashlib.sha256(raw).digest() != row.sha256:
        return row.body, DAMAGED
    level = LEVELS.get(row.body[8], 6)
    if row.body[3] == 0 and _member(raw, level, row.body[:HEADER_BYTES]) == row.body:
        return raw, level
    return row.body, AS_IT_CAME


def _unzipped(member: bytes) -> bytes | None:
    try:
        return gunzip(member)
    except BatchRejected:
        return None


def _member(raw: bytes, level: int, header: bytes) -> bytes:
    """The gzip member (RFC 1952) of these bytes by zlib at this level under this header."""
    stream = zlib.compressobj(level, zlib.DEFLATED, -zlib.MAX_WBITS)
    trailer = zlib.crc32(raw).to_bytes(4, "little") + (len(raw) & 0xFFFFFFFF).to_bytes(4, "little")
    return b"".join((header, stream.compress(raw), stream.flush(), trailer))


def _steps(values: Sequence[int]) -> list[int]:
    """The first value and each one's distance from the one before; `accumulate` undoes it."""
    return [*values[:1], *(after - before for before, after in pairwise(values))]


def _compressor() -> zstandard.ZstdCompressor:
    parameters = zstandard.ZstdCompressionParameters.from_level(
        LEVEL, window_log=WINDOW_LOG, write_checksum=True, write_content_size=True
    )
    return zstandard.ZstdCompressor(compression_params=parameters)


def _check(packed: Packed, rows: Sequence[Row]) -> None:
    """Read a fresh pack back: every row, every hash and every member must be what went in."""
    entries = read_skeleton(packed.skeleton)
    parts = read_parts(entries, packed.body)
    for row, entry, part in zip(rows, entries, parts, strict=True):
        if entry.row != row._replace(body=b""):
            raise PackError(f"batch {row.sha256.hex()} came back with another row")
        if entry.level != DAMAGED:
            raw_of(entry, part)
        if entry.level < 0 and part != row.body:
            raise PackError(f"batch {row.sha256.hex()} came back with another body")


assert wire.MAX_RAW_BYTES < 2**31, "sizes are stored as integers"
