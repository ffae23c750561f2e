"""The traps of the field (facts on SLAs, section 4), each as a test. Numbers in the names are the traps' own.

Traps 12, 13, 21 and 22 (identity of devices, MIG, clocks) are the fold's; what reaches a contract is a place and a
slot. Traps 23 to 25 (frozen reports, restatements, rule versions) belong to reports: here only what they pin.
"""

from __future__ import annotations

import itertools
from dataclasses import replace
from decimal import Decimal
from fractions import Fraction

import pytest

from claims.domain.contract import Contract, pick_version
from claims.domain.contract_load import canonical, contract_from, digest
from claims.domain.evaluate import evaluate
from claims.domain.facts import HEALTHY, FactRun, Facts, Reason, Standing, facts_of
from claims.domain.incidents import incidents
from claims.domain.money import percent_text, rounded
from claims.domain.periods import billing_cycle, calendar_month, utc_text
from claims.domain.result import AutomaticCredit, Inputs
from claims.domain.rows import Row, slots_inside, slots_touched
from claims.domain.spans import size
from claims.domain.stacking import better_credit
from claims.domain.weighted import capability
from claims.errors import BadRow, BadTiers, ClaimsError, MissingKey, NoEntitlement, PeriodNotOver, UnknownZone
from fleet.domain.rules import load_rules
from fleet.domain.verdicts import State, Verdict, unknown

SEPTEMBER = calendar_month("2026-09")
FIRST = SEPTEMBER.first_slot
TERMS = {
    "name": "c", "version": "1", "kind": "tiers", "scope": "node", "counts": ["hardware_failure"], "zone": "UTC",
    "units": [{"name": "n1"}], "pooling": "each", "ambiguous_counts": False, "min_duration_s": 0, "bridging_s": 0,
    "minute_rule": "slots", "denominator": "full_month", "exclusion_mode": "counted_as_up", "clock_start": "measured",
    "tiers": [["99.9", "10"], ["99", "25"]], "fee_charged": "10000.00", "cap": "none", "minimum": "none",
    "stop_clock": True,
}  # fmt: skip
XID = Reason("XID_79", 0, "hardware_failure", "infrastructure", Standing.CERTAIN)
NVLINK = Reason("XID_74", 0, "hardware_failure", "infrastructure", Standing.CERTAIN)
THERMAL = Reason("HW_THERMAL", 50, "degraded", "infrastructure", Standing.CERTAIN)
OOM = Reason("XID_31", 0, "hardware_failure", "customer", Standing.CERTAIN)


def terms(**more) -> Contract:
    return contract_from({**TERMS, **more})


def bad(*reasons):
    weight = min(reason.weight for reason in reasons)
    return Facts(False, reasons, weight, weight, weight)


def line(*stretches):
    """A subject's month: healthy but for (from, to, facts), in offsets."""
    out, at = [], FIRST - 1000
    for a, b, facts in stretches:
        out += [FactRun(at, FIRST + a, HEALTHY), FactRun(FIRST + a, FIRST + b, facts)]
        at = FIRST + b
    return [*out, FactRun(at, SEPTEMBER.end_slot + 1000, HEALTHY)]


def inputs(lines, rows=(), entitled=None, period=SEPTEMBER, **more):
    entitled = sorted(lines) if entitled is None else entitled
    rows = [*rows, *(Row("entitlement", name, FIRST - 1000, None) for name in entitled)]
    return Inputs(period, lines, rows, None, period.first_slot - 1000, period.end_slot + 1000, **more)


def lower(contract, *stretches, **more):
    return evaluate(contract, inputs({"n1": line(*stretches)}, **more)).units[0].readings["lower"]


