"""Mutated examples at every reader of hostile bytes: it reads or refuses. GOODPUT_FUZZ_EXAMPLES raises the number."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fleet.tests.ingest.strategies import EXAMPLES, mutate
from goodput_site.tests.fuzzing import TARGETS, examples

FUZZ = settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck))


@pytest.mark.parametrize("target", TARGETS)
def test_each_example_is_taken_as_it_is(target: str) -> None:
    found = examples(target)
    assert found
    for example in found:
        TARGETS[target](example)


@pytest.mark.parametrize("target", TARGETS)
@FUZZ
@given(random=st.randoms(use_true_random=False), data=st.binary(max_size=200))
def test_mutated_examples_are_read_or_refused(target: str, random: Any, data: bytes) -> None:
    TARGETS[target](data)
    TARGETS[target](mutate(random.choice(examples_of(target)), random))


_examples: dict[str, list[bytes]] = {}


def examples_of(target: str) -> list[bytes]:
    """The examples, made once."""
    return _examples.setdefault(target, examples(target))


@pytest.mark.parametrize("target", ["kmsg", "contract"])
@FUZZ
@given(text=st.text(max_size=300))
def test_any_text_is_read_or_refused(target: str, text: str) -> None:
    TARGETS[target](text.encode("utf-8", "surrogatepass"))
