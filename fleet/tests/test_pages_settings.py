"""The fleet's settings: hardware, maintenance, rules, names. Who may write does, everybody else reads."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.utils import timezone
from django_tenants.utils import tenant_context

from fleet.domain.rules import LATEST
from fleet.models import (
    Amendment,
    Cluster,
    DeviceAssignment,
    ExpectedHardware,
    Incident,
    MaintenanceWindow,
    Node,
    NodeHour,
    NodeLive,
    ProbeTarget,
    SealedDay,
)
from fleet.services_dated import DatedInvalid
from fleet.services_incidents import Actor
from fleet.services_nodes import merge_nodes, set_retired
from fleet.services_windows import add_window
from fleet.tests.test_dated import NOW, START, at, bodies, fold, node, same_after_a_whole_refold, send, verdict
from orgs.models import AuditEntry
from orgs.services import create_user, set_role

pytestmark = pytest.mark.django_db
BASE = "/o/alpha/settings/"


@pytest.fixture
def inside(alpha: Any) -> Iterator[Any]:
    """The test runs inside alpha's schema."""
    with tenant_context(alpha):
        yield alpha


@pytest.fixture
def machine(alpha: Any) -> Node:
    """A node with two GPUs that reported."""
    with tenant_context(alpha):
        cluster = Cluster.objects.create(name="north")
        made = Node.objects.create(cluster=cluster, identity="name:n1", name="n1")
        gpus = [{"subject": f"g{i}", "kind": "gpu", "device": f"GPU-{i}", "state": "observed"} for i in range(2)]
        NodeLive.objects.create(node=made, summary={"subjects": gpus}, last_sample_at=timezone.now())
    return made


def staying(client: Client) -> Client:
    """A client after whose requests the test is in the schema that it was in before."""
    ask = client.request

    def request(**asked: Any) -> Any:
        schema = connection.schema_name  # type: ignore[attr-defined]
        try:
            return ask(**asked)
        finally:
            connection.set_schema(schema)  # type: ignore[attr-defined]

    client.request = request  # type: ignore[method-assign]
    return client


@pytest.fixture
def owner(ada: Any, client_of: Any, lan: Any) -> Client:
    """Ada's browser."""
    return staying(client_of(ada))


@pytest.fixture
def viewer(alpha: Any, client_of: Any, lan: Any) -> Client:
    """Somebody who only reads."""
    person = create_user("vi@alpha.example", actor="test")
    set_role(person, alpha, "viewer", actor="test")
    return client_of(person)


def page(client: Client, path: str, status: int = 200) -> str:
    """The page as text, its white space joined."""
    response = client.get(f"{BASE}{path}")
    assert response.status_code == status, response.content.decode()[:400]
    return re.sub(r"\s+", " ", response.content.decode())


def post(client: Client, path: str, status: int = 302, **data: Any) -> str:
    """A form sent; the page that it answers with."""
    response = client.post(f"{BASE}{path}", data)
    assert response.status_code == status, response.content.decode()[:2000]
    return response.content.decode()


def test_hardware_is_declared_shown_and_ended(owner: Client, alpha: Any, machine: Node) -> None:
    assert "as learned" in page(owner, "hardware/")
    more = {
        "expected-devices": "GPU-0\nGPU-7",
        "expected-ports": "mlx5_0/1 0 400\nmlx5_1/1",
        "expected-reason": "order 7",
    }
    declared = {"expected-gpus": 4, "expected-from_at": "2026-11-01T00:00", **more}
    post(owner, f"hardware/{machine.pk}/expect/", **declared)
    with tenant_context(alpha):
        row = ExpectedHardware.objects.get()
        assert (row.gpus, row.devices, row.author) == (4, ["GPU-0", "GPU-7"], "ada@alpha.example")
        assert row.ports == [
            {"key": "mlx5_0/1", "gpu": 0, "rate_gbps": 400},
            {"key": "mlx5_1/1", "gpu": None, "rate_gbps": None},
        ]
    shown = page(owner, "hardware/")
    assert "2 of 4 GPUs were ever seen" in shown
    assert "not there: GPU-7" in shown
    assert "order 7" in page(owner, f"hardware/{machine.pk}/")
    post(owner, f"hardware/{machine.pk}/declarations/{row.pk}/end/")
    assert ">in force<" not in page(owner, f"hardware/{machine.pk}/")
    post(owner, f"hardware/{machine.pk}/declarations/{row.pk}/end/", withdraw="yes")
    assert "withdrawn" in page(owner, f"hardware/{machine.pk}/")
    post(owner, f"hardware/{machine.pk}/declarations/999/end/", 404)
    post(owner, f"hardware/{machine.pk}/nonsense/{row.pk}/end/", 404)
    assert "at most" not in post(owner, f"hardware/{machine.pk}/expect/", 422, **{**declared, "expected-gpus": "many"})
    assert "its rate" in post(owner, f"hardware/{machine.pk}/expect/", 422, **{**declared, "expected-ports": "a b c"})


