"""I10 to I12, I16, I18 to I20: values, strings and times, for every key of the contract."""

from __future__ import annotations

import math
from typing import Any

import pytest

from agent import wire
from fleet import decode
from fleet.errors import BatchRejected
from fleet.tests.bodies import batch, interval, packed
from fleet.tests.ingest.uploads import TS, count, holding, packed_raw, post, post_raw

FIELDS = list(wire.listed_keys())


def of_type(*types: str) -> list[Any]:
    """(table, key) of every field with one of these types."""
    return [pytest.param(table, field.key, id=f"{table}.{field.key}") for table, field in FIELDS if field.type in types]


def refusal(raw: bytes) -> tuple[int, str]:
    """(status, code) of the refusal of these bytes."""
    with pytest.raises(BatchRejected) as refused:
        decode.decode(raw)
    return refused.value.status, refused.value.code


def of(table: str, key: str, value: Any) -> bytes:
    """A batch whose one `table` has `key` at `value`."""
    return packed_raw(holding(table, **{key: value}))


def read(raw: bytes, table: str, key: str) -> Any:
    """The value that the decoder gives for the key that `of` set."""
    found = decode.decode(raw)
    steps = {
        "BATCH": [],
        "SYNC": ["sync"],
        "INTERVAL": ["intervals"],
        "CLOCK": ["intervals", "clock"],
        "GPU": ["intervals", "gpus"],
        "ROW_REMAP": ["intervals", "gpus", "row_remap"],
        "FABRIC": ["intervals", "gpus", "fabric"],
        "PORT": ["intervals", "ib_ports"],
        "XID": ["intervals", "xids"],
        "EVENT": ["intervals", "events"],
        "PCI_LINK": ["intervals", "pci_links"],
    }[table]
    for step in [*steps, key]:
        found = found[0] if isinstance(found, tuple) else found
        found = getattr(found, step)
    return found


@pytest.mark.parametrize(("table", "key"), of_type("number"))
@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, -0.0, 1e308, -1.5, 1.0000001e9])
def test_i10_a_number_is_finite_and_not_negative(table: str, key: str, value: float) -> None:
    assert refusal(of(table, key, value)) == (422, "non_finite")


def test_i10_floats_travel_only_where_a_unit_needs_one() -> None:
    assert [f"{table}.{field.key}" for table, field in FIELDS if field.type == "number"] == ["PORT.link_rate"]


@pytest.mark.parametrize(("table", "key"), of_type("uint", "time"))
@pytest.mark.parametrize("value", [2**64 - 1, 2**63, -1, -(2**63)])
def test_i11_an_integer_is_0_to_2_63_less_1(table: str, key: str, value: int) -> None:
    assert refusal(of(table, key, value)) == (422, "invalid")


@pytest.mark.parametrize(("table", "key"), of_type("uint", "time"))
def test_i11_the_bounds_themselves_are_read(table: str, key: str) -> None:
    for value in (0, wire.MAX_INT):
        if key != "schema_version":
            assert read(of(table, key, value), table, key) == value


@pytest.mark.parametrize(("table", "key"), of_type("mask"))
def test_i11_a_mask_may_use_all_64_bits(table: str, key: str) -> None:
    assert read(of(table, key, wire.MAX_MASK), table, key) == wire.MAX_MASK
    assert refusal(of(table, key, -1)) == (422, "invalid")


@pytest.mark.django_db
def test_i11_the_greatest_values_reach_the_database_unharmed(alpha: Any, token: str) -> None:
    most = wire.MAX_INT
    value = holding("BATCH", agent_id="a", seq=most, boot_at=most, last_alive=most)
    assert post_raw(packed_raw(value), token).json()["seq"] == most
    value = holding("INTERVAL", ts=most, mono=most)
    assert post_raw(packed_raw(value), token).status == 202
    assert count(alpha, "has_suspect_clock and sample_day = '1970-01-01'") == 1