def test_01_a_month_is_what_lies_between_two_instants():
    assert calendar_month("2026-10", "Europe/Berlin").slots == 178_800
    assert calendar_month("2026-03", "Europe/Berlin").slots == 178_320
    assert calendar_month("2026-02").slots == 28 * 5760
    assert calendar_month("2026-12").end_ms == calendar_month("2027-01").start_ms
    # Chile skips midnight: the month's first instant is that of the change.
    assert utc_text(calendar_month("2019-09", "America/Santiago").start_ms) == "2019-09-01T04:00:00Z"
    with pytest.raises(UnknownZone):
        calendar_month("2026-10", "Europe/Bonn")


def test_02_a_billing_cycle_starts_on_its_anchor_day():
    cycle = billing_cycle("2026-01", "America/New_York", 31)
    assert (utc_text(cycle.start_ms), utc_text(cycle.end_ms)) == ("2026-01-31T05:00:00Z", "2026-02-28T05:00:00Z")
    following = billing_cycle("2026-02", "America/New_York", 31)
    assert following.start_ms == cycle.end_ms
    assert following.slots == 31 * 5760 - 240


def test_02_a_month_that_is_not_over_is_refused():
    with pytest.raises(PeriodNotOver):
        SEPTEMBER.refuse_if_not_over(SEPTEMBER.end_ms - 1)
    SEPTEMBER.refuse_if_not_over(SEPTEMBER.end_ms)


def test_03_what_no_run_covers_is_unknown_never_up_and_never_down():
    runs = [FactRun(FIRST, FIRST + 100_000, HEALTHY)]
    result = evaluate(terms(minimum_coverage_percent="50"), inputs({"n1": runs}))
    assert result.coverage.unknown == 72_800
    assert (result.units[0].readings["lower"].lost, result.units[0].readings["upper"].lost) == (0, 72_800)
    assert evaluate(terms(minimum_coverage_percent="60"), inputs({"n1": runs})).status == "insufficient_data"


def test_03_a_month_without_any_fact_has_no_uptime():
    result = evaluate(terms(), inputs({}, entitled=["n1"]))
    assert (result.status, result.claim) == ("insufficient_data", None)
    assert result.units[0].readings["nominal"].uptime is None


def test_04_silence_is_no_outage_and_witnesses_make_it_one():
    rules = load_rules().reasons
    silent = facts_of(unknown("NO_DATA"), rules)
    assert silent.blind
    assert silent.reasons == ()
    seen = facts_of(unknown("NO_DATA", "NODE_UNREACHABLE"), rules)
    assert [(r.code, r.weight, r.standing) for r in seen.reasons] == [("NODE_UNREACHABLE", 0, Standing.CERTAIN)]
    contract = terms(counts=["unreachable"])
    assert lower(contract, (0, 400, silent)).lost == 0
    assert lower(contract, (0, 400, seen)).lost == 400
    # For a contract on hardware the same slot stays unknown.
    assert evaluate(terms(), inputs({"n1": line((0, 400, seen))})).coverage.unknown == 400


def test_05_overlapping_reasons_count_once_and_are_attributed_to_one():
    both = inputs({"n1": line((0, 100, bad(XID)), (100, 200, bad(XID, NVLINK)), (200, 300, bad(NVLINK)))})
    contract = terms()
    unit = evaluate(contract, both).units[0]
    assert unit.readings["lower"].lost == 300
    (incident,) = incidents(contract, both, contract.units[0], unit.outages)
    assert dict(incident.reasons) == {"XID_74": 200 * 15, "XID_79": 100 * 15}
    assert sum(seconds for _, seconds in incident.reasons) == incident.counted_s


def test_06_nested_scopes_count_once():
    contract = terms(units=[{"name": "n1", "members": ["n1/gpu0", "n1/gpu1"]}], min_healthy=2)
    lines = {"n1": line((50, 150, bad(XID))), "n1/gpu0": line((0, 100, bad(XID))), "n1/gpu1": line((80, 120, bad(XID)))}
    assert evaluate(contract, inputs(lines, entitled=["n1"])).units[0].readings["lower"].lost == 150


