"""PCIe lanes and NVLinks: against what was learned or the product has, never under MIG, never for a vGPU."""

from __future__ import annotations

from typing import Any

import pytest

from fleet.domain.scenario import run
from fleet.domain.skus import sku

H100 = "NVIDIA H100 80GB HBM3"
WORK = {"gpu_utilization": 90}


def told(
    *samples: tuple[int, int, dict[str, Any]], gpus: int = 1, name: str = H100, context: dict[str, Any] | None = None
) -> dict[str, Any]:
    """Samples as (first, last, keys of all GPUs, or of one by its index)."""
    entries = []
    for first, last, keys in samples:
        mine = keys if all(str(k).isdigit() for k in keys) else {str(i): keys for i in range(gpus)}
        entries.append({"slots": [first, last], "gpu": mine})
    scenario = {
        "id": "links",
        "inputs": {"gpus": gpus, "names": name, "deliveries": [{"samples": entries}]},
        "context": context or {},
    }
    return run(scenario).as_json()


def rows(found: dict[str, Any], subject: str = "g0") -> list[Any]:
    return [[*row[:4], row[6] + row[7]] for row in found["verdicts"][subject]]


def test_fewer_lanes_under_load_count_three_quarters_until_they_are_back() -> None:
    found = told((0, 9, {}), (10, 15, {"pcie_width": 8, **WORK}), (16, 18, {}))
    assert rows(found) == [
        [0, 9, "observed", 100, []],
        [10, 10, "pending", 100, ["PCIE_WIDTH"]],
        [11, 11, "edge", 75, ["PCIE_WIDTH"]],
        [12, 14, "observed", 75, ["PCIE_WIDTH"]],
        [15, 15, "edge", 75, ["PCIE_WIDTH"]],
        [16, 18, "observed", 100, []],
    ]
    assert found["incidents"] == [["g0", "PCIE_WIDTH"]]


def test_fewer_lanes_while_idle_say_nothing() -> None:
    assert rows(told((0, 9, {}), (10, 15, {"pcie_width": 8}), (16, 18, {}))) == [[0, 18, "observed", 100, []]]
    found = told((0, 9, {}), (10, 13, {"pcie_width": 8, **WORK}), (14, 16, {"pcie_width": 8}), (17, 18, {}))
    assert rows(found)[4:] == [[13, 16, "edge", 75, ["PCIE_WIDTH"]], [17, 18, "observed", 100, []]]


def test_a_narrow_slot_and_a_narrower_replacement_are_no_fault() -> None:
    assert rows(told((0, 9, {"pcie_width": 8, **WORK}))) == [[0, 9, "observed", 100, []]]
    found = told((0, 9, {}), (10, 15, {"0": {"uuid": "NEW", "pcie_width": 8, **WORK}}))
    assert [row[3] for row in rows(found)] == [100]


def test_inactive_links_count_half_against_the_number_of_the_product() -> None:
    found = told((0, 5, {"nvlink_inactive": 2}), (6, 8, {"nvlink_inactive": 0}), gpus=2)
    assert rows(found)[:3] == [
        [0, 0, "pending", 100, ["NVLINK_INACTIVE"]],
        [1, 1, "edge", 50, ["NVLINK_INACTIVE"]],
        [2, 4, "observed", 50, ["NVLINK_INACTIVE"]],
    ]
    assert rows(found)[-1] == [6, 8, "observed", 100, []]


def test_of_an_unknown_product_only_what_was_active_is_missed() -> None:
    assert rows(told((0, 9, {"nvlink_inactive": 6}), name="Some board")) == [[0, 9, "observed", 100, []]]
    found = told(
        (0, 5, {"0": {"nvlink_inactive": 6}, "1": {"nvlink_inactive": 6}}),
        (6, 9, {"0": {"nvlink_inactive": 8}, "1": {"nvlink_inactive": 6}}),
        name="Some board",
        gpus=2,
    )
    assert rows(found)[-2:] == [
        [8, 8, "observed", 50, ["NVLINK_INACTIVE"]],
        [9, 9, "edge", 50, ["NVLINK_INACTIVE"]],
    ]
    assert rows(found, "g1") == [[0, 9, "observed", 100, []]]


