"""A month becomes a report, and a report a claim; what can't be issued is said in one sentence, and nothing is left."""

from __future__ import annotations

import io
import json
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.db import IntegrityError, connection, transaction
from django_tenants.utils import tenant_context

from claims.errors import ClaimsError, ClaimStateError, ContractError, ReportError
from claims.models import Claim, NodeMonth, Overlay, Report
from claims.services import Actor, add_contract, add_overlay, enter_invoice, read_terms, withdraw_overlay
from claims.services_claims import acknowledge_claim, file_claim, pay_claim, refuse_claim, write_off_claim
from claims.services_reports import draft_report, issue_report
from claims.tests.conftest import NOW
from claims.tests.months import DOWN, EDGE, GPUS, OCTOBER, fill, terms
from fleet.folding import fold_waiting
from fleet.ingest import receive
from fleet.tests.bodies import packed
from fleet.tests.test_folding import key_for
from orgs.models import AuditEntry

pytestmark = pytest.mark.django_db


def result_of(report: Report) -> Any:
    return report.result["assessment"]["result"]


def test_four_hours_of_two_lost_gpus_fall_into_the_ten_percent_tier(contract: Any, actor: Actor) -> None:
    report = draft_report(contract, "2026-10", NOW)
    unit = result_of(report)["units"][0]
    assert report.result["assessment"]["status"] == "ok"
    assert unit["readings"]["lower"]["down_seconds"] == str(960 * 15)
    assert unit["readings"]["lower"]["denominator_slots"] == "178800"  # October of Berlin has an hour more
    assert result_of(report)["claim"] == "719.60"
    assert [one["counted_seconds"] for one in unit["incidents"]] == ["14400"]
    assert unit["incidents"][0]["reasons"] == {"XID_79": "14400"}
    assert sum(int(day["counted_seconds"]) for day in report.result["days"]) == 14400
    assert len(report.result["days"]) == 31
    assert report.result["capability"]["gpus"] == "8"
    assert int(report.result["capability"]["lost_gpu_seconds_hundredths"]) == 2 * 14400 * 100


def test_a_second_draft_computes_the_same_and_replaces_the_first(contract: Any) -> None:
    first = draft_report(contract, "2026-10", NOW)
    second = draft_report(contract, "2026-10", NOW + timedelta(hours=1))
    assert (second.pk, second.digest) == (first.pk, first.digest)
    assert NodeMonth.objects.count() == 2  # Berlin's October begins in September of UTC


def test_issuing_freezes_the_report_and_opens_a_claim(contract: Any, actor: Actor) -> None:
    report = issue_report(contract, "2026-10", actor, now=NOW)
    claim = Claim.objects.get()
    assert (report.status, report.number, report.issued_by) == ("issued", 1, "ada@alpha.example")
    assert (claim.amount, claim.currency, claim.status) == (Decimal("719.60"), "EUR", "draft")
    assert claim.closes_at == datetime(2026, 11, 30, 23, tzinfo=UTC)  # 30 days, Berlin's midnight
    assert AuditEntry.objects.filter(action="report.issued", org_slug="alpha").exists()


def test_what_is_issued_can_not_be_changed_by_anybody(contract: Any, actor: Actor) -> None:
    report = issue_report(contract, "2026-10", actor, now=NOW)
    for change in (
        lambda: Report.objects.filter(pk=report.pk).update(reason="x"),
        lambda: Report.objects.filter(pk=report.pk).delete(),
        lambda: report.version.delete(),
    ):
        with pytest.raises(Exception, match="append-only|protected"), transaction.atomic():  # noqa: B017
            change()
    assert Report.objects.get(pk=report.pk).reason == ""


def test_a_month_that_runs_has_a_draft_with_a_projection_and_is_not_issued(contract: Any, actor: Actor) -> None:
    now = datetime(2026, 10, 20, tzinfo=UTC)
    draft = draft_report(contract, "2026-10", now)
    assert not draft.result["is_over"]
    assert draft.result["projection"]["result"]["claim"] == "719.60"
    with pytest.raises(ClaimsError, match="nothing to issue yet"):
        issue_report(contract, "2026-10", actor, now=now)
    assert not Report.objects.exclude(status="draft").exists()


@pytest.mark.parametrize(("now", "code"), [(datetime(2026, 11, 1, 12, tzinfo=UTC), "period_in_grace")])
def test_late_batches_have_a_day_to_come(contract: Any, actor: Actor, now: datetime, code: str) -> None:
    with pytest.raises(ReportError) as caught:
        issue_report(contract, "2026-10", actor, now=now)
    assert caught.value.code == code


