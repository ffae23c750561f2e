"""Fleet statistics by hand: what counts once, what counts per GPU, and who stands out."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet.domain.statistics import Fault, GpuShare, at_least_chance, statistics

HOUR = 3600


def share(place: int, uuid: str = "", weight: int = 0, lost_s: int = 600, model: str = "H100") -> GpuShare:
    """A GPU's share of an incident."""
    return GpuShare(uuid or f"GPU-{place}", model, place, weight, lost_s)


def fault(key: int, node: int = 1, slots: int = 40, **more: object) -> Fault:
    """An incident of ten minutes that took GPU 0 down."""
    values: dict[str, object] = {
        "fault": key,
        "node": node,
        "code": "XID_79",
        "is_shared": False,
        "first_slot": 100,
        "end_slot": 100 + slots,
        "is_open": False,
        "lost_s": 600,
        "gpus": (share(0),),
    }
    return Fault(**{**values, **more})  # type: ignore[arg-type]


def test_time_between_interruptions_is_known_gpu_time_by_gpus_taken_down() -> None:
    found = statistics([fault(1), fault(2, gpus=(share(0), share(1)))], {1: 30 * HOUR}, {}, {}).whole
    assert found.interruptions == 3
    assert found.between_s == 10 * HOUR


def test_what_only_lowers_is_no_interruption_and_what_lowers_nothing_is_neither() -> None:
    found = statistics([fault(1, gpus=(share(0, weight=50), share(1, weight=100)))], {1: HOUR}, {}, {}).whole
    assert (found.interruptions, found.degradations, found.between_s) == (0, 1, None)


def test_repair_times_are_of_what_ended() -> None:
    rows = [fault(1, slots=4), fault(2, slots=8), fault(3, slots=400), fault(4, slots=4000, is_open=True)]
    found = statistics(rows, {1: HOUR}, {}, {}).whole
    assert (found.median_repair_s, found.mean_repair_s, found.open) == (120, 2060, 1)
    assert statistics([], {1: HOUR}, {}, {}).whole.mean_repair_s is None


def test_a_fault_of_several_nodes_is_one_fault_and_many_interruptions() -> None:
    rows = [fault(7, node, is_shared=True) for node in range(3)]
    found = statistics(rows, {node: HOUR for node in range(3)}, {}, {})
    assert (len(found.whole.faults), found.whole.interruptions, found.whole.lost_s) == (1, 3, 1800)
    assert all(not line.own for line in found.nodes.values())


def test_each_table_adds_up_to_the_whole() -> None:
    rows = [
        fault(1, code="XID_79", gpus=(share(0, model="H100", lost_s=400), share(1, model="B200", lost_s=200))),
        fault(2, node=2, code="HW_THERMAL", gpus=(share(0, "GPU-x", 50, 600, "B200"),)),
    ]
    found = statistics(rows, {1: HOUR, 2: HOUR}, {"H100": HOUR, "B200": HOUR}, {})
    for table in (found.reasons, found.models, found.nodes, found.devices):
        assert sum(line.lost_s for line in table.values()) == found.whole.lost_s
        assert sum(line.interruptions for line in table.values()) == found.whole.interruptions
    assert found.models["B200"].lost_s == 800
    assert set(found.reasons) == {"XID_79", "HW_THERMAL"}


def test_a_device_is_followed_by_its_uuid_across_places() -> None:
    rows = [fault(key, node=key, gpus=(share(key, "GPU-lemon"),)) for key in range(4)]
    found = statistics(rows, dict.fromkeys(range(50), 100 * HOUR), {}, {f"GPU-{n}": 10 * HOUR for n in range(400)})
    assert len(found.devices["GPU-lemon"].own) == 4
    assert not any(line.is_offender for line in found.nodes.values())


def test_who_fails_far_more_than_the_others_stands_out() -> None:
    rows = [fault(key, node=0, gpus=(share(0, "GPU-lemon"),)) for key in range(5)]
    rows += [fault(100 + node, node=node, gpus=(share(0, f"GPU-{node}"),)) for node in range(1, 10)]
    known = {node: 720 * HOUR for node in range(100)}
    devices = {"GPU-lemon": 720 * HOUR, **{f"GPU-{node}": 720 * HOUR for node in range(1, 100)}}
    found = statistics(rows, known, {}, devices)
    assert [node for node, line in found.nodes.items() if line.is_offender] == [0]
    assert [uuid for uuid, line in found.devices.items() if line.is_offender] == ["GPU-lemon"]
    assert found.nodes[0].expected == pytest.approx(9 / 99)


def test_faults_that_everybody_has_make_nobody_an_offender() -> None:
    rows = [fault(10 * node + n, node=node) for node in range(20) for n in range(5)]
    found = statistics(rows, {node: 720 * HOUR for node in range(20)}, {}, {})
    assert not any(line.is_offender for line in found.nodes.values())


def test_two_faults_and_faults_without_known_time_accuse_nobody() -> None:
    known = {node: 720 * HOUR for node in range(1000)}
    assert not statistics([fault(1), fault(2)], known, {}, {}).nodes[1].is_offender
    assert statistics([fault(1), fault(2), fault(3)], known, {}, {}).nodes[1].is_offender  # three do
    alone = statistics([fault(key) for key in range(9)], {1: 720 * HOUR}, {}, {})
    assert not alone.nodes[1].is_offender  # there is nobody to compare it with
    unknown = statistics([fault(key, node=5000) for key in range(9)], known, {}, {})
    assert not unknown.nodes[5000].is_offender


@pytest.mark.parametrize(
    ("count", "mean", "expected"),
    [(0, 1.0, 1.0), (1, 1.0, 1 - math.exp(-1)), (3, 1.0, 1 - 2.5 * math.exp(-1)), (3, 0.0, 0.0), (2, math.inf, 1.0)],
)
def test_chances_by_hand(count: int, mean: float, expected: float) -> None:
    assert at_least_chance(count, mean) == pytest.approx(expected)


@given(st.integers(0, 60), st.floats(1e-6, 100))
def test_more_is_never_likelier(count: int, mean: float) -> None:
    assert 0 <= at_least_chance(count + 1, mean) <= at_least_chance(count, mean) <= 1
