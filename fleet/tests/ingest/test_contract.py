"""The decoder is the wire: every key and every limit of agent/wire.py, and nothing else."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent import wire
from fleet import decode
from fleet.domain.ports import FLAPS
from fleet.domain.rules import load_rules
from fleet.errors import BatchRejected
from fleet.tests.ingest.strategies import EXAMPLES, batches
from fleet.tests.ingest.test_values import of, of_type, refusal
from fleet.tests.ingest.uploads import holding, packed_raw


@pytest.mark.parametrize("table", wire.TABLES)
def test_a_struct_has_the_fields_of_its_table_in_their_order(table: str) -> None:
    """The order is that of `wire.ordered`: the short cut past the second look depends on it."""
    fields = {field.name: field for field in msgspec.structs.fields(decode.STRUCTS[table])}
    assert list(fields) == [field.key for field in wire.TABLES[table]]
    for field in wire.TABLES[table]:
        assert fields[field.key].required == field.required
        if not field.required:
            empty = () if field.type in ("array", "strs") else None
            assert fields[field.key].default == empty, field.key


@pytest.mark.parametrize(("table", "key"), of_type("array", "strs", "counts", "words"))
def test_every_array_and_map_ends_at_its_own_limit(table: str, key: str) -> None:
    field = next(field for field in wire.TABLES[table] if field.key == key)
    assert field.most > 0, "no array without a limit"
    element: Any = "x"
    if field.type == "array":
        inner = holding(field.of)
        element = inner["intervals"][0] if field.of == "INTERVAL" else inner["intervals"][0][key][0]

    def many(number: int) -> Any:
        if field.type in ("counts", "words"):
            return {f"k{n}": (n if field.type == "counts" else "ok") for n in range(number)}
        return [element] * number

    batch = decode.decode(of(table, key, many(field.most)))
    assert batch.schema_version == 1
    assert refusal(of(table, key, many(field.most + 1))) == (422, f"too_many_{key}")


def test_the_limits_are_those_of_the_contract() -> None:
    """wire.md: intervals 1..4, GPUs and ports 64, counters per port 64, xids and events 256 per interval, nesting 6."""
    most = {f"{table}.{field.key}": field.most for table, field in wire.listed_keys() if field.most}
    assert most["BATCH.intervals"] == 4
    assert most["INTERVAL.gpus"] == most["INTERVAL.ib_ports"] == most["PORT.counters"] == 64
    assert most["INTERVAL.xids"] == most["INTERVAL.events"] == 256
    assert (wire.MAX_NESTING, wire.MAX_STRING_BYTES, wire.MAX_INT) == (6, 256, 2**63 - 1)
    assert (wire.MAX_BODY_BYTES, wire.MAX_RAW_BYTES) == (1 << 20, 8 << 20)


def test_no_honest_batch_nests_deeper_than_the_limit() -> None:
    def depth(table: str) -> int:
        below = [0]
        for field in wire.TABLES[table]:
            if field.type in ("map", "array"):
                below.append(depth(field.of) + (field.type == "array"))
            elif field.type in ("counts", "words", "strs"):
                below.append(1)
        return 1 + max(below)

    assert depth("BATCH") == wire.MAX_NESTING


def absent(field: wire.Field) -> Any:
    """What the decoder gives for a key that was left out."""
    return () if field.type in ("array", "strs") else None


def equal(sent: dict[str, Any], got: Any, table: str) -> None:
    """Assert that every attribute is what was sent, down to the leaves, types included."""
    for field in wire.TABLES[table]:
        value, found = sent.get(field.key), getattr(got, field.key)
        if value is None:
            assert found == absent(field), field.key
        elif field.type == "map":
            equal(value, found, field.of)
        elif field.type == "array":
            assert len(value) == len(found)
            for one, other in zip(value, found, strict=True):
                equal(one, other, field.of)
        else:
            assert found == (tuple(value) if field.type == "strs" else value), field.key
            assert field.type == "strs" or type(found) is type(value)


@settings(max_examples=EXAMPLES, deadline=None)
@given(batches())
def test_what_the_agent_encodes_is_what_the_server_reads(value: dict[str, Any]) -> None:
    raw = wire.encode(value)
    equal(value, decode.decode(raw), "BATCH")
    equal(value, decode.decode_trusted(raw), "BATCH")


@settings(max_examples=EXAMPLES, deadline=None)
@given(batches())
def test_the_fold_reads_the_same_without_the_counters_that_it_never_asks_for(value: dict[str, Any]) -> None:
    raw = wire.encode(value)
    for interval in value["intervals"]:
        for port in interval.get("ib_ports", ()):
            downed = (port.pop("counters", None) or {}).get(FLAPS)
            if downed:
                port["counters"] = {FLAPS: downed}
    equal(value, decode.decode_for_fold(raw), "BATCH")


def test_no_rule_asks_for_another_counter_of_a_port() -> None:
    ports = [rule for rule in load_rules().reasons.values() if rule.subject == "port"]
    assert {name for rule in ports for name in rule.counters} == {FLAPS}


@settings(max_examples=EXAMPLES, deadline=None)
@given(batches())
def test_an_agents_own_bytes_take_the_short_cut(value: dict[str, Any]) -> None:
    """Else every batch would cost the slow second look: empty arrays and absent ones must encode differently.

    A GPU with fewer than 16 keys has no short cut (the encoder always writes that map's length in two bytes); the 18
    public keys alone are more.
    """
    example = {"uint": 1, "mask": 1, "str": "x", "bool": True}
    public = {field.key: example[field.type] for field in wire.GPU if field.public}
    for interval in value["intervals"]:
        interval["gpus"] = [{**public, **gpu} for gpu in interval.get("gpus", ())]
    raw = wire.encode(value)
    assert decode._encoder.encode(decode._decoder.decode(raw)) == raw


@settings(max_examples=EXAMPLES, deadline=None)
@given(batches(), st.randoms(use_true_random=False))
def test_any_order_of_keys_reads_the_same(value: dict[str, Any], random: Any) -> None:
    def shuffled(item: Any) -> Any:
        if isinstance(item, dict):
            keys = list(item)
            random.shuffle(keys)
            return {key: shuffled(item[key]) for key in keys}
        return [shuffled(element) for element in item] if isinstance(item, list) else item

    equal(value, decode.decode(packed_raw(shuffled(value))), "BATCH")


def test_every_key_alone_survives_the_way() -> None:
    """One batch per key with the greatest or longest value that it may hold."""
    greatest = {
        "uint": wire.MAX_INT,
        "mask": wire.MAX_MASK,
        "number": 1e9,
        "str": "x" * wire.MAX_STRING_BYTES,
        "bool": True,
        "time": wire.MAX_INT,
    }
    for table, field in wire.listed_keys():
        if field.type in greatest and field.key != "schema_version":
            value = holding(table, **{field.key: greatest[field.type]})
            equal(value, decode.decode(wire.encode(value)), "BATCH")


def test_the_agent_cannot_encode_what_is_not_listed() -> None:
    for table in wire.TABLES:
        with pytest.raises(wire.WireError, match="not part of the data contract"):
            wire.encode(holding(table, hostname_of_tenant="x"))


def test_refusals_of_required_keys_name_the_place() -> None:
    value = holding("GPU")
    del value["intervals"][0]["gpus"][0]["uuid"]
    with pytest.raises(BatchRejected) as refused:
        decode.decode(packed_raw(value))
    assert refused.value.detail.startswith("intervals[0].gpus[0]: ")
    assert "uuid" in refused.value.detail
