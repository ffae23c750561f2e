"""The worked numbers of docs/fold.md are what the code says."""

from __future__ import annotations

import re
from pathlib import Path

from fleet.domain import node_hours
from fleet.domain.conditions import sliced
from fleet.domain.rules import Reason, load_rules
from fleet.domain.throttle import share_loss
from fleet.tests.domain.test_scenarios import DECIDED

DOCS = Path(__file__).parents[3] / "docs"
TEXT = (DOCS / "fold.md").read_text()


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


def _verdict(reason: Reason) -> str:
    """A rule as the table of docs/verdicts-compared.md says it."""
    if reason.lasts == "hidden":
        return "not shown itself"
    if not reason.lowers:
        return "note, review" if reason.review else "note"
    if reason.lasts == "slot":
        return f"{reason.weight} in its slot"
    return f"{reason.weight} once corroborated" if reason.needs else f"{reason.weight} until it ends"


def test_the_comparison_with_others_says_what_our_rules_say() -> None:
    text = (DOCS / "verdicts-compared.md").read_text()
    rules = load_rules()
    assert f"rule set {rules.version}" in " ".join(text.split())
    rows = re.findall(r"^\| (\d+) \| ([^|]+) \| ([^|]+) \| (\w+) \|", text, re.MULTILINE)
    assert len(rows) > 40
    for code, title, ours, party in rows:
        reason = rules.by_xid[int(code), ""]
        assert (title, ours, party) == (reason.title, _verdict(reason), reason.party), code
