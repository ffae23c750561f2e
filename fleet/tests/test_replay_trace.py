"""A published trace through fold, strips and rollups.

`data/fault-trace-excerpt.json`: 14 of the 400 servers of stepfun-ai/InfiniteHBD-Trace (Apache-2.0), unchanged. Its sum
was added up by hand: 1.7422 + 0.1327 + 0.0085 + 1.4657 + 0.4419 + 91.6648 + 37.2614 + 6.2040 + 0.6003 = 139.5215 days;
the 91.6648 are three faults of which one holds the others.
"""

from __future__ import annotations

import json
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from fleet.domain.rules import load_rules
from fleet.domain.slots import SLOT_MS
from fleet.replay import SUBJECT, Outage, Totals, TraceError, _samples, fold_server, read_trace, replay

EXCERPT = Path(__file__).parent / "data" / "fault-trace-excerpt.json"
WHOLE = Path(__file__).resolve().parents[3] / "shared" / "data" / "infinitehbd-fault-trace.json"


def printed(*args: str) -> str:
    out = StringIO()
    call_command("replay_trace", *args, stdout=out)
    return out.getvalue()


def test_the_excerpt_gives_the_hours_added_up_by_hand() -> None:
    trace = read_trace(EXCERPT.read_text())
    assert (trace.faults, trace.zero_length, trace.overlapping) == (24, 13, 2)
    assert trace.downtime_ms == round(139.5215 * 86_400_000)
    totals = list(replay(trace, 20))[-1]
    assert abs(totals.down_s - 139.5215 * 86_400) <= 9 * 15  # nine outages, each to a slot
    slots = round(284.685 * 86_400 / 15)
    assert sum(totals.seconds.values()) == 20 * slots * 15
    assert totals.nominal_ws == 100 * (20 * slots * 15 - totals.down_s)
    assert totals.incidents == 9
    assert abs(totals.availability - (1 - 139.5215 / (20 * 284.685))) < 1e-6


def test_the_command_prints_json_or_a_table() -> None:
    answer = json.loads(printed(str(EXCERPT), "--nodes", "20", "--json"))
    assert set(answer) == {"availability", "downtime_node_days", "zero_length", "seconds"}
    assert answer["zero_length"] == 13
    assert abs(answer["downtime_node_days"] - 139.5215) < 0.001
    table = printed(str(EXCERPT), "--nodes", "20")
    assert "availability" in table
    assert "0.97550" in table


@pytest.mark.skipif(not WHOLE.exists(), reason="the whole trace is not at hand")
def test_the_whole_trace() -> None:
    answer = json.loads(printed(str(WHOLE), "--json"))
    assert round(answer["availability"], 5) == 0.97685
    assert abs(answer["downtime_node_days"] - 3231.3222) < 0.005
    assert answer["zero_length"] == 14


@pytest.mark.parametrize(
    ("events", "message"),
    [
        ("{", "no JSON"),
        ("[]", "a list of events"),
        ('[{"node_id": "a", "event_time": 1}]', "event 1: not node_id"),
        ('[{"node_id": "a", "event_time": "x", "event_type": "fault_start"}]', "event 1"),
        ('[{"node_id": "a", "event_time": 1, "event_type": "fault"}]', "event_type 'fault'"),
        ('[{"node_id": "a", "event_time": 1, "event_type": "fault_end"}]', "did not begin"),
        (
            '[{"node_id": "a", "event_time": 2, "event_type": "fault_start"},'
            '{"node_id": "a", "event_time": 1, "event_type": "fault_end"}]',
            "event 2: earlier",
        ),
    ],
)
def test_what_is_no_trace_is_refused_by_the_event(events: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(TraceError, match=message):
        read_trace(events)
    file = tmp_path / "trace.json"
    file.write_text(events)
    with pytest.raises(CommandError, match=r"trace\.json"):
        printed(str(file))


def test_a_fleet_smaller_than_its_trace_is_refused() -> None:
    with pytest.raises(CommandError, match="14 servers"):
        printed(str(EXCERPT), "--nodes", "13")
    with pytest.raises(CommandError, match="positive"):
        printed(str(EXCERPT), "--nodes", "0")


def test_a_fault_that_does_not_end_lasts_to_the_end() -> None:
    events: list[dict[str, Any]] = [
        {"node_id": "a", "event_time": 0.5, "event_type": "fault_start"},
        {"node_id": "b", "event_time": 0.75, "event_type": "fault_start"},
        {"node_id": "b", "event_time": 1.0, "event_type": "fault_end"},
    ]
    totals: Totals = list(replay(read_trace(json.dumps(events)), 2))[-1]
    assert totals.down_s == 43_200 + 21_600


@pytest.mark.parametrize(("start", "end", "slots"), [(0, 7_500, 0), (0, 7_501, 1), (7_501, 22_500, 0), (0, 15_000, 1)])
def test_a_slot_is_down_where_its_centre_is(start: int, end: int, slots: int) -> None:
    good, dead = _samples()
    emissions, opened = fold_server((Outage(start + 60_000, end + 60_000),), 3_600_000, good, dead, load_rules())
    down = [e for e in emissions if e.verdict.nominal == 0]
    assert sum(e.end_slot - e.first_slot for e in down) == slots
    assert opened == (1 if slots else 0)
    assert {e.subject for e in emissions} == {SUBJECT}
    assert sum(e.end_slot - e.first_slot for e in emissions) == 3_600_000 // SLOT_MS
