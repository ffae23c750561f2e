"""The second pass over incidents: heads and members in the tables, whatever order they come in."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
from django.utils import timezone
from django_tenants.utils import tenant_context

from fleet.alerts.models import Alert
from fleet.cluster_incidents import group_waiting
from fleet.metrics_text import as_text
from fleet.models import Cluster, Incident, IncidentNote, Node
from fleet.selectors_api import Wanted
from fleet.selectors_api_metrics import read_metrics

pytestmark = pytest.mark.django_db
SLOT = 120_000_000


@pytest.fixture
def inside(alpha: Any) -> Iterator[Any]:
    """The test runs inside alpha's schema."""
    with tenant_context(alpha):
        yield alpha


def fault(number: int, slot: int, code: str = "NODE_LOST", cluster: str = "main", **more: Any) -> Incident:
    """An incident of a node of its own."""
    found = Cluster.objects.get_or_create(name=cluster)[0]
    node = Node.objects.get_or_create(cluster=found, identity=f"name:n{number}", defaults={"name": f"n{number}"})[0]
    values = {"scope": "node", "party": "infrastructure", "weight": 0, "lost_gpu_seconds": 60, "parts": []}
    span = {"first_slot": SLOT + slot, "end_slot": SLOT + slot + 40, "is_open": True}
    return Incident.objects.create(node=node, cluster=found, code=code, **values | span | more)


def heads() -> dict[int, tuple[int | None, int]]:
    """Incident → (head, nodes together)."""
    return {pk: (head, nodes) for pk, head, nodes in Incident.objects.values_list("pk", "part_of", "nodes_together")}


def regroup() -> None:
    """Passes until nothing waits."""
    for _ in range(5):
        if not group_waiting():
            return
    raise AssertionError("it does not come to rest")


def test_three_nodes_get_a_head_and_the_fourth_joins(inside: Any) -> None:
    a, b, c = fault(1, 0), fault(2, 3), fault(3, 6)
    regroup()
    assert heads() == {a.pk: (None, 3), b.pk: (a.pk, 1), c.pk: (a.pk, 1)}
    d = fault(4, -4)
    regroup()
    assert heads()[d.pk] == (a.pk, 1)  # the head keeps its name
    assert heads()[a.pk] == (None, 4)


def test_another_cause_and_another_cluster_stay_apart(inside: Any) -> None:
    for number, more in enumerate(({}, {}, {"code": "XID_79"}, {"cluster": "other"})):
        fault(number, 0, **more)
    regroup()
    assert {nodes for _, nodes in heads().values()} == {1}


def test_a_member_that_turns_out_to_be_none_leaves_and_the_rest_falls_apart(inside: Any) -> None:
    a, b, c = fault(1, 0), fault(2, 3), fault(3, 6)
    regroup()
    Incident.objects.filter(pk=a.pk).update(withdrawn_at=timezone.now(), is_open=False, waits_for_grouping=True)
    regroup()
    assert heads() == {b.pk: (None, 1), c.pk: (None, 1)}  # nobody wrote about it, so it is gone


def test_what_people_wrote_outlives_a_withdrawn_member(inside: Any) -> None:
    a, _, _ = fault(1, 0), fault(2, 3), fault(3, 6)
    IncidentNote.objects.create(incident=a, author="ada", text="x")
    regroup()
    Incident.objects.filter(pk=a.pk).update(withdrawn_at=timezone.now(), is_open=False, waits_for_grouping=True)
    regroup()
    assert heads()[a.pk] == (None, 1)


def test_a_member_with_another_cause_by_now_moves(inside: Any) -> None:
    rows = [fault(number, number) for number in range(4)]
    regroup()
    Incident.objects.filter(pk=rows[0].pk).update(code="XID_79", waits_for_grouping=True)
    regroup()
    found = heads()
    assert found[rows[0].pk] == (None, 1)
    assert found[rows[1].pk] == (None, 3)
    assert {found[row.pk] for row in rows[2:]} == {(rows[1].pk, 1)}


def test_a_change_of_what_a_fault_takes_is_told_and_rest_is_silent(inside: Any) -> None:
    for number in range(3):
        fault(number, number)
    regroup()
    told = Alert.objects.count()
    assert told
    Incident.objects.update(waits_for_grouping=True)
    regroup()
    assert Alert.objects.count() == told


def test_a_row_that_a_worker_holds_is_left_for_later(alpha: Any, transactional_db: Any) -> None:
    import threading

    from django.db import connection, transaction

    with tenant_context(alpha):
        rows = [fault(number, number) for number in range(3)]
        held, go = threading.Event(), threading.Event()

        def hold() -> None:
            with tenant_context(alpha), transaction.atomic():
                Incident.objects.select_for_update().get(pk=rows[1].pk)
                held.set()
                go.wait(20)
            connection.close()

        worker = threading.Thread(target=hold)
        worker.start()
        assert held.wait(20)
        group_waiting()
        assert Incident.objects.filter(waits_for_grouping=True).count() == 3
        go.set()
        worker.join()
        regroup()
        assert heads()[rows[0].pk] == (None, 3)


def test_many_far_apart_are_grouped_in_one_pass(inside: Any) -> None:
    for number in range(30):
        for node in range(3):
            fault(node, number * 1000 + node)
    regroup()
    assert sum(nodes == 3 for _, nodes in heads().values()) == 30


def test_the_metrics_count_a_cluster_wide_incident_once_and_each_nodes_share_with_its_node(inside: Any) -> None:
    for number in range(3):
        fault(number, number)
    fault(0, 400, code="XID_79")
    regroup()
    text = as_text(*read_metrics(timezone.now(), Wanted()))
    (cluster,) = re.findall(r"^goodput_cluster_open_incidents\{.*\} (\d+)$", text, re.MULTILINE)
    nodes = re.findall(r"^goodput_node_open_incidents\{.*\} (\d+)$", text, re.MULTILINE)
    assert (cluster, sorted(nodes)) == ("2", ["1", "1", "2"])


def parties() -> dict[int, str]:
    """Incident → whose fault."""
    return dict(Incident.objects.values_list("pk", "party"))


def test_nodes_that_died_together_are_the_infrastructures_until_they_turn_out_not_to_have(inside: Any) -> None:
    part = {"subject": "n", "codes": {"NODE_LOST": [0, 1, 0]}}
    rows = [fault(number, number, party="ambiguous", parts=[part]) for number in range(3)]
    alone = fault(9, 500, party="ambiguous", parts=[part])
    other = [fault(number, 900 + number, code="XID_109", party="ambiguous") for number in range(3)]
    regroup()
    found = parties()
    assert {found[row.pk] for row in rows} == {"infrastructure"}
    assert found[alone.pk] == "ambiguous"
    assert {found[row.pk] for row in other} == {"ambiguous"}  # what programs do, they do on many nodes at once
    Incident.objects.filter(pk=rows[0].pk).update(withdrawn_at=timezone.now(), waits_for_grouping=True)
    regroup()
    assert {parties()[row.pk] for row in rows[1:]} == {"ambiguous"}
