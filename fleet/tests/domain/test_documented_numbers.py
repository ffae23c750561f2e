"""The worked numbers of docs/fold.md are what the code says."""

from __future__ import annotations

import re
from pathlib import Path

from fleet.domain import node_hours
from fleet.domain.events import sliced
from fleet.domain.throttle import share_loss
from fleet.tests.domain.test_scenarios import DECIDED

TEXT = (Path(__file__).parents[3] / "docs" / "fold.md").read_text()


def test_every_worked_number_holds() -> None:
    rows = re.findall(r"^\| [^|]+ \| (share|slices) ([\d ]+) \| (\d+) \|$", TEXT, re.MULTILINE)
    assert len(rows) == 8
    for kind, numbers, weight in rows:
        values = [int(n) for n in numbers.split()]
        if kind == "share":
            full, spent, span = values
            assert 100 - share_loss(full, spent, span) == int(weight)
        else:
            parts = tuple((str(i), n) for i, n in enumerate(values[1:]))
            assert sliced(values[0], parts) == int(weight)


def test_every_decided_scenario_is_listed() -> None:
    for scenario, _ in DECIDED:
        assert re.search(rf"^\| {scenario} \|", TEXT, re.MULTILINE)


def test_the_files_named_exist() -> None:
    folder = Path(node_hours.__file__).parent
    for name in re.findall(r"`(\w+\.py)`", TEXT):
        assert (folder / name).exists(), name