def test_07_a_customer_cause_beside_an_infrastructure_cause_changes_nothing():
    assert lower(terms(), (0, 100, bad(XID, OOM))).lost == 100
    assert lower(terms(), (0, 100, bad(OOM))).lost == 0


def test_08_the_node_view_and_the_capacity_view_are_two_numbers():
    gpus = [f"n1/gpu{i}" for i in range(8)]
    lines = {gpu: line() for gpu in gpus} | {"n1/gpu0": line((0, 17_280, bad(XID)))}
    node = terms(units=[{"name": "n1", "members": gpus}], min_healthy=8)
    pool = terms(scope="gpu", pooling="slots", units=[{"name": gpu} for gpu in gpus])
    assert evaluate(node, inputs(lines)).units[0].readings["lower"].uptime == Fraction(9, 10)
    assert evaluate(pool, inputs(lines)).units[0].readings["lower"].uptime == Fraction(79, 80)


def test_09_pooled_seconds_are_no_mean_of_percentages():
    rows = [Row("entitlement", "n1", FIRST, None), Row("entitlement", "n2", FIRST + 172_000, None)]
    lines = {"n1": line(), "n2": line((172_000, 172_400, bad(XID)))}
    contract = terms(pooling="slots", denominator="existence", units=[{"name": "n1"}, {"name": "n2"}])
    reading = evaluate(contract, inputs(lines, rows=rows, entitled=())).units[0].readings["lower"]
    assert reading.uptime == 1 - Fraction(400, 173_600)


def test_10_and_11_the_entitlement_is_the_denominator_and_its_end_stops_the_samples():
    rows = [Row("entitlement", "n1", FIRST, FIRST + 1000)]
    lines = {"n1": [FactRun(FIRST - 1000, FIRST + 1000, HEALTHY)]}
    result = evaluate(terms(denominator="existence"), inputs(lines, rows=rows, entitled=()))
    assert (result.coverage.owed, result.coverage.unknown) == (1000, 0)
    with pytest.raises(NoEntitlement):
        evaluate(terms(), inputs(lines, entitled=()))


def test_12_downtime_belongs_to_the_place_whatever_device_is_in_it():
    """A contract names places; facts come under the place's name, so a swapped device changes nothing."""
    contract = terms(scope="gpu", units=[{"name": "n1/gpu3"}])
    assert evaluate(contract, inputs({"n1/gpu3": line((0, 50, bad(XID)))})).units[0].readings["lower"].lost == 50


@pytest.mark.parametrize("threshold", ["99.9", "99.5", "99", "95", "99.99", "99.835"])
def test_14_and_35_each_edge_plus_and_minus_one_slot(threshold):
    contract = terms(tiers=[[threshold, "10"]])
    edge = (100 - Fraction(threshold)) / 100 * SEPTEMBER.slots
    at = edge.numerator // edge.denominator
    for slots in (at - 1, at, at + 1):
        below = Fraction(SEPTEMBER.slots - slots, SEPTEMBER.slots) < Fraction(threshold) / 100
        assert (lower(contract, (5, 5 + slots, bad(XID))).credit.percent == 10) is below
    assert percent_text(Fraction(99895, 100_000), 2) == "99.89"
    assert percent_text(Fraction(999_999, 1_000_000), 2) == "99.99"


def test_15_sums_are_exact():
    stretches = [
        (i * 10, i * 10 + 3, bad(Reason("W", 90, "degraded", "infrastructure", Standing.CERTAIN))) for i in range(999)
    ]
    contract = terms(kind="weighted", counts=["degraded"])
    assert lower(contract, *stretches).lost == Fraction(2997, 10)
    with pytest.raises(ClaimsError):
        terms(fee_charged=0.1)
    assert rounded(Fraction(1, 3), "floor", 2) == Decimal("0.33")
    assert rounded(Fraction(5, 1000), "half_even", 2) == Decimal("0.00")
    assert rounded(Fraction(5, 1000), "half_up", 2) == rounded(Fraction(1, 1000), "ceiling", 2) == Decimal("0.01")


