"""What the worker calls: in order, late, suspect, re-folded, silent."""

from __future__ import annotations

from typing import Any

import pytest

from fleet.domain.context import EMPTY
from fleet.domain.node_hours import ReceivedBatch, advance, is_in_order, silence_rows
from fleet.domain.refold import refold
from fleet.domain.rules import load_rules
from fleet.domain.state import NodeState
from fleet.domain.strips import HourRow
from fleet.domain.verdicts import HEALTHY, State
from fleet.tests.domain import facts
from fleet.tests.domain.harness import Node

HOUR = 480_000
BASE = HOUR * 3_600_000
RULES = load_rules()


def batch(minute: int, received_ms: int | None = None, **more: Any) -> ReceivedBatch:
    """A healthy minute of a node with two GPUs."""
    first = BASE + minute * 60_000
    intervals = tuple(facts.Interval(first + i * 15_000 + 7_500, gpus=(facts.gpu(0), facts.gpu(1))) for i in range(4))
    return facts.received(facts.Batch(intervals, seq=minute + 1, **more), received_ms)


def test_in_order_batches_continue_from_the_state_and_change_no_argument() -> None:
    one = advance(None, {}, [batch(0)], RULES)
    assert one.state is not None
    state, row = one.state.to_bytes(), one.rows[HOUR].to_bytes()
    two = advance(one.state, one.rows, [batch(1)], RULES)
    assert (one.state.to_bytes(), one.rows[HOUR].to_bytes()) == (state, row)
    both = advance(None, {}, [batch(0), batch(1)], RULES)
    assert two.rows[HOUR].to_bytes() == both.rows[HOUR].to_bytes()
    assert two.state is not None
    assert both.state is not None
    assert two.state.to_bytes() == both.state.to_bytes() == both.rows[HOUR].closing_state


def test_a_late_batch_is_handed_back_with_its_hours_and_changes_nothing() -> None:
    done = advance(None, {}, [batch(0), batch(61)], RULES)
    assert not is_in_order(done.state, batch(30))
    late = advance(done.state, done.rows, [batch(30)], RULES)
    assert [(x.sha256, x.first_hour, x.last_hour) for x in late.late] == [(batch(30).sha256, HOUR, HOUR)]
    assert late.rows == {}
    assert late.state is done.state


def test_of_a_late_batch_what_is_new_is_folded_at_once() -> None:
    event = facts.Event(code=13, pci_bus_id=facts.gpu(0).pci_bus_id, at=BASE + 5_000)
    done = advance(None, {}, [batch(0), batch(61)], RULES)
    new = batch(62)
    new.batch.intervals[0].events = (event,)  # type: ignore[misc]
    more = advance(done.state, done.rows, [new], RULES)
    assert [(x.first_hour, x.last_hour) for x in more.late] == [(HOUR, HOUR)]
    assert more.state is not None
    assert more.state.last_sample_ms == BASE + 62 * 60_000 + 52_500


def test_a_row_is_final_when_the_next_hours_first_sample_has_closed_it() -> None:
    done = advance(None, {}, [batch(59)], RULES)
    assert not done.rows[HOUR].final
    more = advance(done.state, done.rows, [batch(60)], RULES)
    assert (more.rows[HOUR].final, more.rows[HOUR].closed_by) == (True, HOUR + 1)
    assert more.rows[HOUR].verdicts("g0")[-1] == HEALTHY
    assert not more.rows[HOUR + 1].final


@pytest.mark.parametrize("received", [BASE - 11 * 60_000, BASE + 401 * 86_400_000])
def test_what_cannot_be_is_suspect_and_never_folded(received: int) -> None:
    strange = batch(0, received)
    done = advance(None, {}, [strange, batch(1)], RULES)
    assert done.suspect == (strange.sha256,)
    assert set(done.touched) == {strange.sha256, batch(1).sha256}
    only = advance(None, {}, [batch(1)], RULES)
    assert done.rows[HOUR].to_bytes() == only.rows[HOUR].to_bytes()


def test_a_refold_writes_only_what_differs_and_stops_where_nothing_does() -> None:
    node = Node()
    node.deliver([batch(m) for m in range(0, 300) if m != 70])
    rows = dict(node.rows)
    opening = NodeState.from_bytes(HourRow.from_bytes(rows[HOUR]).closing_state)
    node.inbox[batch(70).sha256] = batch(70)
    node.touched[batch(70).sha256] = (HOUR + 1, HOUR + 1)
    done = refold(opening, HOUR + 1, HOUR + 4, node.load, node.row, RULES, EMPTY, HOUR + 1)
    assert done.converged
    assert done.state is None
    assert list(done.rows) == [HOUR + 1]
    whole = refold(opening, HOUR + 1, HOUR + 4, node.load, node.row, RULES)
    assert {h: r.to_bytes() for h, r in whole.rows.items()} == {h: r.to_bytes() for h, r in done.rows.items()}
    fresh = Node()
    fresh.deliver([batch(m) for m in range(0, 300)])
    assert fresh.rows[HOUR + 1] == done.rows[HOUR + 1].to_bytes()


def test_a_refold_refuses_an_opening_state_that_lies_too_late() -> None:
    done = advance(None, {}, [batch(0)], RULES)
    with pytest.raises(ValueError, match="opening"):
        refold(done.state, HOUR, HOUR, lambda _: [], lambda _: None, RULES)


def test_the_same_bytes_given_twice_count_once() -> None:
    once = advance(None, {}, [batch(0)], RULES)
    twice = advance(None, {}, [batch(0), batch(0)], RULES)
    assert once.rows[HOUR].to_bytes() == twice.rows[HOUR].to_bytes()


def test_silence_is_provisional_and_unknown() -> None:
    done = advance(None, {}, [batch(58)], RULES)
    assert done.state is not None
    rows = silence_rows(done.state, done.rows, BASE + 62 * 60_000, RULES)
    assert [row.final for row in rows.values()] == [False, False]
    assert rows[HOUR].verdicts("g0")[-4:] == rows[HOUR + 1].verdicts("g0")[:4]
    assert rows[HOUR].verdicts("g0")[-1].state is State.UNKNOWN
    assert rows[HOUR].verdicts("g0")[-1].certain == ("NO_DATA",)


def test_input_digests_name_the_items_the_rules_and_the_context() -> None:
    from fleet.domain.context import Context

    digests = {
        advance(None, {}, chosen, RULES, context).rows[HOUR].input_digest
        for chosen, context in (
            ([batch(0)], EMPTY),
            ([batch(0), batch(1)], EMPTY),
            ([batch(0)], Context(gpus=2)),
        )
    }
    assert len(digests) == 3
