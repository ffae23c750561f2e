"""Under amended rules the result without the amendments stands beside: in the report, the pack and the verifier."""

from __future__ import annotations

import io
import json
import re
from datetime import UTC, datetime
from typing import Any

import pytest

from claims import demo
from claims.domain.month_runs import VerdictRun
from claims.domain.periods import Period
from claims.domain.rule_spans import RuleSpan
from claims.inputs import canonical_json
from claims.services import Actor
from claims.services_reports import draft_report
from claims.tests.conftest import NOW
from claims.tests.months import DOWN, fill
from claims.verify.beside import is_amended, put_over, without_amendments
from claims.verify.checks import FAIL, NOT_PROVEN, PASS, check_pack
from claims.verify.pack_file import read_pack
from fleet.domain.rules import amend, amendment, load_rules
from fleet.domain.verdicts import HEALTHY, State, Verdict
from fleet.models import Amendment
from fleet.services_incidents import Actor as FleetActor
from fleet.services_rules import amend_rule
from orgs.models import Org

EPOCH = datetime(2026, 1, 1, tzinfo=UTC)
ECC = Verdict(State.OBSERVED, 0, 0, 0, ("XID_48",))


def amended(org: Org, code: str, from_at: datetime = EPOCH, **changes: Any) -> Amendment:
    """The org's own rule."""
    return amend_rule(FleetActor("ada", org), code=code, changes=changes, reason="test", from_at=from_at)


def lower_seconds(assessment: Any) -> int:
    return int(assessment["result"]["units"][0]["readings"]["lower"]["down_seconds"])


def verdicts(files: Any, *only: str) -> dict[str, str]:
    return {one.check: one.verdict for one in check_pack(files, only=only)}


@pytest.mark.django_db
def test_a_report_under_amended_rules_says_what_it_comes_to_without_them(contract: Any, actor: Actor) -> None:
    fill("gpu-018")
    assert "unamended" not in draft_report(contract, "2026-10", NOW).result
    amended(actor.org, "XID_48", datetime(2026, 11, 5, tzinfo=UTC), category="firmware")
    assert "unamended" not in draft_report(contract, "2026-10", NOW).result  # in force after the month only
    amended(actor.org, "XID_79", datetime(2026, 10, 2, tzinfo=UTC), category="firmware")
    report = draft_report(contract, "2026-10", NOW)
    assert lower_seconds(report.result["assessment"]) == 0
    assert report.result["unamended"]["assessment"]["result"]["claim"] == "719.60"
    assert lower_seconds(report.result["unamended"]["assessment"]) == 960 * 15
    assert len(report.result["unamended"]["amendments"]) == 2


@pytest.mark.django_db
def test_the_pack_of_a_month_under_amended_rules_folds_to_both_results(
    monkeypatch: pytest.MonkeyPatch, settings: Any, tmp_path: Any
) -> None:
    """Amended, the slot of the Xid itself is down as well: what it is without that only the batches say."""
    settings.GOODPUT_VAR = tmp_path
    enrolled = demo._enrolled

    def first(plan: Any, key: Any) -> Any:
        org = Org.objects.get(pk=key.org_id)
        amended(org, "XID_94", category="hardware_failure")
        amended(org, "XID_79", own_slot="XID_94")
        return enrolled(plan, key)

    monkeypatch.setattr(demo, "_enrolled", first)
    files = read_pack(io.BytesIO(demo.make_demo_pack(datetime(2026, 11, 9, 8, tzinfo=UTC), hours=1)))
    result = json.loads(files["result.json"])
    with_it, without = lower_seconds(result["assessment"]), lower_seconds(result["unamended"]["assessment"])
    assert with_it == without + 2 * 15  # of two faults
    assert verdicts(files, "result", "fold", "amount") == {"result": PASS, "fold": PASS, "amount": PASS}
    (terms,) = check_pack(files, only=("terms",))
    assert terms.verdict == NOT_PROVEN
    own, other = (one["result"]["claim"] for one in (result["assessment"], result["unamended"]["assessment"]))
    assert f"without amendments {other} EUR instead of {own}" in terms.detail
    assert re.search(r"amendment \d+ of XID_79", terms.detail)
    for change in (
        lambda one: one.pop("unamended"),
        lambda one: one["unamended"]["assessment"]["result"].update(claim="1.00"),
        lambda one: one["unamended"].update(amendments=[]),
    ):
        forged = json.loads(files["result.json"])
        change(forged)
        assert verdicts({**files, "result.json": canonical_json(forged)}, "result") == {"result": FAIL}
    bare = json.loads(files["adoptions.json"])
    bare = [one for one in bare if not one["name"].startswith("amendment")]
    (terms,) = check_pack({**files, "adoptions.json": canonical_json(bare)}, only=("terms",))
    assert "amendment of XID_79" in terms.detail
    assert "(not in the log)" in terms.detail


def test_spans_without_their_amendments_are_the_rule_sets() -> None:
    rules = load_rules()
    changed = amendment("XID_79", {"weight": 40}, "x", from_ms=0)
    spans = [
        RuleSpan(0, rules.version, (), rules),
        RuleSpan(240, rules.version, (changed,), amend(rules, [changed])),
        RuleSpan(480, rules.version, (), rules),
    ]
    assert [(one.first_slot, one.rules.digest) for one in without_amendments(spans, load_rules)] == [(0, rules.digest)]
    ms = 15_000
    assert [
        is_amended(spans, Period("calendar_month", "UTC", "x", a * ms, b * ms))
        for a, b in ((0, 240), (0, 241), (480, 500))
    ] == [False, True, False]


def test_new_runs_replace_the_old_ones_between_two_slots() -> None:
    old: dict[str, list[VerdictRun]] = {"g0": [(0, 100, HEALTHY)], "g1": [(0, 10, DOWN)]}
    new = {"g0": [(0, 20, ECC), (20, 200, DOWN)], "g2": [(30, 35, ECC)]}
    assert put_over(old, 10, 40, new) == {
        "g0": [(0, 10, HEALTHY), (10, 20, ECC), (20, 40, DOWN), (40, 100, HEALTHY)],
        "g1": [(0, 10, DOWN)],
        "g2": [(30, 35, ECC)],
    }
