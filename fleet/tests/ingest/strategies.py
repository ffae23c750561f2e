"""Hypothesis strategies made from the tables of the wire, and mutations of their bytes."""

from __future__ import annotations

import os
import struct
from typing import Any

import msgpack
from hypothesis import strategies as st

from agent import wire

EXAMPLES = int(os.environ.get("GOODPUT_FUZZ_EXAMPLES", "80"))  # of each property
TEXT = st.text(
    st.characters(categories=["L", "N", "P", "S"], codec="utf-8", exclude_characters="\ufffd"), max_size=12
).filter(str.isprintable)
UINT = st.one_of(st.integers(0, 300), st.integers(0, wire.MAX_INT))
_SCALARS: dict[str, Any] = {
    "uint": UINT,
    "mask": st.integers(0, wire.MAX_MASK),
    "number": st.one_of(st.integers(0, 10**9), st.floats(0.0, 1e9).filter(lambda value: str(value) != "-0.0")),
    "str": TEXT,
    "bool": st.booleans(),
    "time": UINT,
}


def values(field: wire.Field) -> Any:
    """What one field may hold; short arrays, so that a batch stays small."""
    few = min(field.most, 2)
    if field.type == "map":
        return maps(field.of)
    if field.type == "array":
        return st.lists(maps(field.of), max_size=few)
    if field.type == "strs":
        return st.lists(TEXT, max_size=few)
    if field.type in ("counts", "words"):
        return st.dictionaries(TEXT, UINT if field.type == "counts" else TEXT, max_size=few)
    return _SCALARS[field.type]


def maps(table: str) -> Any:
    """Maps of one table: its required keys and any of the others."""
    required = {field.key: values(field) for field in wire.TABLES[table] if field.required}
    optional = {field.key: values(field) for field in wire.TABLES[table] if not field.required}
    return st.fixed_dictionaries(required, optional=optional)


def batches() -> Any:
    """Batches that the contract allows."""

    def lawful(batch: dict[str, Any]) -> dict[str, Any]:
        batch["schema_version"] = wire.SCHEMA_VERSION
        batch["cluster_id"] = batch["cluster_id"] or "c"
        batch["node_id"] = batch["node_id"] or "n"
        batch["intervals"] = batch["intervals"] or [{"ts": 5}]
        return batch

    return maps("BATCH").map(lawful)


def pack_pairs(value: Any) -> bytes:
    """MessagePack where a list of pairs, marked by `Pairs`, is a map that may name a key twice."""
    if isinstance(value, Pairs):
        head = bytes([0x80 + len(value)]) if len(value) < 16 else b"\xde" + struct.pack(">H", len(value))
        return head + b"".join(pack_pairs(key) + pack_pairs(item) for key, item in value)
    if isinstance(value, list):
        head = bytes([0x90 + len(value)]) if len(value) < 16 else b"\xdc" + struct.pack(">H", len(value))
        return head + b"".join(map(pack_pairs, value))
    packed: bytes = msgpack.packb(value, use_bin_type=True)
    return packed


class Pairs(list):  # type: ignore[type-arg]
    """A map as (key, value) pairs."""


def as_pairs(value: Any) -> Any:
    """The same value with every map as `Pairs`."""
    if isinstance(value, dict):
        return Pairs((key, as_pairs(item)) for key, item in value.items())
    return [as_pairs(item) for item in value] if isinstance(value, list) else value


def maps_in(value: Any) -> list[Pairs]:
    """Every map in it, itself included."""
    if isinstance(value, Pairs):
        return [value, *(found for _, item in value for found in maps_in(item))]
    return [found for item in value for found in maps_in(item)] if isinstance(value, list) else []


HOSTILE = (
    [None, True, -1, 2**63, 2**64 - 1, -(2**63), float("nan"), float("inf"), -0.0, 1e308, "", "\0", "\u202e"]
    + ["x" * 257, b"", b"x", [], {}, [[]], {"a": {"a": {"a": {"a": {"a": {"a": 1}}}}}}, "2026-09-21T00:00:00Z"]
    + [msgpack.ExtType(5, b"x"), msgpack.Timestamp(-1, 0), msgpack.Timestamp(2**40, 1), [{}] * 300, 0, 2**53]
)


def mutate(raw: bytes, random: Any) -> bytes:
    """A few bytes of it changed, cut out, doubled or moved."""
    data = bytearray(raw)
    for _ in range(random.randint(1, 4)):
        if not data:
            break
        at = random.randrange(len(data))
        match random.randrange(5):
            case 0:
                data[at] = random.randrange(256)
            case 1:
                data[at] ^= 1 << random.randrange(8)
            case 2:
                del data[at : at + random.randint(1, 9)]
            case 3:
                data[at:at] = data[at : at + random.randint(1, 30)]
            case 4:
                data[at:at] = random.randbytes(random.randint(1, 6))
    return bytes(data)