def test_waiting_facts_of_the_month_hold_it_back_and_later_ones_do_not(contract: Any, actor: Actor) -> None:
    receive(packed(node_id="gpu-018")[0], key_for(actor.org), {})
    assert draft_report(contract, "2026-10", NOW).status == "draft"
    late, _ = packed(first_ts=OCTOBER.start_ms + 7500, node_id="gpu-018")
    receive(late, key_for(actor.org), {})
    with pytest.raises(ReportError, match="1 received batches are not in the strips yet") as caught:
        issue_report(contract, "2026-10", actor, now=NOW)
    assert caught.value.code == "facts_waiting"
    fold_waiting(NOW)
    assert issue_report(contract, "2026-10", actor, now=NOW).status == "issued"


def test_a_month_without_entitlement_is_refused(contract: Any, actor: Actor) -> None:
    for one in Overlay.objects.all():
        withdraw_overlay(one, actor)
    with pytest.raises(ClaimsError, match="no entitlement lies in it"):
        draft_report(contract, "2026-10", NOW)
    assert not Report.objects.exists()


def test_a_month_before_the_contract_is_refused(contract: Any) -> None:
    with pytest.raises(ContractError, match=r"No version of Bare metal H100 was in force on 2026-08-01"):
        draft_report(contract, "2026-08", NOW)


def test_an_incomplete_contract_gives_a_draft_with_both_readings_and_no_claim(contract: Any, actor: Actor) -> None:
    add_contract(read_terms(terms(minimum="", cap="")), actor)
    draft = draft_report(contract, "2026-10", NOW)
    assert draft.result["assessment"]["status"] == "incomplete"
    assert draft.result["assessment"]["missing"] == ["cap", "minimum"]
    assert draft.result["assessment"]["least"]["claim"] == "0.00"
    assert draft.result["assessment"]["most"]["claim"] == "719.60"
    with pytest.raises(ReportError, match="does not say enough: cap, minimum") as caught:
        issue_report(contract, "2026-10", actor, now=NOW)
    assert caught.value.code == "contract_incomplete"
    assert not Claim.objects.exists()


def test_a_connectivity_contract_without_witnesses_is_not_measurable(contract: Any, actor: Actor) -> None:
    add_contract(read_terms(terms(counts='["unreachable"]')), actor)
    assert draft_report(contract, "2026-10", NOW).result["assessment"]["status"] == "not_measurable"
    with pytest.raises(ReportError, match="no pair of witnesses"):
        issue_report(contract, "2026-10", actor, now=NOW)


def test_too_little_coverage_is_insufficient_data_with_its_bounds(actor: Actor) -> None:
    fill(gap=(100, 700))
    version = add_contract(read_terms(terms(tiers='[["99.5", "10"]]\nminimum_coverage_percent = "90"')), actor)
    add_overlay(actor, contract=None, kind="entitlement", resource="gpu-017", starts_at="2026-09-01T00:00:00Z")
    draft = draft_report(version.contract, "2026-10", NOW)
    assert draft.result["assessment"]["status"] == "insufficient_data"
    upper = result_of(draft)["units"][0]["readings"]["upper"]
    assert upper["down_seconds"] == str(600 * 3600)
    with pytest.raises(ReportError) as caught:
        issue_report(version.contract, "2026-10", actor, now=NOW)
    assert caught.value.code == "insufficient_data"


def test_edge_slots_count_in_no_claim(actor: Actor) -> None:
    fill(faults={one: [(99, 100, EDGE), (100, 200, DOWN), (200, 201, EDGE)] for one in GPUS})
    version = add_contract(read_terms(terms()), actor)
    add_overlay(actor, contract=None, kind="entitlement", resource="gpu-017", starts_at="2026-09-01T00:00:00Z")
    unit = result_of(draft_report(version.contract, "2026-10", NOW))["units"][0]
    assert unit["readings"]["lower"]["down_seconds"] == "1500"
    assert unit["readings"]["upper"]["down_seconds"] == "1530"


def test_a_restatement_says_why_and_what_changed_and_the_issued_one_stays(contract: Any, actor: Actor) -> None:
    first = issue_report(contract, "2026-10", actor, now=NOW)
    with pytest.raises(ReportError, match="A restatement says why"):
        issue_report(contract, "2026-10", actor, now=NOW)
    with pytest.raises(ReportError, match="Nothing changed"):
        issue_report(contract, "2026-10", actor, reason="again", now=NOW)
    add_overlay(
        actor,
        contract=contract,
        kind="maintenance",
        resource="gpu-017",
        starts_at=datetime.fromtimestamp((OCTOBER.first_slot + 10_480) * 15, UTC),
        ends_at=datetime.fromtimestamp((OCTOBER.first_slot + 10_960) * 15, UTC),
        notice_s=9 * 86400,
    )
    second = issue_report(contract, "2026-10", actor, reason="The provider showed its notice.", now=NOW)
    assert (second.number, second.status) == (2, "restated")
    assert second.difference["claim"] == ["719.60", "0.00"]
    assert second.difference["gpu-017: counted seconds, lower"] == ["14400", "7200"]
    first.refresh_from_db()
    assert result_of(first)["claim"] == "719.60"
    assert [(one.status, one.report_id) for one in Claim.objects.all()] == [("written_off", first.pk)]