def test_a_whole_cluster_is_declared_at_once(owner: Client, alpha: Any, machine: Node) -> None:
    with tenant_context(alpha):
        Node.objects.create(cluster=machine.cluster, identity="name:n2", name="n2")
    post(owner, "hardware/", cluster="north", gpus=8, from_at="2026-11-01T00:00", reason="contract")
    with tenant_context(alpha):
        assert list(ExpectedHardware.objects.values_list("gpus", flat=True)) == [8, 8]
    assert "no such cluster" in post(owner, "hardware/", 422, cluster="south", gpus=8, from_at="2026-11-01T00:00")
    entry = AuditEntry.objects.get(action="hardware.expected_of_cluster")
    assert (entry.target, entry.after["nodes"]) == ("north", 2)


def test_assignments_and_probes_of_a_node(owner: Client, alpha: Any, machine: Node, settings: Any) -> None:
    settings.GOODPUT_PROBE_NETWORKS = []
    assert "The probe is off" in page(owner, f"hardware/{machine.pk}/")
    settings.GOODPUT_PROBE_NETWORKS = ["127.0.0.0/8"]
    one = {"assign-place": 1, "assign-device": "GPU-9", "assign-at": "2026-11-02T10:00", "assign-reason": "RMA 3"}
    post(owner, f"hardware/{machine.pk}/assign/", **one)
    look = {"probe-kind": "tcp", "probe-address": "127.0.0.1", "probe-port": 22}
    post(owner, f"hardware/{machine.pk}/probe/", **look)
    assert "Not in a network" in post(
        owner, f"hardware/{machine.pk}/probe/", 422, **{**look, "probe-address": "192.0.2.1"}
    )
    shown = page(owner, f"hardware/{machine.pk}/")
    assert "RMA 3" in shown
    assert "tcp 127.0.0.1:22" in shown
    with tenant_context(alpha):
        target, given = ProbeTarget.objects.get(), DeviceAssignment.objects.get()
    post(owner, f"hardware/{machine.pk}/probes/{target.pk}/end/")
    post(owner, f"hardware/{machine.pk}/assignments/{given.pk}/end/")
    with tenant_context(alpha):
        assert ProbeTarget.objects.get().until_at is not None
        assert DeviceAssignment.objects.get().withdrawn_at is not None


def window(**more: Any) -> dict[str, Any]:
    """A form of a window in an hour."""
    begin = timezone.now() + timedelta(hours=1)
    times = {"starts_at": begin, "ends_at": begin + timedelta(hours=2)}
    told = {name: f"{value:%Y-%m-%dT%H:%M}" for name, value in times.items()}
    return {"cluster": "north", "source": "provider", "reference": "CHG-7", "reason": "new firmware", **told, **more}