def test_16_the_minimum_is_tested_on_the_joined_run_and_what_it_drops_is_shown():
    contract = terms(min_duration_s=120, min_duration_compare=">=", min_duration_test="whole", bridging_s=30)
    unit = evaluate(contract, inputs({"n1": line((0, 5, bad(XID)), (7, 10, bad(XID)), (50, 57, bad(XID)))})).units[0]
    assert unit.readings["lower"].lost == 8
    assert unit.against.below_minimum == 7


def test_17_a_minute_with_one_unknown_slot_is_no_minute():
    contract = terms(minute_rule="clock_minute")
    readings = (
        evaluate(contract, inputs({"n1": line((0, 3, bad(XID)), (3, 4, facts_of(unknown("NO_DATA"), {})))}))
        .units[0]
        .readings
    )
    assert (readings["lower"].lost, readings["upper"].lost) == (0, 4)


def test_18_edge_slots_are_not_in_the_claim():
    rules = load_rules().reasons
    edge = facts_of(Verdict(State.EDGE, 0, 100, 0, (), ("XID_79",)), rules)
    down = facts_of(Verdict(State.OBSERVED, 0, 0, 0, ("XID_79",)), rules)
    readings = evaluate(terms(), inputs({"n1": line((9, 10, edge), (10, 12, down), (12, 13, edge))})).units[0].readings
    assert [readings[name].lost for name in ("lower", "nominal", "upper")] == [2, 4, 4]


def test_19_maintenance_needs_its_notice_and_a_late_row_is_flagged():
    contract = terms(excludes=["maintenance"], maintenance_notice_h=24)
    window = Row("maintenance", "n1", FIRST + 50, FIRST + 100, "pat", FIRST * 15_000, notice_s=24 * 3600)
    assert lower(contract, (0, 200, bad(XID)), rows=[window]).lost == 150
    for late in (replace(window, notice_s=24 * 3600 - 1), replace(window, notice_s=None)):
        assert lower(contract, (0, 200, bad(XID)), rows=[late]).lost == 200
    assert not window.entered_late()
    assert replace(window, entered_at_ms=(FIRST + 60) * 15_000).entered_late()


def test_19_down_outside_the_window_counts_and_the_window_is_shown():
    contract = terms(excludes=["maintenance"], exclusion_mode="removed_from_denominator")
    window = Row("maintenance", "n1", FIRST + 50, FIRST + 100, "pat")
    unit = evaluate(contract, inputs({"n1": line((0, 200, bad(XID)))}, rows=[window])).units[0]
    assert (unit.readings["lower"].lost, unit.readings["lower"].denominator) == (150, SEPTEMBER.slots - 50)
    assert unit.against.excluded == 50


@pytest.mark.parametrize("kind", ["emergency", "live_migration", "suspension", "force_majeure", "security_patch"])
def test_20_other_classes_are_excluded_only_by_name(kind):
    window = Row(kind, "n1", FIRST + 50, FIRST + 100, "pat")
    assert lower(terms(excludes=["maintenance"]), (0, 200, bad(XID)), rows=[window]).lost == 200
    assert lower(terms(excludes=[kind]), (0, 200, bad(XID)), rows=[window]).lost == 150


def test_21_rows_from_instants_cover_only_whole_slots_in_our_favour_and_touched_ones_against_us():
    assert slots_inside(15_001, 60_001) == (2, 4)
    assert slots_touched(15_001, 60_001) == (1, 5)
    assert size([slots_inside(15_001, 29_000)]) == 0


