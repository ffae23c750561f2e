"""The short cut past the second look hides nothing: what passes it has no duplicate, unknown or deep part."""

from __future__ import annotations

from typing import Any

import msgpack
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent import wire
from fleet import decode
from fleet.errors import BatchRejected
from fleet.msgpack_scan import scan
from fleet.tests.ingest.strategies import EXAMPLES, as_pairs, batches, maps_in, mutate, pack_pairs
from fleet.tests.ingest.uploads import holding

RANDOM = st.randoms(use_true_random=False)


@settings(max_examples=EXAMPLES, deadline=None)
@given(batches(), RANDOM, st.booleans(), st.integers(0, 3))
def test_a_key_doubled_anywhere_is_refused(value: dict[str, Any], random: Any, same_value: bool, where: int) -> None:
    """In any map of any batch, with the same value or another, beside its twin or far from it."""
    pairs = as_pairs(wire.ordered(value))
    target = random.choice([found for found in maps_in(pairs) if found])
    key, item = random.choice(target)
    twin = (key, item if same_value else random.choice(target)[1])
    target.insert([0, len(target), random.randrange(len(target) + 1), target.index((key, item)) + 1][where], twin)
    with pytest.raises(BatchRejected) as refused:
        decode.decode(pack_pairs(pairs))
    assert (refused.value.status, refused.value.code) == (400, "duplicate_key")


@settings(max_examples=EXAMPLES, deadline=None)
@given(batches(), RANDOM)
def test_bytes_that_pass_the_short_cut_pass_the_second_look(value: dict[str, Any], random: Any) -> None:
    """Mutated bytes that are accepted without the scan would have been accepted by it as well."""
    raw = mutate(wire.encode(value), random)
    try:
        decode.decode(raw)
    except BatchRejected:
        return
    scan(raw, wire.MAX_NESTING)


@settings(max_examples=EXAMPLES, deadline=None)
@given(batches(), RANDOM)
def test_accepted_bytes_mean_the_same_to_another_reader(value: dict[str, Any], random: Any) -> None:
    """A second implementation of MessagePack, told to refuse duplicates, reads every accepted body too."""

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        assert len({key for key, _ in pairs}) == len(pairs)
        return dict(pairs)

    raw = mutate(wire.encode(value), random)
    try:
        batch = decode.decode(raw)
    except BatchRejected:
        return
    other = msgpack.unpackb(raw, object_pairs_hook=unique, unicode_errors="surrogateescape", timestamp=0)
    assert other["node_id"] == batch.node_id
    assert len(other["intervals"]) == len(batch.intervals)
    for one, two in zip(other["intervals"], batch.intervals, strict=True):
        assert isinstance(one["ts"], msgpack.Timestamp) or one["ts"] == two.ts
        assert [gpu["uuid"] for gpu in one.get("gpus", ())] == [gpu.uuid for gpu in two.gpus]


def test_a_key_doubled_where_the_encoder_needs_as_many_bytes_is_refused() -> None:
    """The encoder spends two bytes more on a small GPU map than is needed: just what a nameless pair takes."""
    gpus = [{"uuid": f"GPU-{n}"} for n in range(4)]
    pairs = as_pairs(holding("INTERVAL", gpus=gpus))
    target = next(found for found in maps_in(pairs) if found[0][0] == "uuid")
    target += [("", None)] * 4
    raw = pack_pairs(pairs)
    assert len(decode._encoder.encode(decode._decoder.decode(raw))) == len(raw)
    with pytest.raises(BatchRejected) as refused:
        decode.decode(raw)
    assert refused.value.code == "duplicate_key"


def test_the_scan_reads_every_form_of_messagepack() -> None:
    """Each first byte: the scan finds the end where another reader finds it."""
    samples: list[Any] = [0, 127, 128, 2**16, 2**32, 2**63, -1, -33, -200, -(2**16), -(2**40), 1.5, None, True, False]
    samples += ["", "a" * 31, "a" * 32, "a" * 300, "a" * 70_000, b"", b"a" * 300, b"a" * 70_000, [], [1] * 15, [1] * 16]
    samples += [[1] * 70_000, {}, {str(n): n for n in range(15)}, {str(n): n for n in range(16)}]
    samples += [{str(n): n for n in range(70_000)}, msgpack.Timestamp(1), msgpack.Timestamp(1, 1)]
    samples += [msgpack.Timestamp(2**40, 1)]
    for sample in samples:
        raw = msgpack.packb([sample, "end"], use_bin_type=True)
        scan(raw, 6)
        for bad in (raw[:-1], raw + b"\0"):
            with pytest.raises(BatchRejected):
                scan(bad, 6)
    single = msgpack.packb(1.5, use_single_float=True)
    assert single[0] == 0xCA
    scan(single, 6)
