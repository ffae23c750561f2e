"""The pages of incidents: who may see and write, the list with its filters and downloads, one incident as a story."""

from __future__ import annotations

import csv
import io
import re
from datetime import timedelta
from typing import Any

import pytest
from django.db.models import F
from django.utils import timezone
from django_tenants.utils import tenant_context

from fleet.domain.slots import slot_of
from fleet.models import Incident, Node, NodeLive
from fleet.selectors_incidents import ON_PAGE, Wanted, list_page
from fleet.selectors_live import to_ms
from fleet.tests.test_pages import fill, text_of
from orgs.models import AuditEntry, Membership, User

pytestmark = pytest.mark.django_db
SHOWS = ("incidents/", "incidents.csv", "incidents.json", "incidents/{pk}/", "incidents/{pk}/slots.csv")
WRITES = ("acknowledge", "notes", "ticket")


def happen(org: Any, node: str = "sim-0001", minutes_ago: int = 8, **more: Any) -> int:
    """An incident of GPU 3 of a node that is there; its id."""
    with tenant_context(org):
        found = Node.objects.filter(name=node).order_by("-pk")[0]
        first = slot_of(to_ms(timezone.now())) - minutes_ago * 4
        end = first + 8
        code = more.pop("code", "GPU_MISSING")
        values: dict[str, Any] = {
            "scope": "gpu",
            "code": code,
            "party": "infrastructure",
            "weight": 0,
            "first_slot": first,
            "end_slot": end,
            "is_open": True,
            "lost_gpu_seconds": 120,
            "parts": [
                {
                    "subject": "g3",
                    "first_slot": first,
                    "end_slot": end,
                    "bad_slots": 8,
                    "lost": 800,
                    "weight": 0,
                    "codes": {code: [first, end - 1, 0]},
                    "settled": None,
                }
            ],
        }
        values.update(more)
        return Incident.objects.create(node=found, cluster_id=found.cluster_id, **values).pk


def uuid_of(org: Any, place: int = 3) -> str:
    with tenant_context(org):
        subjects = Node.objects.order_by("-pk")[0].live.summary["subjects"]
        uuid: str = next(s["device"] for s in subjects if s["subject"] == f"g{place}")
        return uuid


# Who may see and write


@pytest.mark.parametrize("path", SHOWS)
def test_nobody_is_led_to_the_login_and_a_stranger_finds_nothing(
    path: str, beta: Any, ada: Any, bo: Any, client_of: Any, lan: Any
) -> None:
    fill(beta, nodes=1, minutes=10)
    url = f"/o/{beta.slug}/{path.format(pk=happen(beta))}"
    assert client_of(None).get(url).status_code == 302
    assert client_of(ada).get(url).status_code == 404
    assert client_of(bo).get(url).status_code == 200


def test_a_member_sees_and_changes_nothing_of_another_org_under_their_own(
    alpha: Any, beta: Any, ada: Any, client_of: Any, lan: Any
) -> None:
    fill(beta, cluster="betas-own", nodes=1, minutes=10)
    pk = happen(beta)
    client = client_of(ada)
    assert client.get(f"/o/alpha/incidents/{pk}/").status_code == 404
    for path in ("incidents/", "incidents.csv", "incidents.json"):
        assert "betas-own" not in client.get(f"/o/alpha/{path}").content.decode()
    for name in WRITES:
        assert client.post(f"/o/alpha/incidents/{pk}/{name}/", {"text": "x"}).status_code == 404
        assert client.post(f"/o/beta/incidents/{pk}/{name}/", {"text": "x"}).status_code == 404
    with tenant_context(beta):
        assert not Incident.objects.get().has_human_layer


def test_whoever_may_see_one_cluster_sees_no_incident_of_another(alpha: Any, client_of: Any, lan: Any) -> None:
    fill(alpha, cluster="open-to-cleo", nodes=1, minutes=10)
    theirs = happen(alpha)
    fill(alpha, cluster="not-for-cleo", nodes=1, minutes=10)
    hidden = happen(alpha)
    cleo = User.objects.create_user("cleo@alpha.example")
    Membership.objects.create(user=cleo, org=alpha, role=Membership.Role.ADMIN, clusters=["open-to-cleo"])
    client = client_of(cleo)
    assert client.get(f"/o/alpha/incidents/{theirs}/").status_code == 200
    assert client.get(f"/o/alpha/incidents/{hidden}/").status_code == 404
    for name in WRITES:
        assert client.post(f"/o/alpha/incidents/{hidden}/{name}/", {"text": "x"}).status_code == 404
    for path in ("incidents/", "incidents.csv", "incidents.json", "incidents.json?cluster=not-for-cleo"):
        page = client.get(f"/o/alpha/{path}")
        if "cluster=" in path:
            assert page.json()["total"] == 0
        else:
            assert "not-for-cleo" not in page.content.decode()