@pytest.mark.parametrize(("table", "key"), of_type("uint", "mask", "time"))
@pytest.mark.parametrize("value", [True, "5", 5.0, b"\x05", None], ids=repr)
def test_i12_nothing_but_an_integer_is_an_integer(table: str, key: str, value: Any) -> None:
    assert refusal(of(table, key, value)) == (422, "invalid")


@pytest.mark.parametrize(("table", "key"), of_type("bool"))
@pytest.mark.parametrize("value", [1, 0, "true", 1.0, None], ids=repr)
def test_i12_nothing_but_a_bool_is_a_bool(table: str, key: str, value: Any) -> None:
    assert refusal(of(table, key, value)) == (422, "invalid")


@pytest.mark.parametrize(("table", "key"), of_type("str", "strs", "words", "counts", "map", "array"))
@pytest.mark.parametrize("value", [1, True, 1.5, b"x", None], ids=repr)
def test_i12_text_and_containers_take_nothing_else(table: str, key: str, value: Any) -> None:
    assert refusal(of(table, key, value)) == (422, "invalid")


BAD_TEXT = {
    "NUL": "a\0b",
    "newline": "a\r\nSet-Cookie: x",
    "escape": "\x1b[2J",
    "RTL override": "a\u202eb",
    "zero width": "a\u200bb",
    "byte order mark": "\ufeffa",
    "line separator": "a\u2028b",
    "private use": "\ue000",
    "non-character": "\uffff",
    "too long": "x" * 257,
    "too long in bytes": "é" * 129,
    "a megabyte": "x" * 1_000_000,
}


@pytest.mark.parametrize(("table", "key"), of_type("str", "strs", "words", "counts"))
def test_i16_bad_text_is_refused_in_every_string(table: str, key: str) -> None:
    kind = next(field.type for name, field in FIELDS if (name, field.key) == (table, key))
    for name, text in BAD_TEXT.items():
        forms = {"str": [text], "strs": [[text]], "words": [{text: "ok"}, {"nvml": text}], "counts": [{text: 1}]}[kind]
        for value in forms:
            assert refusal(of(table, key, value)) == (422, "bad_string"), name


@pytest.mark.parametrize(
    "bytes_", [b"\xff\xfe", b"\xed\xa0\x80", b"\xc0\x80", b"\xf5\x80\x80\x80", b"\xc3"], ids=lambda b: b.hex()
)
def test_i16_what_is_not_utf8_is_refused(bytes_: bytes) -> None:
    """Stray bytes, a lone surrogate, an overlong NUL, a code point past the last, a cut character."""
    name = b"\xa2n1"
    raw = packed_raw(holding("BATCH"))
    assert refusal(raw.replace(name, bytes([0xA0 + len(bytes_)]) + bytes_)) == (422, "bad_string")


@pytest.mark.parametrize("text", ["gpu-node-Zürich-7", "節點", "x" * 256, "é" * 128, "a b", "ĳ", "نود"])
def test_i16_other_text_is_kept_as_it_came(text: str) -> None:
    assert decode.decode(of("BATCH", "node_id", text)).node_id == text


@pytest.mark.parametrize("key", ["cluster_id", "node_id"])
@pytest.mark.parametrize("text", ["", " ", "  "])
def test_a_name_is_not_empty(key: str, text: str) -> None:
    assert refusal(of("BATCH", key, text)) == (422, "bad_string")


@pytest.mark.django_db
def test_i18_unknown_keys_are_kept_in_the_bytes_and_shown_nowhere(alpha: Any, token: str) -> None:
    value = holding("GPU", canary_key="canary-value")
    value |= {"canary_top": {"canary": ["deep"]}}
    value["intervals"][0]["canary_interval"] = 1
    raw = packed_raw(value)
    answer = post_raw(raw, token)
    assert answer.status == 202
    assert b"canary" not in answer.body
    from django_tenants.utils import schema_context

    from fleet.models import Inbox

    with schema_context(alpha.schema_name):
        row = Inbox.objects.get()
    assert decode.gunzip(bytes(row.body)) == raw
    assert b"canary" in raw
    columns = {name: value for name, value in vars(row).items() if name not in ("body", "_state")}
    assert "canary" not in repr(columns)
    assert "canary" not in repr(decode.decode(raw))


