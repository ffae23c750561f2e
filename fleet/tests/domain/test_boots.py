"""Which boot follows which is said by the placement, not by the wall clock that a machine woke up with."""

from __future__ import annotations

import pytest

from fleet.domain.slots import HOUR_MS
from fleet.domain.verdicts import State
from fleet.tests.domain import facts
from fleet.tests.domain.harness import Node

START = 480_000 * HOUR_MS + 7_500
SLOT = START // 15_000
FLAT_BATTERY_MS = 1_000  # 1970


def minutes(
    boot: str, boot_ms: int, boot_at: int, first: int, count: int, events: tuple[facts.Event, ...] = ()
) -> list[facts.Batch]:
    """`count` healthy batches of a boot that really began at `boot_ms`; `events` stand in its first sample."""
    batches = []
    for number in range(first, first + count):
        times = [START + (number * 4 + position) * 15_000 for position in range(4)]
        intervals = tuple(
            facts.Interval(
                ts=ms,
                boottime=ms - boot_ms,
                gpus=(facts.gpu(0), facts.gpu(1)),
                events=events if number == first and position == 0 else (),
            )
            for position, ms in enumerate(times)
        )
        sync = facts.Sync(times[0] - 10_000, times[0] - 10_000 - boot_ms)
        batches.append(facts.Batch(intervals, seq=number + 1, boot_id=boot, boot_at=boot_at, sync=sync))
    return batches


def fold(*batches: facts.Batch) -> Node:
    """A node after these batches, one by one."""
    node = Node()
    for batch in batches:
        node.deliver([facts.received(batch)])
        node.settle()
    return node


@pytest.mark.parametrize("woke_at", [FLAT_BATTERY_MS, None])
def test_a_boot_that_woke_up_in_1970_is_folded_like_any_other(woke_at: int | None) -> None:
    booted = START + 20 * 60_000 - 30_000
    before = minutes("b1", START - HOUR_MS, START - HOUR_MS, 0, 10)
    after = minutes("b2", booted, booted if woke_at is None else woke_at, 20, 10)
    node = fold(*before, *after)
    for subject in ("n", "g0", "g1"):
        verdicts = node.verdicts(subject, SLOT + 80, SLOT + 119)
        assert {verdict and verdict.state for verdict in verdicts} == {State.OBSERVED}


def test_an_event_before_the_first_sample_of_such_a_boot_counts() -> None:
    booted = START + 20 * 60_000 - 30_000
    gone = facts.Event(code=79, pci_bus_id=facts.gpu(1).pci_bus_id, at=START + 20 * 60_000 - 10_000)
    before = minutes("b1", START - HOUR_MS, START - HOUR_MS, 0, 10)
    codes = []
    for boot_at in (booted, FLAT_BATTERY_MS):
        node = fold(*before, *minutes("b2", booted, boot_at, 20, 4, (gone,)))
        verdicts = node.verdicts("g1", SLOT + 76, SLOT + 95)
        codes.append([(v.state, v.certain, v.possible) if v else None for v in verdicts])
    assert codes[0] == codes[1]
    assert any("XID_79" in (*entry[1], *entry[2]) for entry in codes[0] if entry)


def test_a_machine_that_a_later_boot_has_replaced_says_nothing_more() -> None:
    newer = minutes("b2", START - 60_000, START - 60_000, 0, 10)
    node = fold(*newer, *minutes("b1", START - 50 * HOUR_MS, START - 50 * HOUR_MS, 10, 4))
    verdicts = node.verdicts("g0", SLOT + 42, SLOT + 54)
    assert all(verdict is None or verdict.state is State.UNKNOWN for verdict in verdicts)