def test_a_viewer_reads_and_writes_nothing(alpha: Any, client_of: Any, lan: Any) -> None:
    fill(alpha, nodes=1, minutes=10)
    pk = happen(alpha)
    vic = User.objects.create_user("vic@alpha.example")
    Membership.objects.create(user=vic, org=alpha, role=Membership.Role.VIEWER)
    client = client_of(vic)
    page = client.get(f"/o/alpha/incidents/{pk}/").content.decode()
    assert "Add the note" not in page
    for name in WRITES:
        assert client.post(f"/o/alpha/incidents/{pk}/{name}/", {"text": "x", "ticket_number": "1"}).status_code == 403


@pytest.mark.parametrize("pk", [999_999, 99_999_999_999_999_999_999])
def test_an_unknown_incident_is_not_found(pk: int, alpha: Any, ada: Any, client_of: Any) -> None:
    assert client_of(ada).get(f"/o/alpha/incidents/{pk}/").status_code == 404


# The list


def test_an_org_without_faults_says_so(alpha: Any, ada: Any, client_of: Any) -> None:
    words = text_of(client_of(ada).get("/o/alpha/incidents/"))
    assert "none open" in words
    assert "No fault of the infrastructure has been seen yet." in words


def test_open_ones_come_first_then_the_newest(alpha: Any, ada: Any, client_of: Any) -> None:
    fill(alpha, nodes=1, minutes=10)
    old = happen(alpha, minutes_ago=300)
    newer = happen(alpha, minutes_ago=20, is_open=False)
    newest = happen(alpha, minutes_ago=10, is_open=False)
    with tenant_context(alpha):
        page = list_page(timezone.now(), Wanted(), ())
    assert [line.row.pk for line in page.lines] == [old, newest, newer]
    words = text_of(client_of(ada).get("/o/alpha/incidents/"))
    assert "1 open: 1 infrastructure" in words
    assert "GPU 3 of sim-0001: GPU missing" in words
    assert "Next: Reboot" in words


def test_filters_live_in_the_url_and_narrow_list_and_downloads(alpha: Any, ada: Any, client_of: Any) -> None:
    fill(alpha, nodes=2, minutes=10)
    happen(alpha)
    happen(alpha, node="sim-0002", is_open=False, party="ambiguous", code="XID_79")
    client = client_of(ada)
    for query, count in (
        ("", 2),
        ("state=open", 1),
        ("state=resolved", 1),
        ("party=ambiguous", 1),
        ("node=sim-0001", 1),
        ("node=none", 0),
        ("code=XID_79", 1),
        ("cluster=sim", 2),
        ("cluster=other", 0),
        (f"day={timezone.now() - timedelta(minutes=8):%Y-%m-%d}", 2),  # when both began
        ("day=2020-01-01&state=resolved", 0),
        ("state=nonsense&party=nonsense&code=%27%3B--&page=-3", 2),
    ):
        assert client.get(f"/o/alpha/incidents.json?{query}").json()["total"] == count, query
        lines = list(csv.DictReader(io.StringIO(client.get(f"/o/alpha/incidents.csv?{query}").content.decode())))
        assert len(lines) == count, query
    page = client.get("/o/alpha/incidents/?state=resolved&party=ambiguous").content.decode()
    assert 'href="/o/alpha/incidents.csv?state=resolved&amp;party=ambiguous"' in page


@pytest.mark.parametrize("day", ["x", "2026-13-01", "20261130", "1999-01-01", "9999-12-31"])
@pytest.mark.parametrize("path", ["incidents/", "incidents.csv", "incidents.json"])
def test_a_bad_day_is_said_to_be_one(path: str, day: str, alpha: Any, ada: Any, client_of: Any) -> None:
    response = client_of(ada).get(f"/o/alpha/{path}?day={day}")
    assert response.status_code == 422
    assert "day: a date" in response.content.decode()


