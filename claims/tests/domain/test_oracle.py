"""The product agrees with the second implementation on random periods.

`GOODPUT_ORACLE_MONTHS=10000` tries that many; `GOODPUT_ORACLE_SEED` moves the first seed.
"""

from __future__ import annotations

import ast
import os
import sys
from fractions import Fraction
from pathlib import Path

import pytest

from claims.domain.completeness import missing_fields
from claims.domain.evaluate import evaluate
from claims.domain.incidents import incidents
from claims.domain.lost_nodes import with_parties
from claims.domain.periods import calendar_month
from claims.errors import NoEntitlement
from claims.tests.domain.months import case_of, translate
from claims.tests.domain.oracle import solve

MONTHS = int(os.environ.get("GOODPUT_ORACLE_MONTHS", "200"))
SEED = int(os.environ.get("GOODPUT_ORACLE_SEED", "0"))
BLOCK = 50


def compare(seed, case=None):
    case = case or case_of(seed)
    contract, inputs = translate(case)
    assert missing_fields(contract, inputs) == {}
    wanted = solve(case)
    try:
        result = evaluate(contract, inputs)
    except NoEntitlement:
        assert wanted["status"] == "no_entitlement", seed
        return "no_entitlement"
    assert result.status == wanted["status"], seed
    assert (result.coverage.known, result.coverage.owed) == (wanted["known"], wanted["owed"]), seed
    for unit in result.units:
        for reading, found in unit.readings.items():
            denominator, lost, percent, amount = wanted["units"][unit.name, reading]
            assert (found.denominator, found.lost) == (denominator, lost), (seed, unit.name, reading)
            assert found.credit.percent is None or Fraction(found.credit.percent) == percent, (seed, unit.name, reading)
            assert Fraction(found.credit.amount) == amount, (seed, unit.name, reading)
    assert {k: Fraction(v) for k, v in result.credits.items()} == wanted["credits"], seed
    assert (None if result.claim is None else Fraction(result.claim)) == wanted["claim"], seed
    if contract.binary and contract.pooling == "each":
        for unit, found in zip(contract.units, result.units, strict=True):
            for one in incidents(contract, with_parties(inputs), unit, found.outages):
                assert sum(seconds for _, seconds in one.reasons) == one.counted_s, (seed, unit.name)
    return result.status


def test_the_second_implementation_imports_nothing_of_the_product():
    files = sorted(Path(__file__).parent.glob("oracle*.py"))
    assert len(files) == 4
    own = {f"claims.tests.domain.{file.stem}" for file in files}
    for file in files:
        for node in ast.walk(ast.parse(file.read_text())):
            names = [one.name for one in node.names] if isinstance(node, ast.Import) else []
            names += [node.module] if isinstance(node, ast.ImportFrom) else []
            for name in names:
                assert name in own or name.partition(".")[0] in sys.stdlib_module_names, (file.name, name)


@pytest.mark.skipif(MONTHS < 1000, reason="whole months take the second implementation half a minute each")
@pytest.mark.parametrize(("seed", "label"), [(1, "2026-10"), (2, "2026-03"), (3, "2026-10"), (4, "2026-03")])
def test_whole_months_with_a_change_of_clocks_agree(seed, label):
    period = calendar_month(label, "Europe/Berlin")
    compare(seed, case=case_of(seed, period=(period.first_slot, period.end_slot)))


@pytest.mark.parametrize("block", range(SEED, SEED + MONTHS, BLOCK))
def test_random_months_agree_with_the_second_implementation(block):
    seen = [compare(seed) for seed in range(block, min(block + BLOCK, SEED + MONTHS))]
    assert "ok" in seen
