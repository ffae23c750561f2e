"""Properties of the fold that hold whatever happens: delivery, time, parties, unknown."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fleet.domain import quick
from fleet.domain.clocks import NO_FIT
from fleet.domain.fold import fold_all, hold
from fleet.domain.node_hours import advance, rows_needed, silence_rows
from fleet.domain.placement import place
from fleet.domain.rules import Rules, load_rules
from fleet.domain.state import NodeState
from fleet.domain.strips import HourRow, read_rollups
from fleet.domain.verdicts import State
from fleet.tests.domain import facts, histories
from fleet.tests.domain.harness import Node

SEEDS = st.integers(min_value=0, max_value=10**6)
FEW = settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def in_order(history: histories.History) -> Node:
    """Everything at once, then folded again from the beginning: the reference."""
    node = Node(history.context)
    node.deliver(history.batches)
    node.settle()
    return node


def pieces(batches: list[Any], rng: Random) -> list[list[Any]]:
    """The batches shuffled locally or wholly, 30 % given twice, cut into chunks."""
    wide = rng.random() < 0.5
    order = sorted(range(len(batches)), key=lambda i: i + rng.random() * (len(batches) if wide else 6))
    twice = [i for i in order if rng.random() < 0.3]
    order = order + twice if wide else sorted(order + twice, key=lambda i: i + rng.random() * 10)
    out, at = [], 0
    while at < len(order):
        size = rng.choice([1, 1, 2, 3, 8, 30])
        out.append([batches[i] for i in order[at : at + size]])
        at += size
    return out


@FEW
@given(SEEDS, st.booleans())
def test_shuffled_doubled_and_cut_delivery_gives_the_same_bytes(seed: int, wild: bool) -> None:
    deliver_in_pieces(seed, wild, False)


@pytest.mark.parametrize(
    ("seed", "wild", "several"),
    [
        (423, 0, False),  # an earlier receipt, come late, decides a jump of the hour before
        (1008, 1, False),  # a receipt of an ended boot, come late, decides a jump
        (114, 1, True),  # two installations' samples of one instant, while receipts hold them back
        (37, 2, False),  # a late batch that stood nowhere near where it was looked for
        (41, 2, False),  # a sample of a closed hour whose guessed place lies in a later one
        (38, 2, True),  # a sample placed hours ahead holds back those of the hours before
        (7, 2, True),
        (12, 2, True),
        (18, 2, False),  # two boots whose hours lie in each other: each goes on from its own clock
        (87, 2, False),
        (271, 2, False),
        (1071, 1, True),
    ],
)
def test_histories_that_once_came_out_otherwise(seed: int, wild: int, several: bool) -> None:
    deliver_in_pieces(seed, wild, several)


def deliver_in_pieces(seed: int, wild: int, several: bool) -> None:
    """Compare a history delivered in pieces, with re-folds in between, with the same delivered at once."""
    history = histories.make(seed, wild=wild, several=several)
    wanted = in_order(history)
    rng = Random(seed + 1)
    node = Node(history.context)
    for chunk in pieces(history.batches, rng):
        node.deliver(chunk)
        if rng.random() < 0.2:
            node.settle()
    node.settle()
    assert node.rows.keys() == wanted.rows.keys()
    for hour in wanted.rows:
        assert node.rows[hour] == wanted.rows[hour], hour
    assert node.state == wanted.state


@FEW
@given(SEEDS)
def test_folding_everything_again_changes_nothing(seed: int) -> None:
    history = histories.make(seed)
    node = in_order(history)
    before = dict(node.rows), node.state
    node.settle(everything=True)
    assert (node.rows, node.state) == before


@FEW
@given(SEEDS)
def test_time_is_conserved(seed: int) -> None:
    node = in_order(histories.make(seed))
    for raw in node.rows.values():
        for rollup in read_rollups(raw).values():
            assert sum(rollup.seconds.values()) == 3600
            assert rollup.nominal_ws <= 100 * rollup.known_s
            assert rollup.down_s + rollup.degraded_s <= rollup.known_s
            assert rollup.upper_ws <= rollup.nominal_ws <= rollup.lower_ws


@FEW
@given(SEEDS)
def test_a_customers_reason_never_lowers_and_unknown_is_never_down(seed: int) -> None:
    rules = load_rules()

    def lowers(code: str) -> bool:
        reason = rules.of(code)
        assert reason is not None, code
        return reason.lowers

    node = in_order(histories.make(seed))
    for raw in node.rows.values():
        row = HourRow.from_bytes(raw)
        for subject in row.subjects():
            for verdict in set(row.verdicts(subject)):
                assert (verdict.nominal is None) == (verdict.state is State.UNKNOWN)
                if verdict.state is State.UNKNOWN:
                    assert (verdict.lower, verdict.upper) == (100, 0)
                    assert verdict.certain
                    continue
                assert verdict.nominal is not None
                assert verdict.upper <= verdict.nominal <= verdict.lower <= 100
                if verdict.upper < 100:
                    assert any(map(lowers, (*verdict.certain, *verdict.possible)))
                if verdict.lower < 100:
                    assert any(map(lowers, verdict.certain))


def assert_no_slot_weighs_more(worse: Node, mild: Node) -> None:
    """In no reading, of no subject; a slot that one of them does not know says nothing of the nominal."""
    assert worse.rows.keys() == mild.rows.keys()
    for hour, raw in mild.rows.items():
        row, other = HourRow.from_bytes(raw), HourRow.from_bytes(worse.rows[hour])
        for subject in row.subjects():
            for a, b in zip(row.verdicts(subject), other.verdicts(subject), strict=True):
                assert b.lower <= a.lower, (subject, a, b)
                assert b.upper <= a.upper, (subject, a, b)
                if a.nominal is not None and b.nominal is not None:
                    assert b.nominal <= a.nominal, (subject, a, b)


@settings(max_examples=15, deadline=None)
@given(SEEDS, st.integers(min_value=1, max_value=100))
def test_the_less_reasons_weigh_the_less_every_slot_does(seed: int, by: int) -> None:
    history, rules = histories.make(seed, slots=80), load_rules()
    heavier = {
        code: replace(reason, weight=max(0, reason.weight - by)) if reason.lowers else reason
        for code, reason in rules.reasons.items()
    }
    nodes = [Node(history.context, rules), Node(history.context, Rules("heavier", rules.digest, heavier))]
    for node in nodes:
        node.deliver(history.batches)
        node.settle()
    assert_no_slot_weighs_more(nodes[1], nodes[0])


@settings(max_examples=15, deadline=None)
@given(SEEDS, st.integers(min_value=0, max_value=2))
def test_a_more_severe_event_never_leaves_a_slot_with_more(seed: int, gpu: int) -> None:
    """A contained or an uncontained error in place of a program's own one, at the same instant of the same history."""
    history, rng = histories.make(seed, slots=80), Random(seed + 2)
    which = rng.randrange(len(history.batches))
    batch: Any = history.batches[which].batch
    sample, before = rng.randrange(len(batch.intervals)), rng.randrange(14_000)
    nodes = []
    for code in (13, 94, 95):
        batches = list(history.batches)
        intervals = list(batch.intervals)
        event = facts.Event("xid", code, facts.gpu(gpu).pci_bus_id, at=intervals[sample].ts - before)
        intervals[sample] = replace(intervals[sample], events=(*intervals[sample].events, event))
        changed = replace(batch, intervals=tuple(intervals))
        batches[which] = facts.received(changed, batches[which].received_at_ms)
        node = Node(history.context)
        node.deliver(batches)
        node.settle()
        nodes.append(node)
    for worse in nodes[1:]:
        assert_no_slot_weighs_more(worse, nodes[0])


