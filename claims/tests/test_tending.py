"""What is looked after by itself: what is at stake, reminders before a window closes, tickets to open at once; and who
may see which contract.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db import connection
from django.test import Client, RequestFactory
from django.utils import timezone
from django_tenants.utils import schema_context

from claims.api import month_in
from claims.inputs import gather, running_month
from claims.ledger import make_checkpoint
from claims.models import Anchor, Claim
from claims.scope import may_see
from claims.selectors import deadline_board, next_deadline
from claims.services import Actor, add_contract, add_overlay, read_terms
from claims.services_claims import file_claim
from claims.services_reports import draft_report, issue_report
from claims.tasks import month_to_draft
from claims.tending import remind, tend_org
from claims.tests.conftest import NOW
from claims.tests.months import fill, terms
from claims.tickets import tell_of_tickets, tickets_due
from claims.views import chosen_month
from fleet.alerts.models import Alert
from fleet.models import Cluster, Incident, Node
from fleet.summary.models import OrgSummary
from orgs.services import create_user, set_role

pytestmark = pytest.mark.django_db


def test_the_console_learns_what_is_at_stake_this_month(contract: Any, actor: Actor) -> None:
    assert tend_org(actor.org, datetime(2026, 10, 20, tzinfo=UTC)) == {"EUR": "719.60"}
    with schema_context("public"):
        assert OrgSummary.objects.get(org_id=actor.org.pk).exposure == {"EUR": "719.60"}
    assert contract.reports.get(month="2026-10").status == "draft"


def test_people_are_reminded_once_at_each_stage_and_not_any_more_once_it_is_filed(contract: Any, actor: Actor) -> None:
    issue_report(contract, "2026-10", actor, now=NOW)
    claim = Claim.objects.get()
    assert claim.closes_at is not None

    def told_at(days: float) -> list[tuple[str, str]]:
        before = set(Alert.objects.values_list("pk", flat=True))
        remind(claim.closes_at - timedelta(days=days))
        new = Alert.objects.exclude(pk__in=before).order_by("pk")
        return [(one.what, one.severity) for one in new]

    assert told_at(20.5) == []
    assert told_at(13.5) == [("opened", "info")]
    assert told_at(13.4) == []
    assert told_at(6.5) == [("reminder", "warning")]
    assert told_at(2.5) == [("reminder", "warning")]
    assert told_at(0.5) == [("reminder", "critical")]
    (key,) = set(Alert.objects.values_list("key", flat=True))
    assert key == f"deadline-claim-{claim.pk}"
    assert "719.60" in Alert.objects.first().title
    file_claim(claim, actor, where="portal", reference="1")
    assert told_at(0.4) == [("resolved", "info")]
    assert told_at(0.3) == []


def test_outages_with_windows_of_their_own_stand_on_the_board_while_the_month_runs(actor: Actor) -> None:
    from claims.selectors import deadline_board, next_deadline
    from claims.tests.months import DOWN

    fill(faults={"g3": [(10_000, 10_960, DOWN)], "g6": [(10_000, 10_960, DOWN)]})
    rule = '{ count = 3, unit = "days", after = "incident_end" }'
    version = add_contract(read_terms(terms(deadline=rule)), actor, entitled_from="2026-09-01T00:00:00Z")
    now = datetime(2026, 10, 3, tzinfo=UTC)
    assert deadline_board(now, version.contract) == []
    tend_org(actor.org, now)
    (line,) = deadline_board(now, version.contract)
    assert line.state.startswith("outage of gpu-017 2026-10-02")
    assert line.closes_at is not None
    assert line.closes_at - now < timedelta(days=3)
    found = next_deadline(now)
    assert found is not None
    assert (found.closes_at, found.month) == (line.closes_at, "2026-10")


def open_incident(node: Any, code: str = "XID_79", subject: str = "g3") -> Incident:
    first = 119_387_040 + 10_000
    return Incident.objects.create(
        node=node, cluster=node.cluster, scope="gpu", code=code, party="infrastructure", weight=0, first_slot=first,
        end_slot=first + 100, is_open=True, lost_gpu_seconds=1500, parts=[{"subject": subject}],
    )  # fmt: skip


def test_a_ticket_is_drafted_when_the_fault_is_seen_and_carries_the_logs_root(
    actor: Actor, settings: Any, tmp_path: Any
) -> None:
    settings.GOODPUT_VAR = tmp_path
    node = fill()
    ticket = read_terms(terms(clock_start='"ticket"'))
    version = add_contract(ticket, actor, entitled_from="2026-09-01T00:00:00Z")
    now = datetime(2026, 10, 2, 20, tzinfo=UTC)
    assert tickets_due(version.contract, now) == []
    incident = open_incident(node)
    open_incident(node, code="IB_PORT_DOWN")  # no category of this contract
    note = make_checkpoint(actor.org, datetime(2027, 1, 1, tzinfo=UTC))
    (due,) = tickets_due(version.contract, now)
    assert (due.unit, due.incident.pk, due.size) == ("gpu-017", incident.pk, note.size)
    assert "has been unavailable since" in due.draft.body
    assert note.note in due.draft.body
    assert tell_of_tickets(now) == 1
    tell_of_tickets(now)
    alert = Alert.objects.get()
    assert (alert.what, alert.severity, alert.path) == ("opened", "critical", f"sla/{version.contract_id}/")
    assert "XID_79" in alert.text
    add_overlay(actor, contract=version.contract, kind="ticket", resource="gpu-017", starts_at=now, reference="1")
    assert tell_of_tickets(now) == 0
    assert Alert.objects.filter(what="resolved").count() == 1


def test_a_measured_clock_asks_for_no_ticket(contract: Any, actor: Actor) -> None:
    open_incident(Node.objects.get(name="gpu-017"))
    assert tickets_due(contract, datetime(2026, 10, 2, 20, tzinfo=UTC)) == []


def test_a_ticket_of_an_incident_is_a_row_of_the_contract(actor: Actor) -> None:
    node = fill()
    version = add_contract(read_terms(terms(clock_start='"ticket"')), actor, entitled_from="2026-09-01T00:00:00Z")
    one = open_incident(node)
    one.reported_at = datetime(2026, 10, 2, 17, tzinfo=UTC)
    one.provider_ack_at = one.reported_at + timedelta(minutes=10)
    one.ticket_number = "48102"
    one.save()
    inputs = gather(version.contract, "2026-10", NOW).inputs
    (row,) = [row for row in inputs.rows if row.kind == "ticket"]
    assert (row.resource, row.reference, row.end_slot) == ("gpu-017/gpu3", "48102", None)
    assert (row.first_slot * 15, row.acknowledged_slot * 15 - row.first_slot * 15) == (
        int(one.reported_at.timestamp()), 600,
    )  # fmt: skip


def test_the_page_shows_the_ticket_and_notes_the_anchor_that_it_is(
    actor: Actor, alpha: Any, ada: Any, client_of: Any, settings: Any, tmp_path: Any
) -> None:
    settings.GOODPUT_VAR = tmp_path
    node = fill()
    version = add_contract(read_terms(terms(clock_start='"ticket"')), actor, entitled_from="2026-09-01T00:00:00Z")
    open_incident(node)
    note = make_checkpoint(alpha, datetime(2027, 1, 1, tzinfo=UTC))
    connection.set_schema_to_public()
    client = client_of(ada)
    base = f"/o/alpha/sla/{version.contract_id}/"
    page = client.get(f"{base}?month=2026-10").content.decode()
    assert "Tickets to open now" in page
    assert note.note.splitlines()[0] in page
    row = {"kind": "ticket", "resource": "gpu-017", "starts_at": "2026-10-02T17:00", "reference": "48102"}
    client.post(f"{base}rows/", {**row, "checkpoint": str(note.size)})
    connection.set_tenant(alpha)
    # the checkpoint was signed in 2027 here: a ticket of today can't have carried it
    assert not Anchor.objects.exists()


@pytest.fixture
def two_clusters(contract: Any, actor: Actor) -> Any:
    """The contract of gpu-017 in train-a, and one of gpu-900 in train-b; both issued."""
    fill("gpu-900", cluster="train-b")
    other = add_contract(
        read_terms(terms(name='"Second lease"').replace("gpu-017", "gpu-900")),
        actor,
        entitled_from="2026-09-01T00:00:00Z",
    ).contract
    report = issue_report(contract, "2026-10", actor, now=NOW)
    claim = Claim.objects.get()
    assert str(claim) == claim.label  # its report is read while the org is open
    assert Cluster.objects.count() == 2
    connection.set_schema_to_public()
    return contract, other, report, claim


def test_a_member_of_one_cluster_sees_its_contracts_and_no_others(
    two_clusters: Any, alpha: Any, client_of: Any
) -> None:
    mine, other, report, claim = two_clusters
    user = create_user("part@alpha.example", actor="test")
    set_role(user, alpha, "viewer", actor="test", clusters=["train-a"])
    client = client_of(user)
    page = client.get("/o/alpha/sla/?all=1&month=2026-10").content.decode()
    assert "Bare metal H100" in page
    assert "Second lease" not in page
    for path in (f"sla/{mine.pk}/", f"reports/{report.pk}/", f"claims/{claim.pk}/", "claims/", "reports/"):
        assert client.get(f"/o/alpha/{path}").status_code == 200, path
    assert client.get(f"/o/alpha/sla/{other.pk}/").status_code == 403
    assert client.get("/o/alpha/claims/anchors/").status_code == 403
    outside = create_user("b@alpha.example", actor="test")
    set_role(outside, alpha, "viewer", actor="test", clusters=["train-b"])
    client = client_of(outside)
    for path in (f"sla/{mine.pk}/", f"reports/{report.pk}/", f"claims/{claim.pk}/", f"claims/{claim.pk}/pack.zip",
                 f"reports/{report.pk}/report.pdf", f"reports/{report.pk}/result.json"):  # fmt: skip
        assert client.get(f"/o/alpha/{path}").status_code == 403, path
    for path in ("claims/", "claims/claims.csv", "reports/"):
        assert claim.label not in client.get(f"/o/alpha/{path}").content.decode(), path


def test_a_key_of_one_cluster_sees_its_contracts_and_no_others(two_clusters: Any, alpha: Any, key_of: Any) -> None:
    mine, other, report, claim = two_clusters
    for cluster, seen, hidden in (("train-a", mine, other), ("train-b", other, mine)):
        token = key_of(alpha, "read", cluster=cluster)
        client = Client(HTTP_HOST="localhost", HTTP_AUTHORIZATION=f"Bearer {token}")
        assert [one["id"] for one in client.get("/v1/contracts").json()["results"]] == [seen.pk]
        assert client.get(f"/v1/contracts/{seen.pk}?month=2026-10").status_code == 200
        refused = client.get(f"/v1/contracts/{hidden.pk}")
        assert (refused.status_code, refused.json()["code"]) == (403, "restricted")
        wanted = 200 if cluster == "train-a" else 403
        for path in (f"reports/{report.pk}", f"claims/{claim.pk}", f"claims/{claim.pk}/pack"):
            assert client.get(f"/v1/{path}").status_code == wanted, path
        assert len(client.get("/v1/claims").json()["results"]) == (cluster == "train-a")
        assert client.get("/v1/anchors").status_code == 403


def test_the_fleet_page_tells_the_next_deadline(contract: Any, actor: Actor, ada: Any, client_of: Any) -> None:
    issue_report(contract, "2026-10", actor, now=NOW)
    Claim.objects.update(closes_at=datetime.now(UTC) + timedelta(days=5, hours=1))
    connection.set_schema_to_public()
    page = client_of(ada).get("/o/alpha/").content.decode()
    assert "Next claim deadline" in page
    assert "in 5 days" in page


def test_pages_and_api_mean_the_contracts_running_period_where_no_month_is_named(actor: Actor) -> None:
    text = terms(zone='"Europe/Berlin"\nperiod_kind = "billing_cycle"\nanchor_day = 15', name='"Cycle"')
    one = add_contract(read_terms(text), actor).contract
    month = add_contract(read_terms(terms(name='"Month"')), actor).contract
    ask = RequestFactory()
    at = datetime(2026, 11, 9, 8, tzinfo=UTC)
    assert chosen_month(ask.get("/"), one, at) == "2026-10"
    assert chosen_month(ask.get("/"), month, at) == "2026-11"
    late = datetime(2026, 10, 31, 23, 30, tzinfo=UTC)  # November in Berlin
    assert chosen_month(ask.get("/"), month, late) == "2026-11"
    assert chosen_month(ask.get("/?month=2026-09"), one, at) == "2026-09"
    assert month_in({}, one) == running_month(one, timezone.now())


def test_a_period_is_drafted_in_the_days_after_it_ended_in_the_contracts_own_time(actor: Actor) -> None:
    text = terms(zone='"Europe/Berlin"\nperiod_kind = "billing_cycle"\nanchor_day = 15', name='"Cycle"')
    cycle = add_contract(read_terms(text), actor).contract
    month = add_contract(read_terms(terms(name='"Month"')), actor).contract
    new_month = datetime(2026, 10, 31, 23, 30, tzinfo=UTC)  # November in Berlin
    assert month_to_draft(month, new_month) == "2026-10"
    assert month_to_draft(month, new_month - timedelta(hours=1)) is None  # still October there
    assert month_to_draft(month, new_month + timedelta(days=4)) == "2026-10"
    assert month_to_draft(month, new_month + timedelta(days=5)) is None
    assert month_to_draft(cycle, new_month) is None
    assert month_to_draft(cycle, datetime(2026, 11, 16, tzinfo=UTC)) == "2026-10"


def test_a_merged_nodes_contract_lies_where_the_other_one_does_and_asks_for_its_ticket(actor: Actor) -> None:
    node = fill()
    other = fill("gpu-900", cluster="train-b")
    terms_of_it = read_terms(terms(clock_start='"ticket"'))
    contract = add_contract(terms_of_it, actor, entitled_from="2026-09-01T00:00:00Z").contract
    assert (may_see(contract, ["train-a"]), may_see(contract, ["train-b"])) == (True, False)
    node.merged_into = other
    node.save()
    assert (may_see(contract, ["train-a"]), may_see(contract, ["train-b"])) == (False, True)
    incident = open_incident(other)
    (due,) = tickets_due(contract, datetime(2026, 10, 2, 20, tzinfo=UTC))
    assert (due.unit, due.incident.pk) == ("gpu-017", incident.pk)
    assert "gpu-017" in due.draft.body


def test_a_month_that_owes_nothing_by_its_draft_reminds_nobody(actor: Actor) -> None:
    fill()
    version = add_contract(read_terms(terms()), actor, entitled_from="2026-09-01T00:00:00Z")
    draft_report(version.contract, "2026-10", NOW)
    (line,) = deadline_board(NOW)
    assert (line.amount, line.days_left) == ("0.00", None)
    assert line.closes_at is not None
    assert line.missing == ("the report is not issued yet", "by its draft nothing is owed")
    assert remind(line.closes_at - timedelta(hours=3)) == 0
    assert next_deadline(NOW) is None
    assert not Alert.objects.exists()
