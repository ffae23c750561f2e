"""Dated rows in the API: entered, listed, ended and withdrawn by owners and admins, read by keys."""

from __future__ import annotations

from typing import Any

import pytest
from django.test import Client
from django_tenants.utils import tenant_context

from fleet.api_dated import KINDS
from fleet.domain.rules import LATEST
from fleet.models import Cluster, Node, NodeLive
from fleet.tests.api.test_schema import check
from orgs.models import AuditEntry
from orgs.services import create_user, set_role

pytestmark = pytest.mark.django_db
BASE = "/v1/settings"
FROM = "2026-11-02T10:00:00Z"


@pytest.fixture
def machine(alpha: Any, settings: Any) -> Node:
    """A node of a cluster, in a network that may be probed."""
    settings.GOODPUT_PROBE_NETWORKS = ["127.0.0.0/8"]
    with tenant_context(alpha):
        cluster = Cluster.objects.create(name="north")
        made = Node.objects.create(cluster=cluster, identity="name:n1", name="n1")
        NodeLive.objects.create(node=made)
    return made


@pytest.fixture
def owner(ada: Any, client_of: Any, lan: Any) -> Client:
    """Ada's session."""
    return client_of(ada)


def new(kind: str, node: Node) -> dict[str, Any]:
    """A body that this kind takes."""
    ports = [{"key": "mlx5_0/1", "gpu": 0, "rate_gbps": 400}]
    return {
        "hardware": {"node_id": node.pk, "gpus": 8, "ports": ports, "owns_driver": True, "from": FROM},
        "assignments": {"node_id": node.pk, "gpu": 1, "device": "GPU-9", "at": FROM, "reason": "RMA 4"},
        "probes": {"node_id": node.pk, "kind": "tcp", "address": "127.0.0.1", "port": 22},
        "windows": {"cluster": "north", "node_id": node.pk, "starts": FROM, "ends": "2026-11-02T12:00:00Z"},
        "amendments": {"code": "GPU_MISSING", "changes": {"weight": 50}, "reason": "agreed", "from": FROM},
        "adoptions": {"version": LATEST, "reason": "checked", "from": FROM},
    }[kind]


def send(client: Client, path: str, body: Any = None) -> Any:
    """A POST of JSON."""
    return client.post(f"{BASE}/{path}", body or {}, content_type="application/json")


@pytest.mark.parametrize("kind", [kind.path for kind in KINDS])
def test_a_row_is_entered_listed_ended_and_withdrawn_as_described(
    kind: str, owner: Client, alpha: Any, machine: Node, key_of: Any
) -> None:
    made = send(owner, kind, new(kind, machine))
    assert made.status_code == 201, made.content
    check(made, f"{BASE}/{kind}", "post")
    row = made.json()
    assert row["author"] == "ada@alpha.example"
    keyed = Client(HTTP_HOST="localhost", HTTP_AUTHORIZATION=f"Bearer {key_of(alpha, 'read')}")
    listed = keyed.get(f"{BASE}/{kind}?page_size=1")
    check(listed, f"{BASE}/{kind}")
    assert listed.json()["results"] == [row]
    assert (listed.json()["next"] is None) == (kind != "adoptions")  # the org's first rule set comes after it
    assert f"\n{row['id']}," in keyed.get(f"{BASE}/{kind}.csv").content.decode().replace("\r", "")
    audited = AuditEntry.objects.count()
    for known in KINDS:
        for verb, act in (("end", known.end), ("withdraw", known.withdraw)):
            if known.path != kind or act is None:
                continue
            done = send(owner, f"{kind}/{row['id']}/{verb}")
            check(done, f"{BASE}/{kind}/{{row_id}}/{verb}", "post")
            assert done.status_code == 200, done.content
            assert done.json()["until" if verb == "end" else "withdrawn"] is not None
            audited += 1
            again = send(owner, f"{kind}/{row['id']}/{verb}")
            assert again.json() == done.json()
    assert AuditEntry.objects.count() == audited
    assert send(owner, f"{kind}/{2**62}/{'end' if kind == 'probes' else 'withdraw'}").status_code == 404


