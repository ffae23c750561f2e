"""I06 to I09, I13 to I15, I17: one honest MessagePack map, whatever the bytes claim."""

from __future__ import annotations

import math
import struct
from typing import Any

import msgpack
import pytest

from agent import wire
from fleet import decode
from fleet.errors import BatchRejected
from fleet.msgpack_scan import scan
from fleet.tests.bodies import batch, interval
from fleet.tests.ingest.memory import peak_growth_mb
from fleet.tests.ingest.uploads import TS, count, holding, packed_raw, post_raw, with_extra

HUGE_HEADS = {
    "array32": b"\xdd\xff\xff\xff\xff",
    "map32": b"\xdf\xff\xff\xff\xff",
    "str32": b"\xdb\xff\xff\xff\xff",
    "bin32": b"\xc6\xff\xff\xff\xff",
    "ext32": b"\xc9\xff\xff\xff\xff\xff",
}


def refusal(raw: bytes) -> tuple[int, str]:
    """(status, code) of the refusal of these bytes."""
    with pytest.raises(BatchRejected) as refused:
        decode.decode(raw)
    return refused.value.status, refused.value.code


def nested(depth: int) -> bytes:
    """`depth` arrays within each other around nil."""
    return b"\x91" * depth + b"\xc0"


@pytest.mark.parametrize("form", ["bare", "in an unknown key", "as intervals"])
def test_i06_eight_million_empty_lists_are_refused(form: str) -> None:
    flood = b"\xdd" + struct.pack(">I", 8_000_000) + b"\x90" * 8_000_000
    raw = {"bare": flood, "in an unknown key": with_extra(flood), "as intervals": b"\x81\xa9intervals" + flood}[form]
    assert refusal(raw) == (400, "too_many_items")


def test_i06_a_flood_of_lists_in_small_arrays_is_refused() -> None:
    """No array claims much, together they do."""
    thousand = b"\xdc\x03\xe8" + b"\x90" * 1000
    assert refusal(with_extra(b"\xdc\x03\xe8" + thousand * 1000)) == (400, "too_many_items")


def test_i06_a_flood_costs_little_memory() -> None:
    """557 MiB in a decoder that builds what it reads."""
    ready = "raw = uploads.with_extra(b'\\xdd' + (8_000_000).to_bytes(4, 'big') + b'\\x90' * 8_000_000)"
    assert peak_growth_mb("refused(decode.decode, raw)", ready=ready) < 20


def test_i06_a_flood_of_keys_costs_little_memory() -> None:
    """The set of seen keys grows up to the limit of elements and no further."""
    ready = (
        "keys = b''.join(b'\\xa5' + b'%05x' % n + b'\\x01' for n in range(1_000_000))\n"
        "raw = uploads.with_extra(b'\\xdf' + (150_000).to_bytes(4, 'big') + keys)"
    )
    assert peak_growth_mb("refused(decode.decode, raw)", ready=ready) < 40


@pytest.mark.parametrize("depth", [6, 7, 500, 1024, 2_000_000])
@pytest.mark.parametrize("place", ["bare", "in an unknown key"])
def test_i07_deep_nesting_is_refused(depth: int, place: str) -> None:
    """wire.md: more than six levels are a 422, what not even the decoder can walk (Python's limit) is a 400."""
    raw = with_extra(nested(depth)) if place != "bare" else nested(depth)
    if place == "bare" and depth == 6:
        assert refusal(raw) == (422, "invalid"), "six levels nest not too deeply, but are no map"
        return
    status, code = refusal(raw)
    assert code == "too_deep"
    if depth == 1024:
        assert status in (400, 422)  # within the decoder's reach or beyond it: that differs from Python to Python
    else:
        assert status == (422 if depth < 1000 or place == "bare" else 400)


def test_i07_six_levels_are_allowed() -> None:
    assert decode.decode(with_extra(nested(5))).node_id == "n1"


@pytest.mark.parametrize(("name", "head"), HUGE_HEADS.items(), ids=HUGE_HEADS)
@pytest.mark.parametrize("place", ["bare", "in an unknown key", "as intervals", "as a string"])
def test_i08_a_length_that_is_only_claimed_is_refused(name: str, head: bytes, place: str) -> None:
    raws = {
        "bare": head,
        "in an unknown key": with_extra(head),
        "as intervals": b"\x81\xa9intervals" + head,
        "as a string": b"\x81\xa7node_id" + head,
    }
    assert refusal(raws[place]) == (400, "too_many_items" if name in ("array32", "map32") else "bad_msgpack")


def test_i08_claimed_lengths_allocate_nothing() -> None:
    heads = list(HUGE_HEADS.values())
    act = f"[refused(decode.decode, uploads.with_extra(head)) for head in {heads!r}]"
    assert peak_growth_mb(act) < 5


