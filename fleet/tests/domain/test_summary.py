"""What a page shows of a node now."""

from __future__ import annotations

from typing import Any

from fleet.domain.rules import load_rules
from fleet.domain.state import NodeState
from fleet.domain.summary import NodeNow, current
from fleet.domain.verdicts import HEALTHY, State
from fleet.tests.domain import scenarios

BUS = "0000:10:00.0"


def now(samples: list[dict[str, Any]], after_ms: int, **inputs: Any) -> NodeNow:
    scenario = {"inputs": {"gpus": 2, **inputs, "deliveries": [{"samples": samples}]}}
    node = scenarios.run(scenario)
    state = NodeState.from_bytes(node.state or b"")
    return current(state, state.last_sample_ms + after_ms, load_rules())


def test_a_healthy_node_shows_its_gpus_by_place() -> None:
    seen = now([{"slots": [0, 5]}], 20_000)
    assert not seen.silent
    assert [(s.subject, s.device, s.bus_id) for s in seen.subjects] == [
        ("g0", "U0", "0000:10:00.0"),
        ("g1", "U1", "0000:20:00.0"),
    ]
    assert seen.node.verdict == HEALTHY
    assert {s.verdict for s in seen.subjects} == {HEALTHY}
    assert seen.sources == {"nvml": "ok", "ib": "ok", "kmsg": "ok"}


def test_a_node_that_fell_silent_is_unknown_and_not_as_it_was() -> None:
    assert not now([{"slots": [0, 5]}], 90_000).silent
    seen = now([{"slots": [0, 5]}], 90_001)
    assert seen.silent
    for subject in (seen.node, *seen.subjects):
        assert subject.verdict.state is State.UNKNOWN
        assert subject.verdict.certain == ("NO_DATA",)


def test_two_agents_and_samples_of_an_earlier_boot_are_marks() -> None:
    later = {"agent_id": "a1", "boot_id": "b2", "boot_at": [-100, 0], "samples": [{"slots": [0, 9]}]}
    earlier = {"agent_id": "a2", "boot_id": "b1", "boot_at": [-5_000, 0]}
    same = {"agent_id": "a2", "boot_id": "b2", "boot_at": [-100, 0], "samples": [{"slots": [6, 9]}]}

    def seen(*deliveries: dict[str, Any]) -> tuple[int, bool]:
        node = scenarios.run({"inputs": {"gpus": 1, "boottime": True, "deliveries": [later, *deliveries]}})
        state = NodeState.from_bytes(node.state or b"")
        shown = current(state, state.last_sample_ms + 1_000, load_rules())
        return shown.installations, shown.overruled

    assert seen() == (1, False)
    assert seen(same) == (2, False)
    assert seen({**earlier, "samples": [{"slots": [10, 19]}]}) == (1, True)
    again = {**later, "seq": 90, "samples": [{"slots": [40, 49]}]}
    assert seen({**earlier, "samples": [{"slots": [10, 19]}]}, again) == (1, False)


def test_a_lost_gpu_of_a_silent_node_is_held() -> None:
    lost = {"gone": [0], "pci": {"0": "dead", "1": "present"}}
    seen = now([{"slots": [0, 5]}, {"slots": [6, 9], **lost}], 600_000)
    assert [s.verdict.state for s in seen.subjects] == [State.HELD, State.UNKNOWN]


def test_open_conditions_say_since_when_and_how_sure() -> None:
    event = {"kind": "xid", "code": 95, "pci_bus_id": BUS, "at": [5, 12_000]}
    seen = now([{"slots": [0, 5]}, {"slots": [6, 9], "events": [event]}], 1_000)
    (condition,) = seen.subjects[0].conditions
    assert (condition.code, condition.party, condition.weight, condition.certain) == (
        "XID_95",
        "infrastructure",
        0,
        True,
    )
    assert condition.since_ms == scenarios.instant([5, 12_000])
    assert condition.last_ms == scenarios.instant([9, 7_500])
    assert seen.subjects[0].verdict.nominal == 0
    event["code"] = 109
    seen = now([{"slots": [0, 5]}, {"slots": [6, 9], "events": [event]}], 1_000)
    assert not seen.subjects[0].conditions[0].certain
    assert seen.subjects[0].verdict.state is State.PENDING


def test_looking_changes_nothing() -> None:
    node = scenarios.run({"inputs": {"gpus": 2, "deliveries": [{"samples": [{"slots": [0, 9]}]}]}})
    state = NodeState.from_bytes(node.state or b"")
    for after in (0, 10**6):
        current(state, state.last_sample_ms + after, load_rules())
    assert state.copy().to_bytes() == node.state
