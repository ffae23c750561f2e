"""Runs over many hours: collected from hour rows, kept as bytes."""

from __future__ import annotations

import pytest

from claims.domain.month_runs import collect, decode, encode, facts_of_node
from claims.domain.rule_spans import always
from claims.errors import InputsError
from fleet.domain.rules import load_rules
from fleet.domain.strips import HourRow
from fleet.domain.verdicts import HEALTHY, State, Verdict, unknown

DEAD = Verdict(State.OBSERVED, 0, 0, 0, ("XID_79",))


def hour(number, *runs, subject="g0"):
    row = HourRow(number)
    for first, end, verdict in runs:
        row.put(subject, number * 240 + first, number * 240 + end, verdict)
    return row


def test_runs_go_over_the_edge_of_an_hour():
    rows = [hour(10, (0, 230, HEALTHY), (230, 240, DEAD)), hour(11, (0, 20, DEAD), (20, 240, HEALTHY))]
    assert collect(rows) == {"g0": [(2400, 2630, HEALTHY), (2630, 2660, DEAD), (2660, 2880, HEALTHY)]}


def test_an_hour_without_a_row_and_an_open_end_are_gaps():
    rows = [hour(10, (0, 240, HEALTHY)), hour(12, (0, 100, HEALTHY))]
    assert collect(rows) == {"g0": [(2400, 2640, HEALTHY), (2880, 2980, HEALTHY)]}


def test_bytes_give_back_the_runs_and_are_canonical():
    runs = collect([hour(10, (0, 9, unknown("NO_DATA")), (20, 240, DEAD)), hour(11, (0, 3, HEALTHY), subject="g1")])
    raw = encode(runs)
    assert decode(raw) == runs
    assert encode(dict(reversed(list(runs.items())))) == raw == encode(decode(raw))


def test_a_nodes_subjects_become_its_places():
    runs = {"n": [(0, 9, unknown("NO_DATA"))], "g3": [(0, 9, DEAD)], "p:0011": [(0, 9, HEALTHY)]}
    facts = facts_of_node("n17", runs, always(load_rules()).over)
    assert sorted(facts) == ["n17", "n17/gpu3"]
    assert facts["n17"][0].facts.blind
    assert [reason.code for reason in facts["n17/gpu3"][0].facts.reasons] == ["XID_79"]


def test_rows_out_of_order_are_refused():
    with pytest.raises(InputsError):
        collect([hour(11, (0, 240, HEALTHY)), hour(10, (0, 240, DEAD))])


DAMAGED = (
    b"",
    b"[]",
    b"[2,[],{}]",
    b'[1,[],{"g0":[0,5,0]}]',
    b'[1,[["observed",100,100,100,[],[]]],{"g0":[0,0,0]}]',
    b"\xff",
)


@pytest.mark.parametrize("raw", DAMAGED)
def test_damaged_bytes_are_refused(raw):
    with pytest.raises(InputsError):
        decode(raw)