def test_windows_are_entered_with_source_and_notice_and_late_ones_are_marked(
    owner: Client, alpha: Any, machine: Node
) -> None:
    notice = f"{timezone.now() - timedelta(days=2):%Y-%m-%dT%H:%M}"
    post(owner, "maintenance/", **window(noticed_at=notice))
    shown = page(owner, "maintenance/")
    assert "to come" in shown
    assert "Provider’s notice" in shown
    assert "2 d 1 h before" in shown or "2 d 0 h before" in shown
    assert ">entered late<" not in shown
    post(owner, "maintenance/", **window(node="n1", gpu=1, starts_at="2026-11-01T10:00", ends_at="2026-11-01T12:00"))
    late = page(owner, "maintenance/")
    assert "n1 GPU 1" in late
    assert ">entered late<" in late
    assert "no notice" in late
    with tenant_context(alpha):
        row = MaintenanceWindow.objects.get(place=1)
        assert row.is_late
    post(owner, f"maintenance/{row.pk}/withdraw/")
    assert "withdrawn" in page(owner, "maintenance/")
    for field, wrong in (
        ("no such cluster", {"cluster": "south"}),
        ("no such node", {"node": "n9"}),
        ("together with its node", {"gpu": 1}),
        ("It ends after it begins", {"ends_at": "2026-11-01T00:00", "starts_at": "2026-11-02T00:00"}),
    ):
        assert field in post(owner, "maintenance/", 422, **window(**wrong))
    assert [one.action for one in AuditEntry.objects.filter(action__startswith="window").order_by("id")] == [
        "window.entered",
        "window.entered",
        "window.withdrawn",
    ]


def test_a_window_shows_on_the_node_and_the_timeline_and_changes_no_verdict(inside: Any, owner: Client) -> None:
    for minute in range(3):
        send(inside, minute)
    fold()
    before = bodies()
    actor = Actor("ada@alpha.example", inside)
    cluster = Cluster.objects.get(name="c1")
    now = timezone.now()
    add_window(actor, cluster=cluster, starts_at=START, ends_at=at(30), reference="CHG-1", reason="cable work")
    add_window(actor, cluster=cluster, starts_at=now - timedelta(hours=1), ends_at=now + timedelta(hours=1))
    fold()
    assert bodies() == before
    path = f"/o/alpha/nodes/{node().pk}/"
    shown = owner.get(path).content.decode()
    assert "Maintenance window" in shown
    assert "entered late" in shown
    slot = owner.get(f"{path}gpus/0/?at=2026-11-28T10:01:00Z").content.decode()
    assert "cable work" in slot
    assert "entered late" in slot
    assert "cable work" not in owner.get(f"{path}gpus/0/?at=2026-11-28T11:01:00Z").content.decode()


def test_rules_are_amended_adopted_and_explained(owner: Client, inside: Any) -> None:
    for minute in range(90):
        send(inside, minute, **({"without": 1} if minute >= 30 else {}))
    fold()
    assert "None: verdicts are as the rule set says" in page(owner, "rules/")
    one = {
        "code": "GPU_MISSING",
        "key": "weight",
        "value": "60",
        "from_at": "2026-11-28T11:00",
        "reason": "order 12 §4",
    }
    assert "no reason NO_SUCH" in post(owner, "rules/", 422, **{**one, "code": "NO_SUCH"})
    assert "must be an integer" in post(owner, "rules/", 422, **{**one, "value": "a lot"})
    post(owner, "rules/", **one)
    shown = page(owner, "rules/")
    assert 'weight <span class="muted">0 →</span> <span class="strong">60</span>' in shown
    assert "order 12 §4" in shown
    fold()
    assert verdict(75, "g1").nominal == 60
    slot = owner.get(f"/o/alpha/nodes/{node().pk}/gpus/1/?at=2026-11-28T11:15:00Z").content.decode()
    assert "Amended" in slot
    assert "order 12 §4" in slot
    row = Amendment.objects.get()
    post(owner, f"rules/amendments/{row.pk}/end/", withdraw="yes")
    post(owner, f"rules/amendments/{row.pk + 1}/end/", 404)
    post(owner, "rules/adopt/", version=LATEST, from_at="2026-11-28T11:00", reason="as agreed")
    assert "replaced" in page(owner, "rules/")
    post(owner, "rules/nonsense/1/end/", 404)


