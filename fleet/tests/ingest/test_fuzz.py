"""I40: mutated real bodies. Only 2xx and 4xx, never a 5xx. GOODPUT_FUZZ_EXAMPLES raises the number of each test."""

from __future__ import annotations

import gzip
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agent import wire
from fleet.tests.ingest.strategies import EXAMPLES, HOSTILE, as_pairs, batches, maps_in, mutate, pack_pairs
from fleet.tests.ingest.uploads import Answer, count, post, post_raw

pytestmark = pytest.mark.django_db
FUZZ = settings(
    max_examples=EXAMPLES,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
RANDOM = st.randoms(use_true_random=False)
ALLOWED = {202, 400, 409, 413, 415, 422}


def judge(answer: Answer) -> None:
    """The answer is a receipt or a permanent refusal as a problem document, of a size that does not depend on input."""
    assert answer.status in ALLOWED, answer
    if answer.status == 202:
        assert len(answer.json()["batch_sha256"]) == 64
    else:
        assert answer.code
        assert answer.json()["permanent"] is True
        assert len(answer.body) < 1000


@FUZZ
@given(value=batches(), random=RANDOM)
def test_i40_mutated_messagepack(value: dict[str, Any], random: Any, alpha: Any, token: str) -> None:
    judge(post_raw(mutate(wire.encode(value), random), token))


@FUZZ
@given(value=batches(), random=RANDOM)
def test_i40_mutated_gzip(value: dict[str, Any], random: Any, alpha: Any, token: str) -> None:
    judge(post(mutate(wire.pack(value)[0], random), token))


@FUZZ
@given(value=batches(), random=RANDOM)
def test_i40_hostile_values_in_any_place(value: dict[str, Any], random: Any, alpha: Any, token: str) -> None:
    """One to three values or keys of a real batch replaced by what has broken decoders before."""
    pairs = as_pairs(wire.ordered(value))
    for _ in range(random.randint(1, 3)):
        target = random.choice([found for found in maps_in(pairs) if found] or [pairs])
        at = random.randrange(len(target))
        key, item = target[at]
        hostile = random.choice(HOSTILE)
        target[at] = (hostile, item) if random.random() < 0.2 else (key, hostile)
    judge(post_raw(pack_pairs(pairs), token))


@FUZZ
@given(raw=st.binary(max_size=400))
def test_i40_random_bytes(raw: bytes, alpha: Any, token: str) -> None:
    judge(post(raw, token))
    judge(post_raw(raw, token))


@FUZZ
@given(value=batches())
def test_i40_every_lawful_batch_is_stored(value: dict[str, Any], alpha: Any, token: str) -> None:
    """The other side of the door: what the contract allows is never refused, whatever its values."""
    body, sha256 = wire.pack(value)
    answer = post(body, token)
    assert answer.status in (202, 409)
    assert count(alpha, f"sha256 = '\\x{sha256}' and body = '\\x{body.hex()}'") == 1
    assert answer.status == 409 or answer.json()["node"] == value["node_id"]


@FUZZ
@given(
    headers=st.dictionaries(
        st.sampled_from(
            [
                "CONTENT_TYPE",
                "HTTP_CONTENT_ENCODING",
                "CONTENT_LENGTH",
                "HTTP_AUTHORIZATION",
                "HTTP_X_GOODPUT_DROPPED_BATCHES",
                "HTTP_X_GOODPUT_SIGNATURE",
                "QUERY_STRING",
                "HTTP_ACCEPT",
            ]
        ),
        st.text(st.characters(max_codepoint=255), max_size=30),
    )
)
def test_i40_mutated_headers(headers: dict[str, str], alpha: Any, token: str) -> None:
    body = gzip.compress(b"\x80", mtime=0)
    assert post(body, token, **headers).status in ALLOWED | {401, 408, 411}
