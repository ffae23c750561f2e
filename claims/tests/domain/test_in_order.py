"""The verifier's quick way: batches folded in the order of their receipt give what all of them folded together give."""

from __future__ import annotations

from collections import Counter

import pytest

from claims.verify.folding import fold_window, in_order
from fleet.domain.context import dated_of
from fleet.domain.rules import load_rules
from fleet.domain.slots import HOUR_MS
from fleet.tests.domain import histories

RULES = load_rules()

CHUNKS = (9, 1000)


def both(seed: int, wild: int, several: bool = False) -> bool:
    """Whether the quick way was there, having compared it."""
    history = histories.make(seed, wild=wild, several=several)
    dated = dated_of(RULES, history.context)
    first, last = histories.START // HOUR_MS, history.end_ms // HOUR_MS + 1
    order = sorted(history.batches, key=lambda one: (one.received_at_ms, one.sha256))
    whole = fold_window(None, first, last, history.batches, dated, {})
    was_there = False
    for size in CHUNKS:
        chunks = (order[at : at + size] for at in range(0, len(order), size))
        found = in_order(None, first, last, chunks, dated)
        assert found is None or found == whole, (seed, wild, several, size)
        was_there = was_there or found is not None
    return was_there


@pytest.mark.parametrize("wild", [0, 1, 2])
@pytest.mark.parametrize("several", [False, True])
def test_in_the_order_of_receipt_or_all_together(wild: int, several: bool) -> None:
    said = Counter(both(seed, wild, several) for seed in range(6))
    if not wild and not several:
        assert said[True] > 2  # else nothing was compared
