"""What may not change a result: how runs are cut, the order of rows; and what must add up."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from claims.domain.evaluate import evaluate
from claims.domain.facts import FactRun
from claims.domain.periods import Period
from claims.errors import NoEntitlement
from claims.tests.domain.months import case_of, translate

SEEDS = range(20_000, 20_060)


def evaluated(contract, inputs):
    try:
        return evaluate(contract, inputs)
    except NoEntitlement:
        return "no entitlement"


@pytest.mark.parametrize("seed", SEEDS)
def test_cut_runs_and_shuffled_rows_give_the_same_result(seed):
    rng = random.Random(seed)
    contract, inputs = translate(case_of(seed))
    cut = {}
    for name, runs in inputs.facts.items():
        pieces = []
        for run in runs:
            at = rng.randrange(run.first_slot, run.end_slot + 1)
            pieces += [FactRun(run.first_slot, at, run.facts), FactRun(at, run.end_slot, run.facts)]
        cut[name] = [piece for piece in pieces if piece.first_slot < piece.end_slot]
    rows = list(inputs.rows)
    rng.shuffle(rows)
    assert evaluated(contract, replace(inputs, facts=cut, rows=rows)) == evaluated(contract, inputs)


@pytest.mark.parametrize("seed", SEEDS)
def test_two_halves_count_what_the_whole_counts(seed):
    """With the minimum on the whole outage and no minute of a run lost at the cut, no slot is lost or counted twice."""
    contract, inputs = translate(case_of(seed))
    if not contract.binary or contract.kind in ("outage_table", "repair_time") or contract.pooling == "slots":
        return
    if contract.minute_rule == "elapsed_floor":
        return
    contract = replace(contract, min_duration_test="whole")
    period = inputs.period
    middle = (period.first_slot + period.slots // 2) * 15_000
    halves = [
        Period(period.kind, period.zone, "half", a, b) for a, b in ((period.start_ms, middle), (middle, period.end_ms))
    ]
    whole, *parts = (evaluated(contract, replace(inputs, period=one)) for one in (period, *halves))
    if "no entitlement" in (whole, *parts):
        return
    for unit in whole.units:
        for reading, found in unit.readings.items():
            assert found.lost == sum(part.unit(unit.name).readings[reading].lost for part in parts)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_claim_is_never_more_than_any_reading(seed):
    result = evaluated(*translate(case_of(seed)))
    if result != "no entitlement" and result.claim is not None:
        assert result.claim == min(result.credits.values()) == result.credits[result.basis]