def test_anybody_reads_the_rules(client: Client, lan: Any) -> None:
    shown = client.get("/rules/", headers={"host": "localhost"}).content.decode()
    assert 'id="XID_79"' in shown
    assert "Source:" in shown
    assert "10003 Host unhandled interrupt" in shown
    assert "only where the contract says that the provider runs the driver." in shown
    assert shown.index('id="XID_48"') < shown.index('id="XID_48_CONTAINED"') < shown.index('id="XID_49"')
    assert "links.toml" not in shown
    found = client.get("/rules/?q=xid_79", headers={"host": "localhost"}).content.decode()
    assert 'id="XID_79"' in found
    assert 'id="XID_48"' not in found
    nothing = client.get("/rules/?q=<none>", headers={"host": "localhost"}).content.decode()
    assert "No reason holds “&lt;none&gt;”." in nothing
    same = client.get(f"/rules/?version={LATEST}&against={LATEST}", headers={"host": "localhost"}).content.decode()
    assert "they decide and say the same" in same
    assert client.get("/rules/?version=1999-01-01", headers={"host": "localhost"}).status_code == 404
    body = client.get(f"/rules/{LATEST}.json", headers={"host": "localhost"}).json()
    assert body["version"] == LATEST
    assert {"code", "weight", "party", "sources"} <= set(body["reasons"][0])


def test_viewers_read_and_change_nothing(viewer: Client, alpha: Any, machine: Node) -> None:
    for path in ("hardware/", f"hardware/{machine.pk}/", "maintenance/", "rules/", "clusters/"):
        assert "csrfmiddlewaretoken" not in page(viewer, path).split('<main id="content"')[1]
    for path, data in (
        ("hardware/", {"cluster": "north", "gpus": 8, "from_at": "2026-11-01T00:00"}),
        (f"hardware/{machine.pk}/expect/", {}),
        (f"hardware/{machine.pk}/assign/", {}),
        (f"hardware/{machine.pk}/probe/", {}),
        (f"hardware/{machine.pk}/declarations/1/end/", {}),
        ("maintenance/", window()),
        ("maintenance/1/withdraw/", {}),
        ("rules/", {}),
        ("rules/adopt/", {}),
        ("rules/amendments/1/end/", {}),
        (f"clusters/{machine.cluster_id}/label/", {"label": "x"}),
        (f"clusters/{machine.cluster_id}/retire/", {}),
        (f"nodes/{machine.pk}/label/", {"label": "x"}),
        (f"nodes/{machine.pk}/retire/", {}),
        (f"nodes/{machine.pk}/merge/", {"into": "n2"}),
    ):
        post(viewer, path, 403, **data)


def test_somebody_restricted_to_a_cluster_sees_its_rows_only(
    alpha: Any, machine: Node, client_of: Any, lan: Any
) -> None:
    with tenant_context(alpha):
        south = Cluster.objects.create(name="south")
        other = Node.objects.create(cluster=south, identity="name:s1", name="s1")
        NodeLive.objects.create(node=other)
        actor = Actor("test", alpha)
        for cluster in (machine.cluster, south):
            now = timezone.now()
            add_window(actor, cluster=cluster, starts_at=now, ends_at=now + timedelta(hours=1), reference=cluster.name)
    person = create_user("vi@alpha.example", actor="test")
    set_role(person, alpha, "viewer", clusters=["north"], actor="test")
    browser = client_of(person)
    for path in ("hardware/", "maintenance/", "clusters/"):
        shown = page(browser, path)
        assert "north" in shown
        assert "south" not in shown
    page(browser, f"hardware/{other.pk}/", 404)


# Names, retirement, mergers


def test_a_node_and_a_cluster_are_renamed_and_their_own_names_stay(owner: Client, alpha: Any, machine: Node) -> None:
    post(owner, f"nodes/{machine.pk}/label/", label="rack 3, left")
    post(owner, f"clusters/{machine.cluster_id}/label/", label="Oslo")
    shown = page(owner, "clusters/")
    assert "rack 3, left" in shown
    assert "reported as n1" in shown
    assert "reported as north" in shown
    fleet = owner.get("/o/alpha/").content.decode()
    assert "rack 3, left" in fleet
    assert "Oslo" in fleet
    assert owner.get("/o/alpha/fleet.json").json()["clusters"][0]["name"] == "north"
    assert "reported as n1" in owner.get(f"/o/alpha/nodes/{machine.pk}/").content.decode()
    post(owner, f"nodes/{machine.pk}/label/", label="x" * 121)
    post(owner, f"nodes/{machine.pk}/label/", label="")
    assert "rack 3, left" not in page(owner, "clusters/")
    entries = AuditEntry.objects.filter(action__in=["node.renamed", "cluster.renamed"]).order_by("id")
    assert [(one.target, one.before, one.after) for one in entries] == [
        ("n1", "", "rack 3, left"),
        ("north", "", "Oslo"),
        ("n1", "rack 3, left", ""),
    ]


