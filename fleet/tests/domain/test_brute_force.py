"""The rollups' sums recomputed from the raw samples by another road: numpy over whole hours, no fold, no state."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from fleet.domain.context import Context
from fleet.domain.slots import SLOTS_PER_HOUR
from fleet.domain.strips import HourRow
from fleet.tests.domain import facts
from fleet.tests.domain.harness import Node

HOURS, GPUS = 3, 8
FIRST_HOUR = 480_000
SLOTS = HOURS * SLOTS_PER_HOUR
NONE, GOOD, LOST, BLIND = range(4)


def world(seed: int) -> tuple[NDArray[Any], NDArray[Any]]:
    """(what each slot's sample says of each GPU, ms that its thermal counter spent since the sample before)."""
    rng = np.random.default_rng(seed)
    kinds = np.full((GPUS, SLOTS), GOOD)
    for gpu in range(GPUS):
        for _ in range(3):  # a GPU drops off for a while, PCI says dead
            at = int(rng.integers(5, SLOTS - 40))
            kinds[gpu, at : at + int(rng.integers(1, 30))] = LOST
    quiet = (kinds == GOOD).all(axis=0)
    calm = np.convolve(quiet, np.ones(9), "same") == 9  # NVML times out only where no GPU is lost around it
    kinds[:, calm & (rng.random(SLOTS) < 0.02)] = BLIND
    missed = rng.random(SLOTS) < 0.03
    for at in rng.integers(10, SLOTS - 30, 3):  # the agent is away for minutes
        missed[at : at + int(rng.integers(3, 25))] = True
    missed[[0, SLOTS - 1]] = False
    kinds[:, missed] = NONE
    spent = np.where(rng.random((GPUS, SLOTS)) < 0.1, rng.integers(1, 15_001, (GPUS, SLOTS)), 0)
    return kinds, np.where(kinds == GOOD, spent, 0)


def batches(kinds: NDArray[Any], spent: NDArray[Any]) -> list[Any]:
    base = FIRST_HOUR * 3_600_000
    intervals = []
    for slot in range(SLOTS):
        column = kinds[:, slot]
        if column[0] == NONE:
            continue
        blind = column[0] == BLIND
        listed = tuple(
            facts.gpu(g, throttle_time={"hw_thermal": int(spent[g, slot]), "sw_power_cap": 9000}, sm_clock=900)
            for g in range(GPUS)
            if column[g] == GOOD
        )
        intervals.append(
            facts.Interval(
                base + slot * 15_000 + 7_500,
                gpus=listed,
                sources={**facts.OK, "nvml": "timeout"} if blind else dict(facts.OK),
                pci={facts.gpu(g).pci_bus_id: "dead" for g in range(GPUS) if column[g] == LOST},
            )
        )
    made = [facts.Batch(tuple(intervals[i : i + 4]), seq=i) for i in range(0, len(intervals), 4)]
    return [facts.received(batch) for batch in made]


def recompute(kinds: NDArray[Any], spent: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    """(nominal, lower, upper) per GPU and slot, nominal -1 where unknown; the last slot is not closed yet."""
    sampled = kinds[0] != NONE
    index = np.arange(SLOTS)
    before = np.maximum.accumulate(np.where(sampled, index, -1))
    after = np.minimum.accumulate(np.where(sampled, index, SLOTS)[::-1])[::-1]
    previous = np.concatenate(([-1], before[:-1]))  # the newest sample before each slot
    following = np.concatenate((after[1:], [SLOTS]))
    left = kinds[:, np.maximum(previous, 0)]
    right = kinds[:, np.minimum(following, SLOTS - 1)]
    near = (following - previous) <= 2  # of a missed slot's neighbours: at most 37.5 s apart
    down_both = (left == LOST) & (right == LOST)
    nominal = np.full((GPUS, SLOTS), -1)
    lower, upper = np.full((GPUS, SLOTS), 100), np.zeros((GPUS, SLOTS), int)

    def say(where: NDArray[Any], n: Any, low: Any, up: Any) -> None:
        for target, value in ((nominal, n), (lower, low), (upper, up)):
            target[where] = value if np.isscalar(value) else value[where]

    missed = (kinds == NONE) & (index >= 0)
    say(kinds == GOOD, 100, 100, 100)
    say(missed & near & (left == GOOD) & (right == GOOD), 100, 100, 100)
    say((kinds == LOST) & down_both, 0, 0, 0)
    say((kinds == LOST) & ~down_both, 0, 100, 0)
    say(missed & down_both, 0, 0, 0)
    say(missed & ~near & (left == LOST) & (right == GOOD), 0, 100, 0)  # held to the device's return
    for slot in np.flatnonzero(sampled):
        reach = slot - previous[slot]
        span = reach * 15_000 if previous[slot] >= 0 and reach <= 2 else 15_000
        loss = np.where(spent[:, slot] * 100 >= span * 99, 50, 50 * spent[:, slot] // span)
        for at in range(previous[slot] + 1 if span == reach * 15_000 else slot, slot + 1):
            hit = loss > 0
            say(
                (index == at) & hit[:, None],
                (100 - loss)[:, None].repeat(SLOTS, 1),
                *[(100 - loss)[:, None].repeat(SLOTS, 1)] * 2,
            )
    say(np.broadcast_to(index == SLOTS - 1, nominal.shape), -1, 100, 0)
    return nominal, lower, upper


@pytest.mark.parametrize("seed", range(6))
def test_sums_equal_a_recomputation_from_the_raw_samples(seed: int) -> None:
    kinds, spent = world(seed)
    node = Node(Context(gpus=GPUS))
    node.deliver(batches(kinds, spent))
    node.settle()
    nominal, lower, upper = recompute(kinds, spent)
    for hour in range(HOURS):
        rollups = HourRow.from_bytes(node.rows[FIRST_HOUR + hour]).rollups()
        part = slice(hour * SLOTS_PER_HOUR, (hour + 1) * SLOTS_PER_HOUR)
        for gpu in range(GPUS):
            n, low, up = nominal[gpu, part], lower[gpu, part], upper[gpu, part]
            rollup = rollups[f"g{gpu}"]
            assert rollup.nominal_ws == 15 * int(n[n >= 0].sum())
            assert rollup.lower_ws == 15 * int(low.sum())
            assert rollup.upper_ws == 15 * int(up.sum())
            assert rollup.known_s == 15 * int((n >= 0).sum())
            assert rollup.down_s == 15 * int((n == 0).sum())
            assert rollup.degraded_s == 15 * int(((n > 0) & (n < 100)).sum())
