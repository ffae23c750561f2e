"""A fault of several nodes is one line and one page, and on each node's own page that node's share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.utils import timezone
from django_tenants.utils import tenant_context

from fleet.cluster_incidents import group_waiting
from fleet.models import Incident
from fleet.summary.services import write_summary
from fleet.tests.test_cluster_incidents import SLOT, fault

pytestmark = pytest.mark.django_db


@pytest.fixture
def three(alpha: Any) -> list[Incident]:
    """One fault of three nodes of alpha, over on the first, and another incident beside it."""
    with tenant_context(alpha):
        rows = [fault(number, number, lost_gpu_seconds=3600, is_open=number > 0) for number in range(3)]
        fault(9, 2000, code="XID_79", is_open=False, lost_gpu_seconds=3600)
        group_waiting()
        for row in rows:
            row.refresh_from_db()
    return rows


@pytest.fixture
def client(ada: Any, client_of: Callable[[Any], Any], lan: Any) -> Any:
    """Ada's browser."""
    return client_of(ada)


def test_the_list_shows_one_line_for_all_its_nodes(client: Any, three: list[Incident]) -> None:
    page = client.get("/o/alpha/incidents/").content.decode()
    assert page.count("3 nodes of main") == 1
    assert "2 incidents" in page
    assert "1 open" in page
    assert "4.0 GPU-hours lost" in page
    assert "n1:" not in page
    opened = client.get("/o/alpha/incidents/?state=open").content.decode()
    assert "3 nodes of main" in opened  # its first node is well again, the fault is not over
    assert "3 nodes of main" not in client.get("/o/alpha/incidents/?state=resolved").content.decode()


def test_who_asks_for_a_node_gets_its_share(client: Any, three: list[Incident]) -> None:
    page = client.get("/o/alpha/incidents/?node=n1").content.decode()
    assert "n1: " in page
    assert f"part of incident {three[0].pk}" in page
    assert "3 nodes of main" not in page


def test_its_page_lists_the_nodes_and_a_members_page_leads_there(client: Any, three: list[Incident]) -> None:
    page = client.get(f"/o/alpha/incidents/{three[0].pk}/").content.decode()
    assert "Nodes in it" in page
    assert all(f">n{number}<" in page for number in range(3))
    assert "10,800 GPU-seconds" in page
    share = client.get(f"/o/alpha/incidents/{three[1].pk}/").content.decode()
    assert f"/o/alpha/incidents/{three[0].pk}/" in share
    assert "3,600 GPU-seconds" in share


def test_downloads_name_scope_nodes_and_head(client: Any, three: list[Incident]) -> None:
    rows = client.get("/o/alpha/incidents.json").json()["incidents"]
    head = next(row for row in rows if row["incident"] == three[0].pk)
    assert (head["scope"], head["nodes"], head["lost_gpu_seconds"], head["state"]) == ("cluster", 3, 10800, "open")
    assert sum(row["lost_gpu_seconds"] for row in rows) == 4 * 3600
    assert "nodes,part_of" in client.get("/o/alpha/incidents.csv").content.decode().splitlines()[0]


def test_the_api_lists_every_share_once(client: Any, three: list[Incident]) -> None:
    rows = client.get("/v1/incidents").json()["results"]
    assert len(rows) == 4
    assert sum(row["lost_gpu_seconds"] for row in rows) == 4 * 3600
    shares = [row for row in rows if row["part_of"] == three[0].pk]
    assert len(shares) == 2
    full = client.get(f"/v1/incidents/{three[0].pk}").json()
    assert (full["scope"], full["nodes"], full["members"]) == ("cluster", 3, sorted(row.pk for row in three[1:]))


def test_the_console_counts_faults_and_not_nodes(alpha: Any, three: list[Incident]) -> None:
    from fleet.summary.models import OrgSummary

    with tenant_context(alpha):
        write_summary(alpha, timezone.now())
    assert OrgSummary.objects.get(org_id=alpha.pk).open_incidents == 1


def test_the_first_slot_of_all_its_nodes_is_its_beginning(alpha: Any, three: list[Incident]) -> None:

    from fleet.selectors_incidents import lines_of

    with tenant_context(alpha):
        (line,) = lines_of(timezone.now(), [Incident.objects.select_related("node", "cluster").get(pk=three[0].pk)])
    assert line.since_ms == SLOT * 15_000
    assert line.end_ms is None