@pytest.mark.parametrize(("table", "key"), of_type("str", "words"))
def test_i18_unknown_words_are_kept_as_they_came(table: str, key: str) -> None:
    """No enum of the contract is checked at the door: the fold opens a review for a word that it does not know."""
    kind = next(field.type for name, field in FIELDS if (name, field.key) == (table, key))
    value = "never-heard-of" if kind == "str" else {"never": "heard-of"}
    assert read(of(table, key, value), table, key) == value


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("ts", "day", "suspect"),
    [
        (0, "1970-01-01", False),
        (1_700_000_000_000, "1970-01-01", False),
        (1_735_689_599_999, "1970-01-01", False),
        (1_735_689_600_000, "2025-01-01", False),
        (2_082_671_999_999, "2035-12-30", True),
        (2_082_672_000_000, "1970-01-01", True),
        (253_402_300_799_999, "1970-01-01", True),
        (253_402_300_800_000, "1970-01-01", True),
        (wire.MAX_INT, "1970-01-01", True),
    ],
)
def test_i19_no_time_is_refused(ts: int, day: str, suspect: bool, alpha: Any, token: str) -> None:
    """The year 1970, the ends of what has partitions, the year 9999 and beyond."""
    assert post_raw(packed_raw(holding("INTERVAL", ts=ts)), token).status == 202
    where = f"sample_day = '{day}' and has_suspect_clock = {suspect}"
    assert count(alpha, where) == 1


@pytest.mark.django_db
def test_i19_ten_minutes_ahead_are_not_suspect_and_more_are(alpha: Any, token: str) -> None:
    import time

    now = int(time.time() * 1000)
    for ahead, suspect in ((9 * 60_000, False), (11 * 60_000, True), (3_600_000, True)):
        body, sha256 = packed(first_ts=now + ahead - 45_000, intervals=[interval(now + ahead)])
        assert post(body, token).status == 202
        assert count(alpha, f"sha256 = '\\x{sha256}' and has_suspect_clock = {suspect}") == 1


@pytest.mark.django_db
def test_i19_any_sample_ahead_makes_the_batch_suspect(alpha: Any, token: str) -> None:
    import time

    now = int(time.time() * 1000)
    for times in ([now, now + 900_000], [now + 900_000, now]):
        assert post_raw(packed_raw(batch(TS, intervals=[interval(ts) for ts in times])), token).status == 202
    assert count(alpha, "has_suspect_clock") == 2


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("offsets", "suspect"),
    [
        ([0, 15_000, 30_000, 45_000], False),
        ([0, 0, 0, 0], False),
        ([0, 15_000, -600_000, -585_000], True),
        ([45_000, 30_000, 15_000, 0], True),
    ],
    ids=["in order", "equal", "clock set back", "reversed"],
)
def test_i20_samples_out_of_order_are_stored_once_and_flagged(
    offsets: list[int], suspect: bool, alpha: Any, token: str
) -> None:
    """A wall clock that NTP sets back between two samples must not cost the batch."""
    raw = packed_raw(batch(TS, intervals=[interval(TS + offset) for offset in offsets]))
    assert [post_raw(raw, token).status for _ in range(2)] == [202, 202]
    assert count(alpha) == 1
    assert count(alpha, f"has_suspect_clock = {suspect}") == 1


@pytest.mark.django_db
def test_i20_batches_that_overlap_are_both_facts(alpha: Any, token: str) -> None:
    for first_ts in (TS, TS + 15_000):
        assert post(packed(first_ts=first_ts)[0], token).status == 202
    assert count(alpha) == 2