def test_25_a_result_names_its_contract_version_and_the_bytes_are_canonical():
    contract = terms()
    assert evaluate(contract, inputs({"n1": line()})).version == "1"
    shuffled = contract_from(dict(reversed(list(TERMS.items()))))
    assert canonical(shuffled) == canonical(contract)
    assert digest(terms(fee_charged="10000")) == digest(contract) != digest(terms(bridging_s=15))


def test_26_the_version_in_force_at_the_start_of_the_period_decides():
    old = terms(version="1", effective_from="2026-01-01", effective_to="2026-09-15")
    new = terms(version="2", effective_from="2026-09-15")
    assert pick_version([new, old], "2026-09-01") is old
    assert pick_version([new, old], "2026-09-15") is new
    assert pick_version([new, old], "2025-12-31") is None


def test_27_an_outage_over_the_edge_counts_in_both_months_and_once_altogether():
    contract = terms(min_duration_s=120, min_duration_compare=">=", min_duration_test="whole")
    runs = line((172_796, 172_805, bad(XID)))
    august = evaluate(contract, inputs({"n1": runs})).units[0]
    following = calendar_month("2026-10")
    later = Inputs(following, {"n1": runs}, [Row("entitlement", "n1", FIRST, None)], None, FIRST, following.end_slot)
    september = evaluate(contract, later).units[0]
    assert (august.readings["lower"].lost, september.readings["lower"].lost) == (4, 5)
    assert august.against.outside_period == 5


def test_28_what_the_late_ticket_lost_is_shown():
    ticket = Row("ticket", "n1", FIRST + 80, FIRST + 150, "ada")
    unit = evaluate(terms(clock_start="ticket"), inputs({"n1": line((0, 200, bad(XID)))}, rows=[ticket])).units[0]
    assert (unit.readings["lower"].lost, unit.against.outside_clock) == (70, 130)


def test_29_of_two_contracts_the_better_credit_per_unit():
    cheap, dear = terms(tiers=[["99.9", "10"]]), terms(name="d", tiers=[["99.9", "5"], ["99", "30"]])
    units = {"units": [{"name": "n1"}, {"name": "n2"}]}
    cheap, dear = (contract_from({**TERMS, "name": c.name, "tiers": t, **units}) for c, t in (
        (cheap, [["99.9", "10"]]), (dear, [["99.9", "5"], ["99", "30"]]),
    ))  # fmt: skip
    both = inputs({"n1": line((0, 200, bad(XID))), "n2": line((0, 2000, bad(XID)))})
    stacked = better_credit([evaluate(cheap, both), evaluate(dear, both)])
    assert stacked.claim == Decimal("4000.00")
    assert stacked.chosen == {"n1": "c", "n2": "d"}


def test_30_fees_are_per_unit_and_the_cap_comes_before_the_minimum():
    contract = contract_from(
        {**TERMS, "units": [{"name": "n1"}, {"name": "n2"}], "cap": {"level": "claim", "amount": "15.00"}}
    )
    both = inputs(
        {n: line((0, 200, bad(XID))) for n in ("n1", "n2")}, fees={"n1": Decimal("99.99"), "n2": Decimal("80")}
    )
    result = evaluate(contract, both)
    assert [unit.readings["lower"].credit.amount for unit in result.units] == [Decimal("9.99"), Decimal("8.00")]
    assert result.claim == Decimal("15.00")


def test_31_the_invoice_beats_the_estimate_and_the_difference_is_listed():
    rule = {"threshold_s": 360, "compare": ">", "zone": "UTC"}
    contract = terms(clock_hour_rule=rule, hourly_price="30", auto_credit_rule="subtract_from_credit")
    outage = {"n1": line((0, 480, bad(XID)))}
    estimated = evaluate(contract, inputs(outage)).units[0]
    assert (estimated.automatic, estimated.invoiced) == (Decimal(60), None)
    invoiced = evaluate(contract, inputs(outage, automatic=[AutomaticCredit("n1", Decimal("90"))])).units[0]
    assert (invoiced.automatic, invoiced.automatic_difference) == (Decimal(90), Decimal(30))
    none = evaluate(contract, inputs(outage, invoice_complete=True))
    assert none.claim == Decimal("1000.00")


