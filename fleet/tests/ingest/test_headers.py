"""I21, I22, I24, I36: what the headers say, and what is decided before a byte of the body is read."""

from __future__ import annotations

import base64
import gzip
from typing import Any

import pytest

from agent import wire
from fleet.tests.bodies import packed
from fleet.tests.ingest.uploads import count, post

pytestmark = pytest.mark.django_db


class Untouchable:
    """An input that must not be read."""

    def read(self, *_: Any) -> bytes:
        """Fail the test."""
        raise AssertionError("the body was read")

    readline = read


@pytest.mark.parametrize(
    "encoding", ["br", "deflate", "identity", "gzip, gzip", "gzip,gzip", "x-gzip", "zstd", "", None, "gzip;q=1", "*"]
)
def test_i21_only_gzip_once_is_an_encoding(encoding: str | None, token: str) -> None:
    answer = post(packed()[0], token, Untouchable(), HTTP_CONTENT_ENCODING=encoding)
    assert (answer.status, answer.code) == (415, "bad_content_encoding")


@pytest.mark.parametrize("encoding", ["gzip", "GZIP", " gzip "])
def test_i21_gzip_is_gzip_in_any_case(encoding: str, token: str) -> None:
    assert post(packed()[0], token, HTTP_CONTENT_ENCODING=encoding).status == 202


def test_i21_a_body_that_is_not_what_its_header_says_is_refused(token: str) -> None:
    assert post(gzip.decompress(packed()[0]), token).code == "bad_gzip"


@pytest.mark.parametrize(
    "content_type",
    [
        "application/json",
        "application/x-msgpack",
        "application/octet-stream",
        "application/msgpackx",
        "text/plain; application/msgpack",
        "multipart/form-data; boundary=x",
        "application/x-www-form-urlencoded",
        "",
        None,
        "*/*",
        "application/msgpack, application/json",
    ],
)
def test_i22_other_content_types_are_refused(content_type: str | None, token: str) -> None:
    answer = post(packed()[0], token, Untouchable(), CONTENT_TYPE=content_type)
    assert (answer.status, answer.code) == (415, "bad_content_type")


@pytest.mark.parametrize(
    "content_type",
    ["application/msgpack", "Application/MsgPack", "application/msgpack; charset=utf-7", "application/msgpack;x=y"],
)
def test_i22_parameters_and_case_change_nothing(content_type: str, alpha: Any, token: str) -> None:
    """A charset is meaningless for MessagePack; it is not obeyed."""
    body = packed(node_id="Zürich")[0]
    assert post(body, token, CONTENT_TYPE=content_type).json()["node"] == "Zürich"


@pytest.mark.parametrize("length", [None, "", "-1", "abc", "1e3", "²", "٣", "0x10", "+5", "5, 5"])
def test_i23_a_length_that_is_no_number_is_required(length: str | None, token: str) -> None:
    """A chunked upload has none and is not read."""
    answer = post(packed()[0], token, Untouchable(), CONTENT_LENGTH=length)
    assert (answer.status, answer.code) == (411, "length_required")
    assert answer.json()["permanent"] is False


@pytest.mark.parametrize("length", [wire.MAX_BODY_BYTES + 1, 10**18, 10**30, 10**400])
@pytest.mark.parametrize("known", [True, False], ids=["with a key", "without"])
def test_i24_too_long_a_body_is_refused_before_the_key_and_the_read(
    length: int, known: bool, token: str, lan: Any, django_assert_num_queries: Any
) -> None:
    with django_assert_num_queries(0):
        answer = post(b"", token if known else None, Untouchable(), CONTENT_LENGTH=str(length))
    assert (answer.status, answer.code) == (413, "too_large")


@pytest.mark.parametrize("bearer", [None, "gp_nobody", ""])
def test_i24_without_a_good_key_the_body_is_not_read(bearer: str | None, lan: Any) -> None:
    """Else anybody could hold the server's threads with bodies that trickle in."""
    answer = post(packed()[0], bearer, Untouchable())
    assert answer.status == 401
    assert answer.headers["www-authenticate"] == "Bearer"


def test_i24_the_limit_itself_is_read(token: str) -> None:
    body = packed()[0]
    assert post(body + bytes(wire.MAX_BODY_BYTES - len(body)), token).code == "trailing_bytes"


def test_a_body_shorter_than_its_length_is_worth_another_try(alpha: Any, token: str) -> None:
    """The transport broke off; unlike a gzip member that is cut short, the agent's copy is whole."""
    body = packed()[0]
    answer = post(body[:-5], token, CONTENT_LENGTH=str(len(body)))
    assert (answer.status, answer.code) == (408, "cut_short")
    assert answer.json()["permanent"] is False
    assert count(alpha) == 0


def test_a_body_longer_than_its_length_is_not_read_on(token: str) -> None:
    body = packed()[0]
    assert post(body + b"GET / HTTP/1.1", token, CONTENT_LENGTH=str(len(body))).status == 202


@pytest.mark.parametrize(
    ("header", "stored"),
    [
        (None, None),
        ("0", 0),
        (" 7 ", 7),
        ("9223372036854775807", 2**63 - 1),
        ("9223372036854775808", 2**63 - 1),
        ("9999999999999999999", 2**63 - 1),
        ("1" + "0" * 30, None),
        ("-1", None),
        ("1.5", None),
        ("seven", None),
        ("", None),
        ("7,8", None),
        ("٣", None),
        ("1_000", None),
        ("+7", None),
        ("x" * 60_000, None),
    ],
)
def test_i36_the_count_of_evictions_refuses_nothing(header: str | None, stored: int | None, alpha: Any, token: str):
    """Each row keeps what its upload said; the greatest ever said is the fold's business."""
    assert post(packed()[0], token, HTTP_X_GOODPUT_DROPPED_BATCHES=header).status == 202
    value = "null" if stored is None else str(stored)
    assert count(alpha, f"dropped_total is not distinct from {value}") == 1


@pytest.mark.parametrize(
    ("header", "kept"),
    [
        (base64.b64encode(bytes(64)).decode(), True),
        (base64.b64encode(bytes(63)).decode(), False),
        ("", False),
        ("é" * 20, False),
        ("not base64!", False),
        ("A" * 100_000, False),
        (base64.b64encode(bytes(64)).decode() + "\n", True),
    ],
)
def test_a_signature_is_kept_when_it_can_be_one_and_refuses_nothing(header: str, kept: bool, alpha: Any, token: str):
    assert post(packed()[0], token, HTTP_X_GOODPUT_SIGNATURE=header).status == 202
    assert count(alpha, f"(signature is not null) = {kept}") == 1


def test_a_receipt_has_exactly_the_promised_members(token: str) -> None:
    answer = post(packed(agent_id="a", seq=3)[0], token)
    assert set(answer.json()) == {"batch_sha256", "node", "seq", "received_at", "duplicate", "signature"}
    assert answer.headers["content-type"] == "application/json"
    assert "set-cookie" not in answer.headers


def test_a_name_that_looks_like_html_comes_back_as_json_text(token: str) -> None:
    answer = post(packed(node_id="<script>alert(1)</script>")[0], token)
    assert answer.headers["content-type"] == "application/json"
    assert answer.json()["node"] == "<script>alert(1)</script>"