def test_a_weighted_contract_pays_by_weight_and_has_no_list_of_outages(contract: Any, actor: Actor) -> None:
    text = terms(name='"Weighted"', kind='"weighted"', min_healthy="", tiers='[["99.9", "10"]]')
    version = add_contract(read_terms(text), actor)
    add_overlay(
        actor, contract=version.contract, kind="entitlement", resource="gpu-017", starts_at="2026-09-01T00:00:00Z"
    )
    report = issue_report(version.contract, "2026-10", actor, now=NOW)
    unit = result_of(report)["units"][0]
    assert unit["readings"]["lower"]["down_seconds"] == str(2 * 960 * 15)  # GPU-seconds: two of eight GPUs
    assert unit["incidents"] == []
    assert result_of(report)["claim"] == "719.60"


def test_fees_of_the_invoice_take_the_place_of_the_contracts(contract: Any, actor: Actor) -> None:
    enter_invoice(contract, "2026-10", actor, fees={"gpu-017": "1000"})
    assert result_of(draft_report(contract, "2026-10", NOW))["claim"] == "100.00"


def test_a_claim_is_filed_acknowledged_and_paid_in_parts(contract: Any, actor: Actor) -> None:
    issue_report(contract, "2026-10", actor, now=NOW)
    claim = Claim.objects.get()
    with pytest.raises(ClaimStateError, match="can't become paid"):
        pay_claim(claim, actor, amount="1")
    file_claim(claim, actor, where="portal", reference="48102")
    acknowledge_claim(claim, actor)
    pay_claim(claim, actor, amount="700")
    pay_claim(claim, actor, amount="19.60")
    assert (claim.status, claim.received, claim.difference) == ("paid", Decimal("719.60"), 0)
    assert [event.after for event in claim.events.all()] == ["draft", "filed", "acknowledged", "paid", "paid"]
    assert AuditEntry.objects.filter(action="claim.paid").count() == 2


def test_a_refused_claim_keeps_the_reason_and_may_be_filed_again(contract: Any, actor: Actor) -> None:
    issue_report(contract, "2026-10", actor, now=NOW)
    claim = file_claim(Claim.objects.get(), actor, where="portal", reference="")
    with pytest.raises(ClaimStateError, match="reason"):
        refuse_claim(claim, actor, reason=" ")
    refuse_claim(claim, actor, reason="Out of scope.")
    file_claim(claim, actor, where="portal", reference="appeal")
    refuse_claim(claim, actor, reason="Still.")
    write_off_claim(claim, actor, reason="Not worth it.")
    assert (claim.status, claim.refusal) == ("written_off", "Still.")


def test_two_people_can_not_take_the_same_step(contract: Any, actor: Actor) -> None:
    issue_report(contract, "2026-10", actor, now=NOW)
    mine, yours = Claim.objects.get(), Claim.objects.get()
    file_claim(mine, actor, where="portal", reference="")
    with pytest.raises(ClaimStateError, match="somebody else"):
        write_off_claim(yours, actor, reason="x")


def test_history_is_append_only(contract: Any, actor: Actor) -> None:
    issue_report(contract, "2026-10", actor, now=NOW)
    with pytest.raises(IntegrityError, match="append-only"), transaction.atomic():
        Claim.objects.get().events.update(note="x")


def test_the_commands_add_a_contract_and_print_a_report(contract: Any, alpha: Any, tmp_path: Path) -> None:
    connection.set_schema_to_public()
    file = tmp_path / "contract.toml"
    file.write_text(terms(fee_charged='"100.00"'))
    out = io.StringIO()
    call_command("add_contract", str(file), org="alpha", stdout=out)
    assert "Bare metal H100 version 2" in out.getvalue()
    out = io.StringIO()
    call_command("report", org="alpha", contract="Bare metal H100", month="2026-10", json=True, stdout=out)
    assert json.loads(out.getvalue())["assessment"]["result"]["claim"] == "10.00"
    with pytest.raises(CommandError, match="exactly these terms already"):
        call_command("add_contract", str(file), org="alpha")
    with pytest.raises(CommandError, match="no contract"):
        call_command("report", org="alpha", contract="nobody", month="2026-10")
    with pytest.raises(CommandError, match="A month is written 2026-10"):
        call_command("report", org="alpha", contract="Bare metal H100", month="October")


def test_bad_tiers_are_refused_and_nothing_is_stored(actor: Actor) -> None:
    with pytest.raises(ContractError, match="overlap"):
        add_contract(read_terms(terms(tiers='[["99", "10"], ["99.5", "30"]]')), actor)


def test_another_org_has_none_of_it(contract: Any, actor: Actor, beta: Any) -> None:
    issue_report(contract, "2026-10", actor, now=NOW)
    with tenant_context(beta):
        assert not Report.objects.exists()
        assert not Claim.objects.exists()