def test_32_nothing_is_owed_while_the_owner_has_stopped_it():
    stop = Row("stopped", "n1", FIRST + 100, FIRST + 300, "ada")
    unit = evaluate(terms(denominator="existence"), inputs({"n1": line((0, 200, bad(XID)))}, rows=[stop])).units[0]
    assert (unit.readings["lower"].lost, unit.readings["lower"].denominator) == (100, SEPTEMBER.slots - 200)


def test_33_the_contract_is_binary_and_the_capability_weighs():
    degraded = {"n1/gpu0": line((0, 1728, bad(THERMAL)))}
    contract = terms(scope="gpu", units=[{"name": "n1/gpu0"}], counts=["hardware_failure", "degraded"])
    assert evaluate(contract, inputs(degraded)).units[0].readings["lower"].uptime == 1
    found = capability(degraded, {"n1/gpu0": [(FIRST, SEPTEMBER.end_slot)]})
    assert (found.availability, found.best, found.worst) == (Fraction(199, 200),) * 3
    dark = capability({}, {"n1/gpu0": [(FIRST, FIRST + 10)]})
    assert (dark.availability, dark.best, dark.worst) == (None, 1, 0)


def test_34_flapping_is_summed_slot_by_slot():
    assert lower(terms(), *((i, i + 1, bad(XID)) for i in range(0, 400, 2))).lost == 200


@pytest.mark.parametrize(
    "tiers",
    [
        [], [["99", "10"], ["99.9", "25"]], [["99.9", "10"], ["99.9", "25"]], [["99.9", "25"], ["99", "10"]],
        [["99.9", "10"], ["99", "10"]], [["100.1", "10"]], [["99.9", "0"]], [["99.9", "101"]],
    ],
)  # fmt: skip
def test_35_tiers_fall_strictly_and_credits_rise(tiers):
    with pytest.raises(BadTiers):
        terms(tiers=tiers)


def test_35_the_first_tier_is_the_commitment():
    with pytest.raises(BadTiers):
        terms(commitment="99.95")
    assert terms(commitment="99.9").commitment == Decimal("99.9")


def test_36_overlays_are_rows_with_an_author_and_facts_stay_as_they_are():
    runs = line((0, 200, bad(XID)))
    before = list(runs)
    window = Row("maintenance", "n1", FIRST, FIRST + 100, "ada", reference="mail of 3 September")
    assert lower(terms(excludes=["maintenance"]), (0, 200, bad(XID)), rows=[window]).lost == 100
    assert runs == before
    with pytest.raises(BadRow):
        Row("maintenance", "n1", 10, 5)
    with pytest.raises(BadRow):
        Row("vacation", "n1", 5, 10)


def test_readings_are_ordered_in_seconds_for_a_plain_percentage():
    standings = itertools.cycle(Standing)
    stretches = [(i * 20, i * 20 + 9, bad(XID._replace(standing=next(standings)))) for i in range(200)]
    readings = evaluate(terms(), inputs({"n1": line(*stretches)})).units[0].readings
    assert readings["lower"].lost <= readings["nominal"].lost <= readings["upper"].lost


def test_26_terms_that_change_at_renewal():
    old = terms(
        version="1", effective_from="2026-01-01", version_rule="renewal", term_starts="2026-01-31", term_months=6
    )
    new = terms(
        version="2", effective_from="2026-05-01", version_rule="renewal", term_starts="2026-01-31", term_months=6
    )
    assert pick_version([new, old], "2026-07-01") is old  # the running term began on 31 January
    assert pick_version([new, old], "2026-08-01") is new  # 31 July
    assert pick_version([old], "2026-01-15") is old
    with pytest.raises(MissingKey, match="term_starts"):
        terms(version_rule="renewal")
