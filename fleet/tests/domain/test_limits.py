"""Limits that somebody set below their default are told, and lower nothing."""

from __future__ import annotations

from typing import Any

import pytest

from fleet.domain.limits import APPLICATION_CLOCKS, POWER_LIMIT, lowered
from fleet.domain.rules import load_rules
from fleet.domain.scenario.made import gpu
from fleet.domain.scenario.outcome import run

H100 = "NVIDIA H100 80GB HBM3"


@pytest.mark.parametrize(
    ("facts", "told"),
    [
        ({"power_limit": 700_000}, []),
        ({"power_limit": 400_000}, [(POWER_LIMIT, "400 of 700 W")]),
        ({"power_limit": 400_000, "throttle_reasons": 0x4}, [(POWER_LIMIT, "400 of 700 W")]),
        ({"throttle_reasons": 0x2, "sm_clock": 990}, [(APPLICATION_CLOCKS, "set by somebody at 990 of 1980 MHz")]),
        ({"power_limit": None}, []),
        ({"power_limit": 0}, []),
        ({"power_limit": 400_000, "name": "NVIDIA H100 NVL"}, []),  # the maker of the server chooses
        ({"power_limit": 350_000, "name": "NVIDIA H100 PCIe"}, []),
        ({"power_limit": 400_000, "name": "NVIDIA GH200 480GB"}, []),
        ({"power_limit": 100_000, "name": "NVIDIA Something New"}, []),
        ({"power_limit": 100_000, "name": "NVIDIA A16-4Q"}, []),
    ],
)
def test_what_stands_below_its_default_is_told(facts: dict[str, Any], told: list[tuple[str, str]]) -> None:
    one = gpu(0, **{"name": H100, "sm_clock": 1980, "sm_clock_max": 1980, "throttle_reasons": 0, **facts})
    assert [(limit.code, limit.words) for limit in lowered(one, load_rules())] == told


def scenario(**facts: Any) -> Any:
    """A GPU that has these facts from slot 10 to 20."""
    samples = [{"slots": [0, 9]}, {"slots": [10, 20], "gpu": {"0": facts}}, {"slots": [21, 22]}]
    return run(
        {"id": "cap", "title": "cap", "inputs": {"gpus": 1, "names": H100, "deliveries": [{"samples": samples}]}}
    )


def weights(outcome: Any) -> set[Any]:
    """The nominal weights of slots 12 to 19."""
    zero = outcome.slots()[0]
    inner = [r for r in outcome.runs("g0") if r.first_slot < zero + 20 and r.end_slot > zero + 12]
    return {one.verdict.nominal for one in inner}


def test_a_cap_lowers_nothing_and_does_not_excuse_heat() -> None:
    capped = {"power_limit": 300_000, "throttle_reasons": 0x6, "sm_clock": 700, "sm_clock_max": 1980}
    assert weights(scenario(**capped)) == {100}
    assert weights(scenario(**{**capped, "throttle_reasons": 0x46})) == {50}
