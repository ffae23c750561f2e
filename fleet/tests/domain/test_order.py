"""Machines in trouble, delivered in any order, in pieces and twice, with re-folds in between: always the same bytes."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Any

import pytest

from fleet.domain import state
from fleet.domain.clocks import CLOCK_KEPT_MS, CLOCKS_KEPT, NO_FIT, Fit, kept_clocks, with_clock
from fleet.domain.receipts import ReceivedBatch
from fleet.domain.refold import refold
from fleet.domain.rules import load_rules
from fleet.domain.slots import HOUR_MS
from fleet.tests.domain import facts, troubles
from fleet.tests.domain.harness import Node
from fleet.tests.domain.test_properties import pieces

START = 480_000 * HOUR_MS + 7_500


@pytest.mark.parametrize(
    ("kinds", "seeds"),
    [
        ("pause", range(4)),
        ("reboot pause same_boot_at", range(4)),
        ("reinstall pause", range(4)),
        ("snapshot reboot pause", range(4)),
        ("reboot late_ntp pause", range(4)),
        ("reboot late_events long_batches", range(4)),
        ("reboot silence pause reinstall", (16, *range(3))),
        ("wrong_server pause two_agents", (32, 42, *range(3))),
        ("reboot wrong_server snapshot", range(4)),
    ],
)
def test_trouble_comes_to_the_same_bytes_in_any_order(kinds: str, seeds: tuple[int, ...]) -> None:
    for seed in seeds:
        batches, context = troubles.make(seed, *kinds.split())
        wanted, node, rng = Node(context), Node(context), Random(seed + 1)
        wanted.deliver(batches)
        wanted.settle()
        for chunk in pieces(batches, rng):
            node.deliver(chunk)
            if rng.random() < 0.25:
                node.settle()
        node.settle()
        assert node.rows.keys() == wanted.rows.keys(), seed
        assert [hour for hour in wanted.rows if node.rows[hour] != wanted.rows[hour]] == [], seed
        assert node.state == wanted.state, seed


def test_the_same_bytes_twice_in_two_hours_with_a_refold_between_change_nothing() -> None:
    batches, context = troubles.make(5, "reboot", "pause")
    node = Node(context)
    node.deliver(batches)
    node.settle()
    before = dict(node.rows), node.state
    node.inbox.clear()  # so that nothing but the fold itself knows them
    for at in (0, len(batches) // 2, -1):
        node.deliver([batches[at]])
        node.inbox.update((batch.sha256, batch) for batch in batches)
        node.settle()
        assert (node.rows, node.state) == before
        node.inbox.clear()


def test_a_refold_ends_though_a_boot_is_forgotten_that_comes_again(monkeypatch: pytest.MonkeyPatch) -> None:
    begins: list[int] = []

    def counted(*given: Any, **more: Any) -> Any:
        begins.append(given[1])
        assert len(begins) < 1_000
        return refold(*given, **more)

    monkeypatch.setattr("fleet.domain.refold.refold", counted)
    monkeypatch.setattr(state, "with_clock", lambda others, fit: {})
    batches, context = troubles.make(46, "reboot", "silence", "pause", "reinstall")
    node, rng = Node(context), Random(47)
    for chunk in pieces(batches, rng):
        node.deliver(chunk)
        if rng.random() < 0.25:
            node.settle()
    node.settle()
    assert begins
    assert not node.dirty


def minute(number: int, stood_still_ms: int, sync: facts.Sync | None) -> ReceivedBatch:
    """A healthy minute of a boot that stood still for so long before it."""
    first = START + number * 60_000 + stood_still_ms
    began = START - 10**7 + stood_still_ms
    intervals = tuple(
        facts.Interval(ts=ms, boottime=ms - began, gpus=(facts.gpu(0),)) for ms in range(first, first + 60_000, 15_000)
    )
    batch = facts.Batch(intervals, seq=number + 1, boot_id="b1", boot_at=START - 10**7, sync=sync)
    return facts.received(batch, first + 50_000)


def test_a_late_batch_long_after_a_pause_is_folded_from_its_place_on() -> None:
    batches, sync = [], None
    for number in range(0, 1_500, 5):
        still = 600_000 if number >= 100 else 0
        batches.append(minute(number, still, sync))
        at = START + number * 60_000 + still + 50_000
        sync = facts.Sync(at, at - (START - 10**7 + still))
    late = batches.pop(270)
    node = Node()
    node.deliver(batches)
    node.settle()
    asked: list[int] = []
    load = node.load
    node.load = lambda hour: asked.append(hour) or load(hour)  # type: ignore[method-assign,func-returns-value]
    node.deliver([late])
    node.settle()
    place = late.batch.intervals[0].ts // HOUR_MS
    assert place - 1 <= min(asked) <= max(asked) <= place + 2
    wanted = Node()
    wanted.deliver([*batches, late])
    wanted.settle()
    assert (node.rows, node.state) == (wanted.rows, wanted.state)


def test_a_refold_begins_no_earlier_than_what_is_not_sealed() -> None:
    """The batch stands in an hour of which the state before already holds what came after it."""
    node = Node()
    node.deliver([minute(number, 0, None) for number in range(0, 60) if number != 30])
    opening, late, hour = node.newest(), minute(30, 0, None), START // HOUR_MS
    assert opening is not None
    told = []
    for sealed_until in (hour, hour + 1):
        done = refold(
            *(opening, hour + 5, hour + 5, lambda _: [late], node.row, load_rules()),
            stands=lambda _: (hour + 5, hour + 5),
            sealed_until=sealed_until,
        )
        told.append(done.earlier is not None and done.earlier.ahead_of)
    assert told == [{"b1": late.batch.intervals[0].boottime}, False]


def test_a_blind_installation_that_names_no_boot_leaves_the_clock_of_the_nodes_boot_known() -> None:
    node, well, after = Node(), minute(0, 0, None), minute(1, 0, None)
    seen: Any = after.batch
    blind = tuple(replace(one, gpus=(), sources=dict.fromkeys(facts.OK, "timeout")) for one in seen.intervals)
    node.deliver([well])
    node.deliver(
        [facts.received(replace(seen, intervals=blind, agent_id="a2", boot_id=None), after.received_at_ms)],
    )
    known = node.newest()
    assert known is not None
    assert (known.fit_of("b1") or NO_FIT)[7] == well.batch.intervals[-1].boottime


def clock(boot: str, last_ms: int) -> Fit:
    """A boot's clock whose last sample stands at this instant."""
    return (boot, *NO_FIT[1:11], last_ms, *NO_FIT[12:])


def test_other_boots_clocks_are_remembered_for_a_day_and_only_the_newest_of_many() -> None:
    others: dict[str, Fit] = {}
    for number in range(CLOCKS_KEPT + 2):
        others = with_clock(others, clock(f"b{number}", number * 1_000))
    assert sorted(others) == [f"b{number}" for number in range(2, CLOCKS_KEPT + 2)]
    assert kept_clocks(others, CLOCK_KEPT_MS + 2_000) == others
    assert "b2" not in kept_clocks(others, CLOCK_KEPT_MS + 2_001)
    assert with_clock({}, NO_FIT) == {}  # of a boot without a boot-time clock nothing is to be remembered
