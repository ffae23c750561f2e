"""From samples to money: the fold's scenarios, played through its rows, never claim more than the fold lost."""

from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path

import pytest

from claims.domain.contract_load import contract_from
from claims.domain.evaluate import evaluate
from claims.domain.month_runs import collect, decode, encode, facts_of_node
from claims.domain.periods import Period
from claims.domain.result import Inputs
from claims.domain.rows import Row
from claims.domain.rule_spans import always
from claims.tests.domain.test_traps import TERMS
from fleet.domain.rules import load_rules
from fleet.domain.slots import HOUR_MS
from fleet.domain.strips import HourRow
from fleet.tests.domain import scenarios

DATA = Path(scenarios.__file__).parent / "data" / "fold-scenarios.json"
SCENARIOS = json.loads(DATA.read_text())
COUNTS = ["hardware_failure", "firmware", "network", "degraded"]
RULES = load_rules().reasons


def certain(code):
    """Whether a reason's weight is its own and a contract counts it: no share, no port, some category."""
    rule = RULES[code]
    return rule.weight == 100 or (rule.category in COUNTS and rule.lasts != "share" and rule.subject != "port")


def month_of(scenario):
    """(runs, facts, period) of a scenario's node, through the stored bytes."""
    node = scenarios.run(scenario)
    rows = [HourRow.from_bytes(node.rows[hour]) for hour in sorted(node.rows)]
    runs = decode(encode(collect(rows)))
    facts = facts_of_node("n1", runs, always(load_rules()).over)
    period = Period("calendar_month", "UTC", "test", min(node.rows) * HOUR_MS, (max(node.rows) + 1) * HOUR_MS)
    return runs, facts, period


def contract_of(gpus, **more):
    units = [{"name": gpu} for gpu in gpus]
    return contract_from({**TERMS, "scope": "gpu", "counts": COUNTS, "ambiguous_counts": True, "units": units, **more})


@pytest.mark.parametrize("scenario", SCENARIOS, ids=[f"{one['id']}-{one['title']}" for one in SCENARIOS])
def test_a_contract_never_loses_more_than_the_fold(scenario):
    runs, facts, period = month_of(scenario)
    gpus = sorted(name for name in facts if "/" in name)
    if not gpus:
        pytest.skip("the scenario has no GPU")
    rows = [Row("entitlement", "n1", period.first_slot, None)]
    inputs = Inputs(period, facts, rows, None, period.first_slot, period.end_slot)
    weighted = evaluate(contract_of(gpus, kind="weighted"), inputs)
    binary = evaluate(contract_of(gpus), inputs)
    for gpu in gpus:
        line = runs[f"g{gpu.rpartition('gpu')[2]}"]
        gaps = period.slots - sum(end - first for first, end, _ in line)
        lower = sum(Fraction((100 - verdict.lower) * (end - first), 100) for first, end, verdict in line)
        upper = gaps + sum(Fraction((100 - verdict.upper) * (end - first), 100) for first, end, verdict in line)
        dead = sum(end - first for first, end, verdict in line if verdict.lower == 0)
        readings = weighted.unit(gpu).readings
        assert readings["lower"].lost <= lower
        assert readings["upper"].lost <= upper
        assert binary.unit(gpu).readings["lower"].lost <= dead
        if all(certain(code) for _, _, verdict in line if verdict.lower < 100 for code in verdict.certain):
            assert readings["lower"].lost == lower