def test_a_retired_node_is_hidden_until_it_reports(inside: Any, owner: Client) -> None:
    send(inside, 0, node="old")
    send(inside, 0, node="n2")
    fold()
    actor = Actor("ada@alpha.example", inside)
    assert set_retired(node("old"), True, actor)
    Node.objects.filter(name="old").update(retired_at=at(30))
    assert ">old</a>" not in owner.get("/o/alpha/").content.decode()
    assert [one["name"] for one in owner.get("/v1/nodes").json()["results"]] == ["n2"]
    assert "retired" in page(owner, "clusters/")
    assert owner.get(f"/o/alpha/nodes/{node('old').pk}/").status_code == 200  # its facts stay
    send(inside, 60, node="old")
    fold()
    assert ">old</a>" in owner.get("/o/alpha/").content.decode()
    Node.objects.filter(name="old").update(retired_at=timezone.now())
    post(owner, f"nodes/{node('old').pk}/retire/", retired="no")
    assert Node.objects.get(name="old").retired_at is None


def test_a_merger_joins_two_histories_and_later_batches(inside: Any, owner: Client) -> None:
    for minute in range(70):
        send(inside, minute, node="n1", hw_id="aa" * 32)
    for minute in range(80, 150):
        send(inside, minute, node="n1b", hw_id="bb" * 32)
    fold()
    first, second = node("n1"), node("n1b")
    Incident.objects.create(
        **{"node": second, "cluster": second.cluster, "scope": "gpu", "code": "XID_79", "party": "infrastructure"},
        **{"weight": 0, "first_slot": 1, "end_slot": 2, "is_open": False, "lost_gpu_seconds": 15, "parts": []},
        ticket_number="T-1",
    )
    post(owner, f"nodes/{second.pk}/merge/", into="n1")
    fold()
    assert not NodeHour.objects.filter(node=second).exists()
    assert sorted(NodeHour.objects.filter(node=first).values_list("hour", flat=True)) == [
        int(START.timestamp()) // 3600 + k for k in range(3)
    ]
    assert verdict(30).nominal == 100
    assert verdict(120).nominal == 100
    kept = Incident.objects.get(ticket_number="T-1")
    assert (kept.node_id, kept.withdrawn_at is not None) == (first.pk, True)
    send(inside, 151, node="n1b", hw_id="bb" * 32)
    fold()
    assert verdict(151.5).nominal == 100
    assert Node.objects.get(pk=first.pk).name == "n1"
    shown = page(owner, "clusters/")
    assert "bb" * 32 in shown
    assert "n1b" not in [one["name"] for one in owner.get("/v1/nodes").json()["results"]]
    assert "<h1>n1</h1>" in owner.get(f"/o/alpha/nodes/{second.pk}/").content.decode()
    same_after_a_whole_refold()
    entry = AuditEntry.objects.get(action="node.merged")
    assert (entry.target, entry.after["into"]) == ("n1b", "n1")


def test_two_machines_at_one_time_are_not_merged(inside: Any) -> None:
    for minute in range(0, 240, 20):
        send(inside, minute, node="n1")
        send(inside, minute, node="n2")
    fold(NOW)
    actor = Actor("ada@alpha.example", inside)
    with pytest.raises(DatedInvalid, match="two machines"):
        merge_nodes(node("n2"), node("n1"), actor)
    with pytest.raises(DatedInvalid, match="Another node"):
        merge_nodes(node("n1"), node("n1"), actor)
    assert Node.objects.filter(merged_into=None).count() == 2


def test_a_node_with_sealed_hours_is_not_merged(inside: Any) -> None:
    send(inside, 0, node="n1")
    send(inside, 120, node="n2")
    fold(NOW)
    SealedDay.objects.create(day=int(START.timestamp()) // 86_400)
    actor = Actor("ada@alpha.example", inside)
    with pytest.raises(DatedInvalid, match="sealed"):
        merge_nodes(node("n2"), node("n1"), actor)
    assert NodeHour.objects.filter(node=node("n2")).exists()