@settings(max_examples=15, deadline=None)
@given(SEEDS)
def test_jitter_drift_and_one_missed_sample_in_a_hundred_leave_no_false_unknown(seed: int) -> None:
    history = histories.make(seed, slots=400, quiet=True)
    # two missed samples in a row are honestly unknown: leave those histories out
    times = sorted(i.ts for b in history.batches for i in b.batch.intervals)
    if any(b - a > 36_000 for a, b in zip(times, times[1:], strict=False)):
        return
    node = in_order(history)
    first, last = times[0] // 15_000, times[-1] // 15_000
    ports = ("p:G1",) if history.context.ports else ()
    for subject in ("n", "g0", *ports):
        for verdict in node.verdicts(subject, first, last):
            assert verdict is not None
            assert (verdict.state, verdict.nominal) == (State.OBSERVED, 100)


@pytest.mark.parametrize("seed", range(3))
def test_rows_do_not_depend_on_how_often_silence_was_written(seed: int) -> None:
    history = histories.make(seed + 70)
    wanted = in_order(history)
    node = Node(history.context)
    for batch in history.batches:
        if node.state is not None:
            state = NodeState.from_bytes(node.state)
            rows = {h: HourRow.from_bytes(node.rows[h]) for h in rows_needed(state) if h in node.rows}
            silent = silence_rows(state, rows, state.last_ms + 200_000, node.rules, node.context)
            node._store(silent, None)
        node.deliver([batch])
    node.settle()
    for hour in wanted.rows:
        assert node.rows[hour] == wanted.rows[hour]