def test_a_long_list_pages_and_its_cost_does_not_grow(
    alpha: Any, ada: Any, client_of: Any, django_assert_max_num_queries: Any
) -> None:
    fill(alpha, nodes=1, minutes=10)
    for minutes in range(ON_PAGE + 5):
        happen(alpha, minutes_ago=20 + minutes, is_open=False)
    client = client_of(ada)
    with django_assert_max_num_queries(36):
        first = client.get("/o/alpha/incidents/").content.decode()
    assert first.count('<li class="issue') == ON_PAGE
    assert 'rel="next"' in first
    assert client.get("/o/alpha/incidents/?page=2").content.decode().count('<li class="issue') == 5
    assert client.get("/o/alpha/incidents/?page=999").content.decode().count('<li class="issue') == 5


def test_what_is_open_is_one_number_everywhere_also_when_the_fleet_is_silent(
    alpha: Any, ada: Any, client_of: Any, lan: Any
) -> None:
    fill(alpha, nodes=3, minutes=3)
    head = happen(alpha)
    happen(alpha, "sim-0002", part_of_id=head)
    other = happen(alpha, "sim-0001", code="HW_THERMAL", is_open=False)
    happen(alpha, "sim-0003", code="HW_THERMAL", part_of_id=other, party="ambiguous")  # only a share of it goes on
    happen(alpha, "sim-0003", is_open=False)
    happen(alpha, "sim-0003", withdrawn_at=timezone.now())
    client = client_of(ada)
    for silent in (False, True):
        if silent:
            with tenant_context(alpha):
                NodeLive.objects.update(last_sample_at=timezone.now() - timedelta(hours=1))
        fleet, page = (client.get(f"/o/alpha/{path}").content.decode() for path in ("", "incidents/"))
        listed = client.get("/o/alpha/incidents.json?state=open").json()["total"]
        counted = re.search(r"Open incidents</dt>\s*<dd[^>]*><a[^>]*>(\d+)", fleet)
        assert counted is not None
        assert (int(counted[1]), listed, client.get("/v1/fleet").json()["open_incidents"]) == (2, 2, 2)
        assert "2 open: 1 infrastructure, 1 ambiguous" in page
        assert "1 infrastructure · 1 ambiguous" in fleet
        assert all("<title>(2) " in one for one in (fleet, page))
        assert ("3 nodes silent" in fleet) is silent


def test_one_incident_costs_the_same_however_many_its_nodes_and_hours(
    alpha: Any, ada: Any, client_of: Any, django_assert_max_num_queries: Any
) -> None:
    fill(alpha, nodes=2, minutes=70)
    pk = happen(alpha)
    client = client_of(ada)
    for _ in range(2):
        with django_assert_max_num_queries(38):
            assert client.get(f"/o/alpha/incidents/{pk}/").status_code == 200
        for minutes in range(60, 66):
            happen(alpha, "sim-0002", minutes, part_of_id=pk)
        with tenant_context(alpha):
            Incident.objects.filter(pk=pk).update(nodes_together=7, first_slot=F("first_slot") - 240)


def test_the_download_holds_the_hardware_as_it_was(alpha: Any, ada: Any, client_of: Any) -> None:
    fill(alpha, nodes=1, minutes=10)
    happen(alpha)
    (line,) = csv.DictReader(io.StringIO(client_of(ada).get("/o/alpha/incidents.csv").content.decode()))
    assert (line["gpus"], line["uuids"], line["state"], line["simulated"]) == ("3", uuid_of(alpha), "open", "yes")
    assert line["lost_gpu_seconds"] == "120"


def test_what_people_typed_is_inert_in_the_download(alpha: Any, ada: Any, client_of: Any) -> None:
    fill(alpha, nodes=1, minutes=10)
    happen(alpha, ticket_number="=1+1")
    (line,) = csv.DictReader(io.StringIO(client_of(ada).get("/o/alpha/incidents.csv").content.decode()))
    assert line["ticket_number"] == "'=1+1"


# One incident