@pytest.mark.parametrize(("owns", "weight"), [(False, 100), (True, 50)])
def test_no_link_on_any_gpu_is_the_switches_service_and_counts_by_owner(owns: bool, weight: int) -> None:
    found = told((0, 5, {"nvlink_inactive": 0}), (6, 9, {"nvlink_inactive": 18}), gpus=2, context={"owns_driver": owns})
    state, nominal, codes = rows(found)[-2][2:] if owns else rows(found)[-1][2:]
    assert (state, nominal, codes) == ("observed", weight, ["NVLINK_FABRIC"])


def test_links_that_were_never_active_are_only_shown() -> None:
    """A virtual machine with one GPU of a board has no switch to be linked to."""
    found = told((0, 9, {"nvlink_inactive": 18}), context={"owns_driver": True})
    assert rows(found) == [[0, 9, "observed", 100, ["NVLINK_FABRIC"]]]


def test_under_mig_links_are_off_by_design() -> None:
    keys = {"nvlink_inactive": 18, "mig_mode": True}
    assert rows(told((0, 3, {"nvlink_inactive": 0}), (4, 9, keys), gpus=2)) == [[0, 9, "observed", 100, []]]


def test_of_a_vgpu_presence_and_xid_are_all_that_is_judged() -> None:
    keys = {"throttle_time": {"hw_thermal": 15_000}, "nvlink_inactive": 3, "pcie_width": 1, **WORK, "sm_clock": 300}
    assert rows(told((0, 3, {}), (4, 9, keys), name="NVIDIA A40-48Q")) == [[0, 9, "observed", 100, []]]


def test_between_chips_without_pcie_lanes_say_nothing() -> None:
    keys = {"pcie_width": 1, **WORK}
    assert rows(told((0, 3, {}), (4, 9, keys), name="NVIDIA GH200 480GB")) == [[0, 9, "observed", 100, []]]


@pytest.mark.parametrize(
    ("name", "links", "is_vgpu"),
    [
        ("NVIDIA H100 80GB HBM3", 18, False),
        ("NVIDIA H100 PCIe", 0, False),
        ("NVIDIA H100 NVL", 0, False),
        ("NVIDIA A100-SXM4-80GB", 12, False),
        ("NVIDIA A100 80GB PCIe", 0, False),
        ("NVIDIA GB200", 18, False),
        ("NVIDIA L40S", 0, False),
        ("NVIDIA A16-4Q", 0, True),
        ("GRID A100D-10C", 0, True),
        ("NVIDIA H100L-94C", 0, True),
        ("NVIDIA H100XM-80C", 0, True),
        (None, 0, False),
    ],
)
def test_what_a_name_says(name: str | None, links: int, is_vgpu: bool) -> None:
    assert sku(name)[:2] == (links, is_vgpu)


def test_links_that_stay_down_after_a_peers_loss_count_once_three_minutes_are_over() -> None:
    gone = {"slots": [10, 30], "gone": [0], "pci": {"0": "dead"}, "gpu": {"1": {"nvlink_inactive": 1}}}
    event = {"kind": "xid", "code": 79, "pci_bus_id": "0000:10:00.0", "at": [9, 12000]}
    samples = [{"slots": [0, 9], "gpu": {"1": {"nvlink_inactive": 0}}}, {**gone, "events": [event]}]
    scenario = {"id": "peer", "inputs": {"gpus": 2, "names": H100, "deliveries": [{"samples": samples}]}}
    found = rows(run(scenario).as_json(), "g1")
    assert found[0] == [0, 21, "observed", 100, []]
    assert found[1] == [22, 22, "pending", 100, ["NVLINK_INACTIVE"]]
    assert found[3][3:] == [50, ["NVLINK_INACTIVE"]]
