"""The scenario language: what it takes, what it refuses with the way to it, and what is told of a scenario."""

from __future__ import annotations

import copy
import json
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from agent import wire
from fleet.domain.scenario import ScenarioError, made, read, run

ONE: dict[str, Any] = {
    "id": "x",
    "inputs": {
        "gpus": 2,
        "ports": 1,
        "deliveries": [
            {
                "samples": [
                    {"slots": [0, 9]},
                    {
                        "slots": [10, 19],
                        "events": [{"kind": "xid", "code": 95, "pci_bus_id": "0000:10:00.0", "at": [9, 12000]}],
                    },
                ]
            }
        ],
    },
    "context": {"ports": {"G0": "g0"}, "records": [{"kind": "ticket", "from": [0, 0], "to": [9, 0], "names": "n"}]},
}
WAYS: list[tuple[tuple[Any, ...], Any, str]] = [
    (("colour",), 1, "scenario x: unknown key 'colour'"),
    (("inputs", "gpu"), 1, "scenario x.inputs: unknown key 'gpu'"),
    (("inputs", "gpus"), "8", "scenario x.inputs.gpus: must be a number"),
    (("inputs", "deliveries"), {}, "scenario x.inputs.deliveries: must be an array"),
    (("inputs", "deliveries", 0, "boot"), "b2", "deliveries[0]: unknown key 'boot'"),
    (("inputs", "deliveries", 0, "boot_at"), 12, "deliveries[0].boot_at: a time is [slot, ms]"),
    (("inputs", "deliveries", 0, "samples", 0, "slots"), 3, "samples[0].slots: must be [first, last]"),
    (("inputs", "deliveries", 0, "samples", 0, "every"), 2, "samples[0].every: must be"),
    (("inputs", "deliveries", 0, "samples", 0, "goone"), [0], "samples[0]: unknown key 'goone'"),
    (("inputs", "deliveries", 0, "samples", 0, "gpu"), {"0": {"clock": 1}}, "gpu.0: unknown key 'clock'"),
    (("inputs", "deliveries", 0, "samples", 0, "gpu"), {"g0": {}}, "gpu: 'g0' is no index"),
    (("inputs", "deliveries", 0, "samples", 0, "port"), {"0": {"up": 1}}, "port.0: unknown key 'up'"),
    (("inputs", "deliveries", 0, "samples", 0, "pci"), {"g0": "dead"}, "pci: 'g0' is neither"),
    (("inputs", "deliveries", 0, "samples", 1, "events", 0, "at"), 9, "events[0].at: a time is"),
    (("inputs", "deliveries", 0, "samples", 1, "events", 0, "xid"), 9, "events[0]: unknown key 'xid'"),
    (("context", "peers"), [], "context: unknown key 'peers'"),
    (("context", "probe_failed"), [[0, 0]], "context.probe_failed[0]: a time is"),
    (("context", "assigned"), [{"place": "g0", "when": [0, 0]}], "assigned[0]: unknown key 'when'"),
    (("until",), 100, "scenario x.until: a time is"),
    (("until",), [10**12, 0], "scenario x.until: more than 2102400 slots away"),
    (("inputs", "gpus"), 65, "inputs.gpus: must be from 0 to 64"),
    (("inputs", "deliveries", 0, "agent_id"), 1, "deliveries[0].agent_id: must be a text"),
    (("inputs", "deliveries", 0, "samples", 0, "slots"), [9, 0], "samples[0].slots: the last comes before the first"),
    (("inputs", "deliveries", 0, "samples", 0, "slots"), [0, 10**9], "samples[0].slots: more than"),
    (("inputs", "deliveries", 0, "samples", 0, "every"), [0, [0]], "samples[0].every: must be"),
    (("inputs", "deliveries", 0, "samples", 0, "ms"), 15_000, "samples[0].ms: must be from 0 to 14999"),
    (("inputs", "deliveries", 0, "samples", 0, "gone"), ["g0"], "samples[0].gone: must be an array of numbers"),
    (("inputs", "deliveries", 0, "samples", 0, "sources"), {"nvml": 1}, "samples[0].sources: must be a map of texts"),
    (("inputs", "deliveries", 0, "samples", 0, "pci"), {"0": 1}, "samples[0].pci.0: must be a text"),
    (("inputs", "deliveries", 0, "samples", 0, "port"), {"1": {"state": "DOWN"}}, "the node has no port 1"),
    (("inputs", "deliveries", 0, "samples", 0, "gpu"), {"0": {"power": -5}}, "gpu.0.power: must not be negative"),
    (
        ("inputs", "deliveries", 0, "samples", 0, "gpu"),
        {"0": {"throttle_time": {"hw_thermal": "6000"}}},
        "gpu.0.throttle_time: must be a map of numbers",
    ),
    (("inputs", "deliveries", 0, "samples", 0, "gpu"), {"0": {"row_remap": {"fail": True}}}, "row_remap: unknown key"),
    (("inputs", "deliveries", 0, "samples", 0, "gpu"), {"0": {"fabric": 3}}, "gpu.0.fabric: must be a map"),
    (("inputs", "deliveries", 0, "samples", 0, "gpu"), {"0": {"uuid": None}}, "gpu.0.uuid: must be a text"),
    (("inputs", "deliveries", 0, "samples", 0, "pci"), [], "samples[0].pci: must be a map"),
    (("context", "records"), [{"kind": "ticket", "at": [0, 0]}], "context.records[0]: unknown key 'at'"),
    (("inputs", "deliveries", 0, "samples", 0, "clock"), {"error_ms": "9"}, "clock.error_ms: must be a number"),
    (("inputs", "deliveries", 0, "samples", 0, "xids"), [{"reason": "XID_95"}], "xids[0]: 'code' is missing"),
    (("inputs", "deliveries", 0, "samples", 1, "events", 0, "code"), "95", "events[0].code: must be a number"),
    (("context", "ports"), {"G0": "gpu0"}, "context.ports.G0: a place is a number or g0"),
    (("context", "assigned"), [{"place": "n1", "at": [0, 0]}], "assigned[0].place: a place is"),
    (("incidents",), [["g0"]], "scenario x.incidents[0]: must be [subject, code]"),
    (("expected",), {"x0": []}, "expected: 'x0' is no subject"),
    (("expected",), {"g0": [[0, 1, "fine", 100, 100, 100, [], []]]}, "expected.g0[0]: 'fine' is no state"),
    (("expected",), {"g0": [[1, 0, "observed", 100, 100, 100, [], []]]}, "expected.g0[0]: slot 1 comes after 0"),
    (("expected",), {"g0": [[0, 1, "observed", "100", 100, 100, [], []]]}, "expected.g0[0]: slots and weights"),
    (("expected",), {"g0": [[0, 1, "observed", 100, 100, 100, [7], []]]}, "expected.g0[0]: must be an array of texts"),
    (("expected",), {"g0": [[0, 1, "observed"]]}, "expected.g0[0]: must be [from, to,"),
]