def test_the_page_says_what_where_since_when_whose_and_what_would_end_it(alpha: Any, ada: Any, client_of: Any) -> None:
    fill(alpha, nodes=1, minutes=10)
    response = client_of(ada).get(f"/o/alpha/incidents/{happen(alpha)}/")
    words = text_of(response)
    assert "GPU 3 of sim-0001: GPU missing" in words
    assert uuid_of(alpha) in response.content.decode()
    assert "It would end with" in words
    assert "infrastructure" in words
    assert "Opened: GPU missing." in words
    assert "Next: Reboot" in words


def test_acknowledging_is_kept_once_and_stands_in_the_trail(alpha: Any, ada: Any, client_of: Any) -> None:
    fill(alpha, nodes=1, minutes=10)
    pk, client = happen(alpha), client_of(ada)
    assert client.post(f"/o/alpha/incidents/{pk}/acknowledge/").status_code == 302
    again = client.post(f"/o/alpha/incidents/{pk}/acknowledge/", follow=True)
    assert "Somebody had acknowledged it before" in text_of(again)
    assert f"Acknowledged by {ada.email}" in text_of(again)
    assert AuditEntry.objects.filter(action="incident.acknowledged", org_id=alpha.pk).count() == 1


def test_notes_are_kept_as_they_were_typed_and_run_nothing(alpha: Any, ada: Any, client_of: Any) -> None:
    fill(alpha, nodes=1, minutes=10)
    pk, client = happen(alpha), client_of(ada)
    page = client.post(f"/o/alpha/incidents/{pk}/notes/", {"text": "<script>alert(1)</script> asked them"}, follow=True)
    assert "<script>alert" not in page.content.decode()
    assert "asked them" in text_of(page)
    assert client.post(f"/o/alpha/incidents/{pk}/notes/", {"text": "  "}).status_code == 422
    assert client.post(f"/o/alpha/incidents/{pk}/notes/", {"text": "x" * 4001}).status_code == 422
    assert client.post(f"/o/alpha/incidents/{pk}/notes/", {"text": "a\x00b"}).status_code == 422


def test_ticket_times_and_treatment_are_kept_with_before_and_after(alpha: Any, ada: Any, client_of: Any) -> None:
    fill(alpha, nodes=1, minutes=10)
    pk, client = happen(alpha), client_of(ada)
    form = {
        "ticket_number": "INC-48213",
        "reported_at": "2026-11-30T07:04",
        "provider_ack_at": "",
        "disposition": "disputed",
    }
    page = client.post(f"/o/alpha/incidents/{pk}/ticket/", form, follow=True)
    assert 'value="2026-11-30T07:04:00"' in page.content.decode()
    client.post(f"/o/alpha/incidents/{pk}/ticket/", {**form, "disposition": "excluded"})
    words = text_of(client.get(f"/o/alpha/incidents/{pk}/"))
    assert "disposition from “disputed” to “excluded”" in words
    with tenant_context(alpha):
        incident = Incident.objects.get()
        assert (incident.ticket_number, incident.disposition, incident.weight) == ("INC-48213", "excluded", 0)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("reported_at", "yesterday"),
        ("provider_ack_at", "0001-01-01T00:00"),
        ("disposition", "free"),
        ("ticket_number", "x" * 121),
    ],
)
def test_a_bad_value_is_refused_with_its_field_and_nothing_is_kept(
    field: str, value: str, alpha: Any, ada: Any, client_of: Any
) -> None:
    fill(alpha, nodes=1, minutes=10)
    pk = happen(alpha)
    response = client_of(ada).post(f"/o/alpha/incidents/{pk}/ticket/", {"ticket_number": "1", field: value})
    assert response.status_code == 422
    with tenant_context(alpha):
        assert not Incident.objects.get().has_human_layer


def test_a_resolved_and_a_withdrawn_one_say_so(alpha: Any, ada: Any, client_of: Any) -> None:
    fill(alpha, nodes=1, minutes=10)
    over = happen(alpha, is_open=False)
    gone = happen(alpha, is_open=False, withdrawn_at=timezone.now() - timedelta(minutes=1), ticket_number="7")
    assert "Such a fault ends with" in text_of(client_of(ada).get(f"/o/alpha/incidents/{over}/"))
    assert "there was no such fault" in text_of(client_of(ada).get(f"/o/alpha/incidents/{gone}/"))