@FEW
@given(SEEDS)
def test_the_quick_way_says_what_the_long_way_says(seed: int) -> None:
    history = histories.make(seed)
    quick_one = in_order(history)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(quick, "take", lambda *_: False)
        long_one = in_order(history)
    assert quick_one.rows == long_one.rows
    assert quick_one.state == long_one.state
    assert quick_one.events == long_one.events


@FEW
@given(SEEDS, st.integers(min_value=2, max_value=900))
def test_holding_a_sample_is_repeating_it_slot_by_slot(seed: int, slots: int) -> None:
    history = histories.make(seed, slots=40)
    rules = load_rules()
    items = place(history.batches, NO_FIT).items
    rng = Random(seed)
    state, _, _ = fold_all(None, items, rules, history.context)
    assert state is not None
    samples = [i for i in items if i.event is None and i.batch.boot_id == state.boot_id and i.clock_ok]
    if not samples:
        return
    start = (state.open_slot + rng.choice([1, 2, 9])) * 15_000 + 7_500
    item = samples[-1]._replace(ms=max(start, state.watermark_ms + 1), fit=state.fit, position=0, seq=10**6)
    until = item.ms + slots * 15_000
    held = hold(state, item, until, rules, history.context)
    each = [item._replace(ms=ms, position=i) for i, ms in enumerate(range(item.ms, until, 15_000))]
    plain = fold_all(state, each, rules, history.context)
    assert held[0] is not None
    assert plain[0] is not None
    assert held[0].to_bytes() == plain[0].to_bytes()
    assert sorted(held[1]) == sorted(plain[1])
    assert held[2] == plain[2]


@FEW
@given(SEEDS)
def test_a_copy_is_what_its_bytes_say(seed: int) -> None:
    """Also of a state that the fold has just worked on, whose lists are in the order in which it came to them."""
    history = histories.make(seed)
    rules, state, rows = load_rules(), None, dict[int, HourRow]()
    for batch in history.batches:
        out = advance(state, rows, [batch], rules, history.context)
        state, rows = out.state, {**rows, **out.rows}
        if state is not None:
            made = state.copy()
            assert made == NodeState.from_bytes(state.to_bytes())
            assert made.to_bytes() == state.to_bytes()
            assert not any(one is other for one in made.places for other in state.places)
