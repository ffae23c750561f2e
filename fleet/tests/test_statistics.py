"""Fleet statistics by page, download and API: the same figures, from the same rows, for whom they are."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable
from typing import Any

import pytest
from django.utils import timezone
from django_tenants.utils import tenant_context

from fleet.models import Incident, Node, NodeLive
from fleet.refolding import refold_everything
from fleet.selectors_api import Span, Wanted
from fleet.selectors_api_availability import get_availability
from fleet.selectors_statistics import COLUMNS, get_statistics
from fleet.tests.test_pages import fill
from fleet.tests.test_pages_incidents import happen
from orgs.services import create_user, set_role

pytestmark = pytest.mark.django_db
PAGE = "/o/alpha/incidents/statistics"


@pytest.fixture
def client(alpha: Any, ada: Any, client_of: Callable[[Any], Any], lan: Any) -> Any:
    """Ada's browser, with two nodes and three faults of one GPU."""
    fill(alpha)
    for minutes in (60, 40, 20):
        happen(alpha, minutes_ago=minutes, is_open=False)
    happen(alpha, minutes_ago=10, code="HW_THERMAL")
    return client_of(ada)


def now_span() -> tuple[Any, Span]:
    """(now, the last day)."""
    now = timezone.now()
    slot = int(now.timestamp()) // 15
    return now, Span(slot - 5760, slot)


def test_page_download_and_api_say_the_same(client: Any) -> None:
    page = client.get(f"{PAGE}/?period=24h").content.decode()
    rows = list(csv.DictReader(io.StringIO(client.get(f"{PAGE}.csv?period=24h").content.decode())))
    body = client.get(f"{PAGE}.json?period=24h").json()
    api = client.get("/v1/statistics?by=reason").json()
    assert list(rows[0]) == list(COLUMNS)
    missing = next(row for row in rows if row["by"] == "reason" and row["key"] == "GPU_MISSING")
    assert (missing["faults"], missing["interruptions"], missing["lost_gpu_seconds"]) == ("3", "3", "360")
    assert body["tables"]["reason"][0] == api["results"][0]
    assert (body["faults"], body["interruptions"], body["degradations"], body["open"]) == (4, 4, 0, 1)
    assert api["total"]["lost_gpu_seconds"] == 480
    assert "GPU missing" in page
    assert "Repeat offenders" in page
    device = next(row for row in rows if row["by"] == "device")
    assert device["places"] == "GPU 3 of sim-0001"
    assert device["key"] in page


def test_known_time_is_that_of_availability_and_it_can_be_recomputed(client: Any, alpha: Any) -> None:
    with tenant_context(alpha):
        now, span = now_span()
        found = get_statistics(now, span, Wanted())
        whole = get_availability(now, span, "cluster", Wanted()).whole
        assert (found.tally.known, found.tally.counted) == (whole.known, whole.counted)
        assert found.figures.whole.known_s == whole.known
        assert found.rolled_up_lost_s == (100 * whole.known - whole.nominal) // 100
        refold_everything(timezone.now())
        again = get_statistics(now, span, Wanted())
        assert again.tally.known == found.tally.known
        assert again.rolled_up_lost_s == found.rolled_up_lost_s


def test_a_device_that_moved_is_one_line_with_both_places(client: Any, alpha: Any) -> None:
    with tenant_context(alpha):
        other = Node.objects.get(name="sim-0002")
        moved = NodeLive.objects.get(node__name="sim-0001").summary["subjects"]
        uuid = next(one["device"] for one in moved if one["subject"] == "g3")
        Node.objects.filter(pk=other.pk).update(name="spare")
        slot = int(timezone.now().timestamp()) // 15
        part = {"subject": "g0", "first_slot": slot - 8, "end_slot": slot, "bad_slots": 8, "lost": 800, "weight": 0}
        Incident.objects.create(
            **{"node": other, "cluster_id": other.cluster_id, "scope": "gpu", "code": "GPU_MISSING", "weight": 0},
            **{"party": "infrastructure", "first_slot": slot - 8, "end_slot": slot, "is_open": True},
            lost_gpu_seconds=120,
            parts=[{**part, "codes": {"GPU_MISSING": [slot - 8, slot - 1, 0]}, "settled": None}],
        )
        live = NodeLive.objects.get(node=other)
        for one in live.summary["subjects"]:
            if one["subject"] == "g0":
                one["device"] = uuid
        live.save()
        from fleet.models import NodeHour

        NodeHour.objects.filter(node=other).delete()  # where its hours don't know, what sits there now does
        now, span = now_span()
        table = get_statistics(now, span, Wanted()).tables["device"]
    (line,) = [row for row in table if row.key == uuid]
    assert line.places == ("GPU 3 of sim-0001", "GPU 0 of spare")
    assert len(line.line.own) == 5


def test_periods_are_those_of_the_fleet_and_bad_ones_are_refused(client: Any) -> None:
    assert client.get(f"{PAGE}/?period=2026-13").status_code == 422
    assert client.get(f"{PAGE}/?period=2015-01").status_code == 200
    empty = client.get(f"{PAGE}/?period=2015-01").content.decode()
    assert "None in this period" in empty
    years = "from=2020-01-01T00:00:00Z&to=2026-01-01T00:00:00Z"
    for wrong, field in (("from=x", "from"), ("by=colour", "by"), (years, "to"), ("a=b", "a")):
        response = client.get(f"/v1/statistics?{wrong}")
        assert response.status_code == 422
        assert list(response.json()["errors"]) == [field]


def test_who_sees_one_cluster_gets_the_statistics_of_that_one(
    client: Any, alpha: Any, client_of: Callable[[Any], Any], key_of: Any
) -> None:
    from django.test import Client

    person = create_user("vera@alpha.example", actor="test")
    set_role(person, alpha, "viewer", clusters=["elsewhere"], actor="test")
    body = client_of(person).get(f"{PAGE}.json").json()
    assert (body["gpus"], body["faults"], body["known_gpu_seconds"]) == (0, 0, 0)
    key = key_of(alpha, "read", cluster="elsewhere")
    api = Client(HTTP_HOST="localhost", HTTP_AUTHORIZATION=f"Bearer {key}").get("/v1/statistics").json()
    assert api["total"]["faults"] == 0
    assert api["results"] == []


def test_hostile_names_stay_inert(client: Any, alpha: Any) -> None:
    with tenant_context(alpha):
        Node.objects.filter(name="sim-0001").update(name="=1+1<script>")
    assert "<script>" not in client.get(f"{PAGE}/").content.decode().replace("<script src", "")
    assert "'=1+1" in client.get(f"{PAGE}.csv").content.decode()
