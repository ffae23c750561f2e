"""I01 to I05: one bounded gzip member, whatever the bytes claim."""

from __future__ import annotations

import gzip
import zlib
from contextlib import suppress
from typing import Any

import pytest

from agent import wire
from fleet import decode
from fleet.errors import BatchRejected
from fleet.tests.bodies import batch, packed
from fleet.tests.ingest.memory import peak_growth_mb
from fleet.tests.ingest.uploads import bomb, count, packed_raw, post, with_extra

pytestmark = pytest.mark.django_db
EMPTY_MEMBER = gzip.compress(b"", mtime=0)


def test_i01_a_gibibyte_of_zeros_is_too_large(alpha: Any, token: str) -> None:
    body = bomb()
    assert len(body) <= wire.MAX_BODY_BYTES, "it must pass the first limit to test the second"
    answer = post(body, token)
    assert (answer.status, answer.code) == (413, "too_large")
    assert count(alpha) == 0


def test_i01_a_gibibyte_of_zeros_costs_little_memory() -> None:
    """The growth is the 8 MiB of output that are allowed, twice while they are joined."""
    assert peak_growth_mb("refused(decode.gunzip, body)", ready="body = uploads.bomb()") < 20


def test_i01_the_limit_itself_is_allowed_and_one_byte_more_is_not() -> None:
    assert len(decode.gunzip(gzip.compress(bytes(wire.MAX_RAW_BYTES), 1))) == wire.MAX_RAW_BYTES
    with pytest.raises(BatchRejected, match="larger") as refused:
        decode.gunzip(gzip.compress(bytes(wire.MAX_RAW_BYTES + 1), 1))
    assert refused.value.code == "too_large"


def test_i02_gzip_in_gzip_is_refused(token: str) -> None:
    answer = post(gzip.compress(packed()[0]), token)
    assert (answer.status, answer.code) == (400, "bad_msgpack")


@pytest.mark.parametrize(
    "body",
    [
        packed()[0] + packed()[0],
        packed()[0] + EMPTY_MEMBER,
        EMPTY_MEMBER * 50_000,
        EMPTY_MEMBER + packed()[0],
        b"".join(gzip.compress(part, mtime=0) for part in (packed_raw(batch())[:50], packed_raw(batch())[50:])),
    ],
    ids=["twice", "empty last", "50,000 empty", "empty first", "split over two"],
)
def test_i03_more_than_one_member_is_refused(body: bytes, token: str) -> None:
    """Reading stops at the first member's end, so 50,000 of them cost what one does."""
    answer = post(body, token)
    assert (answer.status, answer.code) == (400, "trailing_bytes")


@pytest.mark.parametrize("junk", [b"\0", b"\0" * 512, b"junk", b"\x1f\x8b"])
def test_i04_bytes_after_the_member_are_refused(junk: bytes, token: str) -> None:
    answer = post(packed()[0] + junk, token)
    assert (answer.status, answer.code) == (400, "trailing_bytes")


def test_i05_a_body_cut_at_any_byte_is_refused() -> None:
    body = packed()[0]
    for length in range(len(body)):
        with pytest.raises(BatchRejected) as refused:
            decode.gunzip(body[:length])
        assert (refused.value.status, refused.value.code) == (400, "bad_gzip"), length


def test_i05_a_flipped_bit_anywhere_gives_the_same_bytes_or_a_refusal() -> None:
    """The checksum catches what inflating does not; bits without a meaning (header, padding) may pass."""
    body = packed()[0]
    raw = gzip.decompress(body)
    for position in range(len(body) * 8):
        spoilt = bytearray(body)
        spoilt[position // 8] ^= 1 << position % 8
        with suppress(BatchRejected):
            assert decode.gunzip(bytes(spoilt)) == raw


@pytest.mark.parametrize("name", ["crc", "isize", "zlib", "deflate", "nothing", "text"])
def test_i05_wrong_checksums_and_other_formats_are_refused(name: str, alpha: Any, token: str) -> None:
    body, raw = packed()[0], gzip.decompress(packed()[0])
    bare = zlib.compressobj(wbits=-15)
    bodies = {
        "crc": body[:-8] + bytes(4) + body[-4:],
        "isize": body[:-4] + (len(raw) + 1).to_bytes(4, "little"),
        "zlib": zlib.compress(raw),
        "deflate": bare.compress(raw) + bare.flush(),
        "nothing": b"",
        "text": b'{"schema_version": 1}',
    }
    answer = post(bodies[name], token)
    assert (answer.status, answer.code) == (400, "bad_gzip")
    assert count(alpha) == 0


def test_header_fields_of_the_member_are_no_way_in(token: str) -> None:
    """A file name or an extra field in the gzip header is legal; the row keeps it and nothing shows it."""
    raw = packed_raw(batch())
    inner = gzip.compress(raw, mtime=0)
    named = inner[:3] + b"\x08" + inner[4:10] + b"../../etc/passwd\0" + inner[10:]
    assert post(named, token).status == 202
    assert post(inner, token).json()["duplicate"] is True, "the batch is its MessagePack bytes"


def test_with_extra_is_a_batch() -> None:
    assert decode.decode(with_extra(b"\x01")).node_id == "n1"
