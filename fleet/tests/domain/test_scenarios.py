"""The scenarios of `data/` by their expectations: `fold-scenarios.json`, and ours in the other files.

Where the rulings written after them (fold.md 23 to 30) say otherwise, `DECIDED` holds what holds instead; docs/fold.md
lists these with the ruling.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from fleet.tests.domain import scenarios

DATA = Path(__file__).parent / "data"
SCENARIOS = json.loads((DATA / "fold-scenarios.json").read_text())
MORE = json.loads((DATA / "more-scenarios.json").read_text())
MORE += json.loads((DATA / "switch-scenarios.json").read_text())

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


def differences(scenario: dict[str, Any]) -> list[str]:
    node = scenarios.run(scenario)
    until = scenario.get("until")
    until_slot = scenarios.ZERO + until[0] if until else None
    found = []
    for name, rows in scenario["expected"].items():
        rows = DECIDED.get((scenario["id"], name), rows)
        for first, last, state, nominal, lower, upper, certain, possible in rows:
            wanted = (state, nominal, lower, upper, tuple(sorted(certain)), tuple(sorted(possible)))
            got = node.verdicts(scenarios.subject(name), scenarios.ZERO + first, scenarios.ZERO + last + 1, until_slot)
            for slot, verdict in enumerate(got, first):
                if verdict is None or tuple(verdict) != wanted:
                    found.append(f"{name} {slot}: {verdict and tuple(verdict)} instead of {wanted}")
    if scenario.get("incidents") is not None:
        opened = sorted((e.subject, e.code) for e in node.events if e.kind == "opened")
        wanted_incidents = sorted((scenarios.subject(s), c) for s, c in scenario["incidents"])
        if opened != wanted_incidents:
            found.append(f"incidents {opened} instead of {wanted_incidents}")
    for name in scenario.get("absent_subjects", []):
        for raw in node.rows.values():
            from fleet.domain.strips import HourRow

            if scenarios.subject(name) in HourRow.from_bytes(raw).subjects():
                found.append(f"{name} must not exist")
    return found


@pytest.mark.parametrize("scenario", SCENARIOS + MORE, ids=[f"{s['id']}-{s['title']}" for s in SCENARIOS + MORE])
def test_scenario(scenario: dict[str, Any]) -> None:
    assert differences(scenario) == []