@pytest.mark.parametrize(
    "extension",
    [
        msgpack.ExtType(5, b"xx"),
        msgpack.ExtType(0, b""),
        msgpack.ExtType(127, bytes(300)),
        msgpack.ExtType(1, bytes(8)),
        msgpack.ExtType(1, bytes(70_000)),
    ],
    ids=lambda extension: f"{extension.code}-{len(extension.data)}",
)
def test_i09_extension_types_are_refused_wherever_they_stand(extension: msgpack.ExtType) -> None:
    for table, key in (("BATCH", "node_id"), ("INTERVAL", "ts"), ("GPU", "power"), ("BATCH", "unheard_of")):
        assert refusal(packed_raw(holding(table, **{key: extension}))) == (400, "bad_extension"), key
    assert refusal(packed_raw(extension))[0] == 400


@pytest.mark.parametrize(
    ("stamp", "expected"),
    [
        (struct.pack(">I", 1_790_000_002), 1_790_000_002_000),
        (struct.pack(">Q", 500_999_999 << 34 | 1_790_000_002), TS),
        (struct.pack(">Iq", 999_999_999, 1_790_000_002), 1_790_000_002_999),
        (struct.pack(">I", 0), 0),
        (struct.pack(">I", 2**32 - 1), (2**32 - 1) * 1000),
        (struct.pack(">Iq", 0, (2**63 - 1) // 1000), (2**63 - 1) // 1000 * 1000),
    ],
)
def test_i09_timestamps_are_taken_for_ts_to_the_millisecond(stamp: bytes, expected: int) -> None:
    raw = packed_raw(holding("INTERVAL", ts=msgpack.ExtType(127, stamp)))
    raw = raw.replace(b"\x7f" + stamp, b"\xff" + stamp)  # msgpack-python makes no type -1 by hand
    assert decode.decode(raw).intervals[0].ts == expected
    assert decode.decode_trusted(raw).intervals[0].ts == expected


@pytest.mark.parametrize(
    "stamp",
    [
        struct.pack(">Iq", 0, 2**63 - 1),  # the year 292 billion
        struct.pack(">Iq", 0, -1),
        struct.pack(">Iq", 0, -(2**63)),
        struct.pack(">Iq", 10**9, 5),
        struct.pack(">Q", 10**9 << 34),
        b"\0\0",
        b"",
        bytes(16),
    ],
)
def test_i09_timestamps_out_of_range_are_refused(stamp: bytes) -> None:
    raw = packed_raw(holding("INTERVAL", ts=msgpack.ExtType(127, stamp)))
    raw = raw.replace(b"\x7f" + stamp, b"\xff" + stamp)
    assert refusal(raw) == (422, "invalid")


@pytest.mark.parametrize("ts", ["2026-09-21T13:33:22Z", "1790000002500", 1.79e12, None, b"x", [], {}])
def test_i09_nothing_else_is_a_time(ts: Any) -> None:
    """A typed decoder takes RFC 3339 text for an instant unless it is told not to."""
    assert refusal(packed_raw(holding("INTERVAL", ts=ts))) == (422, "invalid")


def twice(key: bytes, first: bytes, second: bytes) -> bytes:
    """A map with one key twice."""
    return b"\x82" + key + first + key + second


@pytest.mark.parametrize(
    "raw",
    [
        with_extra(b"\x01", key=b"\xa7node_id"),
        with_extra(b"\xa2n2", key=b"\xa7node_id"),
        with_extra(b"\xa2n2", key=b"\xd9\x07node_id"),
        with_extra(twice(b"\xa1a", b"\x01", b"\x02")),
        with_extra(b"\x91" + twice(b"\xa1a", b"\x01", b"\x01")),
        packed_raw(holding("PORT", counters={"a": 1, "b": 2})).replace(b"\xa1b\x02", b"\xa1a\x02"),
        packed_raw(holding("PORT", counters={"a": 1, "b": 1})).replace(b"\xa1b\x01", b"\xa1a\x01"),
        packed_raw(holding("GPU", power=1, power_limit=1)).replace(b"\xabpower_limit", b"\xa5power"),
        packed_raw(holding("INTERVAL", mono=1, boottime=2)).replace(b"\xa8boottime", b"\xa4mono"),
    ],
    ids=["batch", "batch other value", "other form", "unknown", "deep", "counts", "counts equal", "gpu", "interval"],
)
def test_i13_a_key_that_stands_twice_is_refused(raw: bytes) -> None:
    assert refusal(raw) == (400, "duplicate_key")


@pytest.mark.parametrize(
    "key", [b"\xc4\x01a", b"\xc4\x07node_id", b"\x01", b"\xc0", b"\xc3", b"\xcb" + bytes(8), b"\x90", b"\x80"]
)
def test_i14_i15_keys_are_strings(key: bytes) -> None:
    """I14: a binary key beside a text key; I15: numbers, nil, floats, containers as keys."""
    assert refusal(with_extra(b"\x01", key=key)) == (400, "bad_msgpack")


def test_i14_a_binary_value_is_no_string() -> None:
    assert refusal(packed_raw(holding("BATCH", node_id=b"n1"))) == (422, "invalid")


@pytest.mark.parametrize("top", [[], [1], 1, "text", None, True, 1.5, b"bin"])
def test_i17_the_top_is_a_map(top: Any) -> None:
    assert refusal(packed_raw(top)) == (422, "invalid")


@pytest.mark.parametrize(
    ("number", "code"), [(0, "no_intervals"), (5, "too_many_intervals"), (1_000, "too_many_intervals")]
)
def test_i17_a_batch_holds_one_to_four_intervals(number: int, code: str) -> None:
    assert refusal(packed_raw(batch(TS, intervals=[interval(TS, gpus=0)] * number))) == (422, code)


def test_i17_a_million_samples_are_refused() -> None:
    sample = packed_raw({"ts": TS})
    head = packed_raw(batch(TS, intervals=[]))[:-1]
    raw = head + b"\xdd" + struct.pack(">I", 600_000) + sample * 600_000
    assert len(raw) < wire.MAX_RAW_BYTES
    assert refusal(raw) == (400, "too_many_items")


@pytest.mark.parametrize("missing", ["schema_version", "cluster_id", "node_id", "agent_version", "intervals"])
def test_i17_what_is_required_must_be_there(missing: str) -> None:
    value = holding("BATCH")
    del value[missing]
    assert refusal(packed_raw(value)) == (422, "invalid")


@pytest.mark.parametrize("version", [0, 2, 2**63 - 1])
def test_other_schema_versions_have_their_own_code(version: int) -> None:
    assert refusal(packed_raw(holding("BATCH", schema_version=version))) == (422, "schema_version")


def test_bytes_after_the_map_or_reserved_bytes_are_refused() -> None:
    raw = packed_raw(holding("BATCH"))
    for bad in (raw + b"\0", raw + raw, raw[:-1], b"", b"\xc1", with_extra(b"\xc1")):
        assert refusal(bad) == (400, "bad_msgpack")


def test_the_largest_honest_batch_passes_the_scan() -> None:
    """Every array at its limit, in a key order that the short cut does not know."""
    port = {"device": "m", "port": 1, "counters": {f"c{n}": n for n in range(wire.MAX_COUNTERS)}}
    port |= {"near": ["0000:00:00.0"] * wire.MAX_GPUS, "pegged": ["x"] * wire.MAX_COUNTERS, "reasons": ["x"] * 16}
    full = interval(TS, gpus=wire.MAX_GPUS, ib_ports=[port] * wire.MAX_PORTS)
    full |= {"xids": [{"code": 1, "pci_bus_id": "x", "reason": "y"}] * 256, "events": [{"kind": "xid"}] * 256}
    value = batch(TS, intervals=[full] * 4)
    raw = packed_raw({"intervals": value.pop("intervals"), **value})
    assert len(raw) < wire.MAX_RAW_BYTES
    assert scan(raw, wire.MAX_NESTING) > 0
    assert len(decode.decode(raw).intervals[3].ib_ports) == wire.MAX_PORTS


def test_not_a_number_in_an_unknown_key_stays_unread() -> None:
    """Nothing reads unknown keys, so what they hold is bounded but not judged."""
    assert decode.decode(with_extra(b"\xcb" + struct.pack(">d", math.nan))).node_id == "n1"


@pytest.mark.django_db
def test_no_refusal_repeats_what_was_sent(alpha: Any, token: str) -> None:
    """I07: the error handler must not print the object; I18: nor anything of it reach the answer."""
    canary = "canary-7f3a"
    for value in (
        holding("BATCH", node_id=canary * 60),
        holding("GPU", power=canary),
        holding("PORT", counters={canary: -1}),
        holding("PORT", counters={canary: 1, canary * 30: 1}),
        holding("INTERVAL", sources={canary: 5}),
        holding("BATCH", schema_version=canary),
        holding("BATCH", **{canary: [[[[[[[[1]]]]]]]]}),
        holding("BATCH", agent_version=canary + "\n"),
        [canary],
    ):
        answer = post_raw(packed_raw(value), token)
        assert 400 <= answer.status < 500
        assert canary.encode() not in answer.body
    assert count(alpha) == 0