@pytest.mark.parametrize("kind", [kind.path for kind in KINDS])
def test_keys_and_viewers_only_read(
    kind: str, alpha: Any, machine: Node, key_of: Any, client_of: Any, lan: Any
) -> None:
    keyed = Client(HTTP_HOST="localhost", HTTP_AUTHORIZATION=f"Bearer {key_of(alpha, 'read')}")
    refused = send(keyed, kind, new(kind, machine))
    assert (refused.status_code, refused.json()["code"]) == (403, "session_needed")
    for role in ("viewer", "finance"):
        person = create_user(f"{role}@alpha.example", actor="test")
        set_role(person, alpha, role, actor="test")
        refused = send(client_of(person), kind, new(kind, machine))
        assert (refused.status_code, refused.json()["code"]) == (403, "role_needed")
        assert client_of(person).get(f"{BASE}/{kind}").status_code == 200


@pytest.mark.parametrize(
    ("kind", "field", "wrong"),
    [
        ("hardware", "nonsense", {"nonsense": 1}),
        ("hardware", "node_id", {"node_id": 10**17}),
        ("hardware", "node_id", {"node_id": 2**80}),
        ("hardware", "gpus", {"gpus": True}),
        ("hardware", "gpus", {"gpus": "8"}),
        ("hardware", "devices", {"devices": [1]}),
        ("hardware", "ports", {"ports": [{"kay": "x"}]}),
        ("hardware", "from", {"from": "yesterday"}),
        ("hardware", "from", {"from": None}),
        ("assignments", "gpu", {"gpu": -1}),
        ("assignments", "reason", {"reason": " "}),
        ("probes", "address", {"address": "192.0.2.1"}),
        ("probes", "kind", {"kind": "udp"}),
        ("windows", "cluster", {"cluster": "south"}),
        ("windows", "ends", {"ends": FROM}),
        ("windows", "source", {"source": "somebody"}),
        ("windows", "gpu", {"gpu": 1, "node_id": None}),
        ("amendments", "changes", {"changes": {"weight": 900}}),
        ("amendments", "changes", {"changes": []}),
        ("adoptions", "version", {"version": "1999-01-01"}),
    ],
)
def test_what_cannot_be_is_refused_with_its_field(
    kind: str, field: str, wrong: dict[str, Any], owner: Client, machine: Node
) -> None:
    refused = send(owner, kind, {**new(kind, machine), **wrong})
    assert refused.status_code == 422, refused.content
    assert list(refused.json()["errors"]) == [field]
    check(refused, f"{BASE}/{kind}", "post")


def test_a_key_of_one_cluster_sees_its_rows_only(owner: Client, alpha: Any, machine: Node, key_of: Any) -> None:
    for kind in ("hardware", "assignments", "probes", "windows"):
        assert send(owner, kind, new(kind, machine)).status_code == 201
    south = Client(HTTP_HOST="localhost", HTTP_AUTHORIZATION=f"Bearer {key_of(alpha, 'read', cluster='south')}")
    north = Client(HTTP_HOST="localhost", HTTP_AUTHORIZATION=f"Bearer {key_of(alpha, 'read', cluster='north')}")
    for kind in ("hardware", "assignments", "probes", "windows"):
        assert south.get(f"{BASE}/{kind}").json()["results"] == []
        assert len(north.get(f"{BASE}/{kind}").json()["results"]) == 1
        assert len(north.get(f"{BASE}/{kind}?node_id={machine.pk}").json()["results"]) == 1
        assert north.get(f"{BASE}/{kind}?node_id={machine.pk + 1}").json()["results"] == []


def test_the_rules_of_the_api_are_the_orgs_own(owner: Client, alpha: Any, machine: Node) -> None:
    assert owner.get("/v1/rules/GPU_MISSING").json()["weight"] == 0
    assert send(owner, "amendments", new("amendments", machine)).status_code == 201
    assert owner.get("/v1/rules/GPU_MISSING").json()["weight"] == 50
    whole = owner.get("/v1/rules").json()
    assert whole["version"].startswith(f"{LATEST}+")
    assert owner.get("/v1/rules/GPU_MISSING", {"version": whole["version"]}).json()["weight"] == 50
    assert owner.get(f"/v1/rules/GPU_MISSING?version={whole['version']}").json()["weight"] == 50  # a plus that got lost
    assert owner.get("/v1/rules/GPU_MISSING", {"version": LATEST}).json()["weight"] == 0
    assert owner.get("/v1/rules", {"version": f"{LATEST}+0123456789ab"}).status_code == 422
