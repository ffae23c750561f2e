"""A node hour's row: canonical bytes, integers that add up, room for noise."""

from __future__ import annotations

from random import Random

from fleet.domain.strips import HourRow, read_rollups
from fleet.domain.verdicts import HEALTHY, UNKNOWN_PROVISIONAL, State, Verdict, unknown

HOUR = 480_000
FIRST = HOUR * 240
EDGE = Verdict(State.EDGE, 0, 100, 0, (), ("GPU_MISSING",))


def test_bytes_do_not_depend_on_the_order_of_insertion() -> None:
    puts = [("g0", 0, 100, HEALTHY), ("g0", 100, 101, EDGE), ("p:0123456789abcdef", 0, 240, HEALTHY)]
    puts += [("n", 3, 9, unknown("NO_DATA")), ("p:mlx5_0/1", 0, 1, HEALTHY)]
    found = set()
    for seed in range(5):
        row = HourRow(HOUR, "rules")
        for subject, first, end, verdict in Random(seed).sample(puts, len(puts)):
            row.put(subject, FIRST + first, FIRST + end, verdict)
        found.add(row.to_bytes())
    assert len(found) == 1
    assert HourRow.from_bytes(found.pop()).subjects() == ["g0", "n", "p:0123456789abcdef", "p:mlx5_0/1"]


def test_a_verdict_no_longer_used_leaves_no_trace() -> None:
    row, other = HourRow(HOUR), HourRow(HOUR)
    row.put("g0", FIRST, FIRST + 10, EDGE)
    row.put("g0", FIRST, FIRST + 10, HEALTHY)
    row.put("g1", FIRST, FIRST + 10, EDGE)
    row.clear_from(FIRST + 5)
    row.put("g1", FIRST, FIRST + 5, HEALTHY)
    for subject in ("g0", "g1"):
        other.put(subject, FIRST, FIRST + 5, HEALTHY)
    assert row.to_bytes() == other.to_bytes()


def test_slots_that_nothing_closed_are_unknown_and_provisional() -> None:
    row = HourRow(HOUR)
    row.put("g0", FIRST - 5, FIRST + 2, HEALTHY)
    assert row.verdicts("g0")[:3] == [HEALTHY, HEALTHY, UNKNOWN_PROVISIONAL]
    rollup = row.rollups()["g0"]
    assert rollup.seconds[State.OBSERVED] == 30
    assert rollup.seconds[State.UNKNOWN] == 3570
    assert (rollup.nominal_ws, rollup.lower_ws, rollup.upper_ws) == (3000, 360_000, 3000)


def test_an_hour_with_more_verdicts_than_a_byte_can_name_is_kept() -> None:
    rng = Random(4)
    row = HourRow(HOUR)
    truth: dict[tuple[str, int], Verdict] = {}
    for gpu in range(8):
        for slot in range(240):
            w = rng.randrange(40, 100)
            codes = tuple(sorted(rng.sample(["HW_THERMAL", "SW_THERMAL", "XID_31", "XID_43"], rng.randrange(1, 4))))
            truth[f"g{gpu}", slot] = verdict = Verdict(State.OBSERVED, w, w, w, codes)
            row.put(f"g{gpu}", FIRST + slot, FIRST + slot + 1, verdict)
    raw = row.to_bytes()
    again = HourRow.from_bytes(raw)
    assert again.to_bytes() == raw == row.copy().to_bytes()
    for gpu in range(8):
        assert again.verdicts(f"g{gpu}") == [truth[f"g{gpu}", slot] for slot in range(240)]
    sums = {s: r.nominal_ws for s, r in read_rollups(raw).items()}
    assert sums == {f"g{g}": 15 * sum(truth[f"g{g}", s].nominal or 0 for s in range(240)) for g in range(8)}
    again.clear_from(FIRST + 4)
    again.put("g0", FIRST + 4, FIRST + 240, HEALTHY)
    assert HourRow.from_bytes(again.to_bytes()).verdicts("g0")[4:] == [HEALTHY] * 236
