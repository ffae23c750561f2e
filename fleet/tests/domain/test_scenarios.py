"""The scenarios of `data/` by their expectations: `fold-scenarios.json`, and ours in the other files.

Where the rulings written after them (fold.md 23 to 30) say otherwise, `DECIDED` holds what holds instead; docs/fold.md
lists these with the ruling.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from fleet.domain.rules import Rules
from fleet.domain.scenario import outcome

DATA = Path(__file__).parent / "data"
SCENARIOS = json.loads((DATA / "fold-scenarios.json").read_text())
OURS = ("more", "switch", "edge", "combined", "trap", "boundary", "limit")
MORE = [scenario for name in OURS for scenario in json.loads((DATA / f"{name}-scenarios.json").read_text())]

#: Expectations that a later ruling replaces: (scenario, subject) -> expected.
DECIDED: dict[tuple[str, str], list[list[Any]]] = {
    ("33", "g7"): [[0, 20, "pending", 100, 100, 0, [], ["GPU_MISSING"]]],  # R23
    ("69", "g0"): [  # R24: pending for ten minutes from 10 + 7.5 s, then unknown
        [0, 9, "observed", 100, 100, 100, [], []],
        [10, 50, "pending", 100, 100, 0, [], ["GPU_MISSING"]],
        [51, 60, "unknown", None, 100, 0, ["UNBOUND"], []],
        [61, 63, "observed", 100, 100, 100, [], []],
    ],
}


def differences(scenario: dict[str, Any], rules: Rules | None = None) -> list[str]:
    expected = {name: DECIDED.get((scenario["id"], name), rows) for name, rows in scenario["expected"].items()}
    return outcome.run(scenario, rules).differences(expected)


def test_there_are_enough_and_each_of_ours_says_why() -> None:
    assert len(SCENARIOS + MORE) >= 100
    assert len({scenario["id"] for scenario in SCENARIOS + MORE}) == len(SCENARIOS + MORE)
    assert [scenario["id"] for scenario in MORE if not (scenario.get("why") or scenario.get("note"))] == []


@pytest.mark.parametrize("scenario", SCENARIOS + MORE, ids=[f"{s['id']}-{s['title']}" for s in SCENARIOS + MORE])
def test_scenario(scenario: dict[str, Any]) -> None:
    assert differences(scenario) == []


#: Of each way in which the fold counts samples one: under power, listed again, in error, persistent, flaps.
COUNTING = (
    *("25", "wk01", "wk06", "wc16", "wc17", "wq21", "m15", "m17", "m43", "m44"),
    *("e09", "e11", "wo07", "wo18", "x601"),
)


@pytest.mark.parametrize("name", COUNTING)
def test_a_second_installation_that_says_the_same_changes_nothing(name: str) -> None:
    alone = next(scenario for scenario in SCENARIOS + MORE if scenario["id"] == name)
    deliveries = alone["inputs"]["deliveries"]
    twins = [*deliveries, *({**delivery, "agent_id": "a2"} for delivery in deliveries)]
    both = {**alone, "inputs": {**alone["inputs"], "deliveries": twins}}
    one, two = outcome.run(alone), outcome.run(both)
    assert two.verdicts() == one.verdicts()
    assert two.opened() == one.opened()


#: Of each way in which a blind sample could end or corroborate something one: contested, persistent, errors, ports.
BLINDED = ("25", "wk05", "wq21", "m15", "e09", "e11", "wc01", "27", "x601", "x1103", "x1103b")
#: Those of them and others whose slots the blind installation may open as well.
BLIND_FIRST = ("09", "25", "27", "53", "wk05", "m15", "m30", "e11", "wv03", "x601", "x1103")


@pytest.mark.parametrize(("name", "agent"), [(n, "a2") for n in BLINDED] + [(n, "a0") for n in BLIND_FIRST])
def test_a_second_installation_that_reads_nothing_changes_nothing(name: str, agent: str) -> None:
    alone = next(scenario for scenario in SCENARIOS + MORE if scenario["id"] == name)
    blind = [
        {
            **{key: value for key, value in delivery.items() if key != "samples"},
            "agent_id": agent,
            "samples": [
                {"slots": entry["slots"], "sources": {"nvml": "timeout", "ib": "timeout", "pci": "error"}}
                for entry in delivery["samples"]
            ],
        }
        for delivery in alone["inputs"]["deliveries"]
        if delivery.get("agent_id", "a1") == "a1"
    ]
    both = {**alone, "inputs": {**alone["inputs"], "deliveries": [*alone["inputs"]["deliveries"], *blind]}}
    one, two = outcome.run(alone), outcome.run(both)
    assert two.verdicts() == one.verdicts()
    assert two.opened() == one.opened()