def changed(way: tuple[Any, ...], value: Any) -> dict[str, Any]:
    scenario = copy.deepcopy(ONE)
    at: Any = scenario
    for step in way[:-1]:
        at = at[step]
    at[way[-1]] = value
    return scenario


@pytest.mark.parametrize(("way", "value", "message"), WAYS, ids=[w[2] for w in WAYS])
def test_what_the_language_does_not_know_is_refused_with_the_way_to_it(
    way: tuple[Any, ...], value: Any, message: str
) -> None:
    with pytest.raises(ScenarioError) as caught:
        read(json.dumps(changed(way, value)))
    assert message in str(caught.value)


NULLS: list[tuple[Any, ...]] = [
    *((key,) for key in ("context", "expected", "incidents", "until", "absent_subjects", "slot_zero")),
    *(("inputs", key) for key in ("boottime", "names", "near")),
    *(("inputs", "deliveries", 0, key) for key in ("agent_id", "boot_id", "boot_at", "last_alive", "seq")),
    *(
        ("inputs", "deliveries", 0, "samples", 0, key)
        for key in ("ms", "every", "gone", "gpu", "port", "sources", "pci", "events", "clock", "nvml_error", "ts_off")
    ),
    *(("inputs", "deliveries", 0, "samples", 0, key) for key in ("stood_still", "sync_slot", "sync_stood_still")),
]


@pytest.mark.parametrize("way", NULLS, ids=[".".join(map(str, way)) for way in NULLS])
def test_null_is_as_if_the_key_were_not_there(way: tuple[Any, ...]) -> None:
    (told,) = read(json.dumps(changed(way, None)))
    without = changed(way, None)
    at: Any = without
    for step in way[:-1]:
        at = at[step]
    del at[way[-1]]
    assert run(told).as_json() == run(without).as_json()


@pytest.mark.parametrize("text", ["", "{", "7", '["x"]', "[" * 100_000, '{"id": "a", "id": "b"}'])
def test_what_is_no_scenario_is_refused(text: str) -> None:
    with pytest.raises(ScenarioError):
        read(text)


def test_every_key_of_the_wire_can_be_said() -> None:
    for kind, table in ((made.Gpu, wire.GPU), (made.Port, wire.PORT), (made.Event, wire.EVENT), (made.Xid, wire.XID)):
        assert {field.key for field in table} <= {field.name for field in fields(kind)}


def test_an_outcome_tells_verdicts_incidents_and_availability() -> None:
    told = run(ONE).as_json()
    assert told["verdicts"]["g0"] == [
        [0, 8, "observed", 100, 100, 100, [], []],
        [9, 9, "edge", 100, 100, 0, [], ["XID_95"]],
        [10, 18, "observed", 0, 0, 0, ["XID_95"], []],
        [19, 19, "edge", 0, 100, 0, [], ["XID_95"]],
    ]
    assert list(told["verdicts"]) == ["n", "g0", "g1", "pG0"]
    assert told["incidents"] == [["g0", "XID_95"]]
    (fault,) = told["faults"]
    assert (fault["scope"], fault["party"], fault["lost_gpu_seconds"]) == ("gpu", "infrastructure", 150)
    assert told["availability"]["g0"] == {
        "nominal": 0.5,
        "lower_loss": 0.55,
        "higher_loss": 0.45,
        "coverage": 1.0,
    }
    assert told["availability"]["all"]["nominal"] == 0.75
    assert told["as_expected"] is None


def test_the_command_says_what_differs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    good = changed(("expected",), {"g1": [[0, 19, "observed", 100, 100, 100, [], []]]})
    bad = {**good, "id": "y", "incidents": []}
    file = tmp_path / "two.json"
    file.write_text(json.dumps([good, bad]))
    call_command("run_scenario", file, "--only", "x")
    assert "as expected" in capsys.readouterr().out
    with pytest.raises(CommandError, match="1 of 2 not as expected: y"):
        call_command("run_scenario", file, "--json")
    out = json.loads(capsys.readouterr().out)
    assert [one["as_expected"] for one in out] == [True, False]
    assert out[1]["differences"] == ["incidents [['g0', 'XID_95']] instead of []"]
    file.write_text(json.dumps(ONE))
    call_command("run_scenario", file, "--json")
    assert json.loads(capsys.readouterr().out)["id"] == "x"
    file.write_text("[]x")
    with pytest.raises(CommandError, match="not JSON"):
        call_command("run_scenario", file)
