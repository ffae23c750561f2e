"""The result as data, and the projection of a running month."""

from __future__ import annotations

import json
from decimal import Decimal

from claims.domain.completeness import assess
from claims.domain.contract_load import contract_from
from claims.domain.evaluate import evaluate
from claims.domain.facts import FactRun
from claims.domain.incidents import incidents
from claims.domain.plain import plain_assessment, plain_result
from claims.domain.projection import if_nothing_more_happens
from claims.domain.rows import Row
from claims.tests.domain.test_traps import FIRST, TERMS, XID, bad, inputs, line, terms


def test_the_result_is_plain_data_without_a_float():
    contract = terms(excludes=["maintenance"])
    window = Row("maintenance", "n1", FIRST + 150, FIRST + 160, "pat")
    given = inputs({"n1": line((0, 200, bad(XID)))}, rows=[window])
    assessment = assess(contract, given)
    found = {"n1": incidents(contract, given, contract.units[0], assessment.result.units[0].outages)}
    plain = plain_assessment(assessment, found)
    text = json.dumps(plain, sort_keys=True)
    assert json.loads(text, parse_float=lambda number: 1 / 0) == plain
    unit = plain["result"]["units"][0]
    assert unit["readings"]["lower"]["uptime"] == {"exact": "17261/17280", "percent_floor_6": "99.890046"}
    assert unit["readings"]["lower"]["down_seconds"] == "2850"
    assert unit["against_ourselves_seconds"]["excluded_down"] == "150"
    assert sum(int(one["counted_seconds"]) for one in unit["incidents"]) == 2850
    assert plain["result"]["claim"] == "1000.00"


def test_an_incomplete_contract_shows_both_readings_and_no_claim():
    without = {key: value for key, value in TERMS.items() if key != "minute_rule"}
    given = inputs({"n1": line((100, 273, bad(XID)))})
    plain = plain_assessment(assess(contract_from(without), given))
    assert (plain["status"], plain["missing"]) == ("incomplete", ["minute_rule"])
    assert (plain["least"]["claim"], plain["most"]["claim"]) == ("0.00", "1000.00")
    assert "result" not in plain


def test_the_projection_keeps_what_is_known_and_takes_the_rest_as_healthy():
    known = [FactRun(FIRST - 1000, FIRST + 100, line()[0].facts), FactRun(FIRST + 100, FIRST + 400, bad(XID))]
    running = inputs({"n1": known})
    assert evaluate(terms(minimum_coverage_percent="95"), running).status == "insufficient_data"
    projected = evaluate(terms(minimum_coverage_percent="95"), if_nothing_more_happens(running, FIRST + 300, ["n1"]))
    assert (projected.status, projected.units[0].readings["lower"].lost) == ("ok", 200)
    assert projected.claim == Decimal("1000.00")
    assert plain_result(projected)["coverage"]["share"]["exact"] == "1"
