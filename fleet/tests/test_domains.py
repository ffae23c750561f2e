"""What is said of several nodes together: NVLink domains, and nodes with fewer ports than their neighbours."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone
from django_tenants.utils import tenant_context

from fleet.folding import fold_waiting
from fleet.ingest import receive
from fleet.models import ExpectedHardware, Node, NodeLive
from fleet.selectors_domains import list_domains, together
from fleet.selectors_hours import Stretch
from fleet.tests.api.conftest import get
from fleet.tests.bodies import SLOT_MS, gpu, interval, packed
from fleet.tests.test_folding import key_for
from fleet.tests.test_pages import text_of

pytestmark = pytest.mark.django_db
FABRIC = {"cluster": "5f0c" * 8, "clique": "1"}
KEY = f"d:{FABRIC['cluster']}/1"


def upload(org: Any, name: str, first_ms: int, samples: int = 8, away: int = 0, **more: Any) -> None:
    """A node's samples, each of four GPUs in the domain; in the last `away` samples its GPUs are dead on the bus."""
    everything = []
    for k in range(samples):
        listed = [gpu(i, uuid=f"GPU-{name}-{i}", fabric=FABRIC) for i in range(4)]
        one: dict[str, Any] = {"gpus": listed}
        if k >= samples - away:
            one = {"gpus": listed[1:], "pci": {"0000:10:00.0": "absent"}}
        everything.append({**interval(first_ms + k * SLOT_MS), **one})
    for at in range(0, samples, 4):
        receive(packed(node_id=name, intervals=everything[at : at + 4], **more)[0], key_for(org), {})


@pytest.fixture
def rack(alpha: Any) -> Any:
    """Three nodes of one domain; a GPU of the third is gone since four samples."""
    first_ms = (int(timezone.now().timestamp() * 1000) // SLOT_MS - 9) * SLOT_MS + SLOT_MS // 2
    for name, away in (("n1", 0), ("n2", 0), ("n3", 4)):
        upload(alpha, name, first_ms, away=away)
    with tenant_context(alpha):
        fold_waiting(timezone.now())
    return alpha


def test_one_gpu_of_a_domain_costs_itself_and_not_its_neighbours(rack: Any, beta: Any, key_of: Any) -> None:
    (line,) = get("/v1/domains", key_of(rack, "read")).json()["results"]
    assert (line["domain"], line["nodes"], line["gpus"]) == (KEY, 3, 12)
    assert (line["available"], line["down"], line["nodes_not_available"]) == (11, 1, ["n3"])
    with tenant_context(rack):
        (found,) = list_domains(timezone.now(), strips=True)
    assert 0 < found.sums.down <= 4 * 15
    assert found.strip is not None
    assert "down" in found.strip.words
    assert get("/v1/domains", key_of(beta, "read")).json()["results"] == []
    assert get("/v1/domains", key_of(rack, "read", cluster="other")).json()["results"] == []
    assert get("/v1/domains?period=1y", key_of(rack, "read")).status_code == 422


def test_the_page_names_it_and_node_and_fleet_lead_there(rack: Any, ada: Any, client_of: Any, lan: Any) -> None:
    client = client_of(ada)
    words = text_of(client.get("/o/alpha/domains/"))
    assert "5f0c5f0c/1" in words
    assert "11 of 12" in words
    assert "n3" in words
    assert "1 NVLink domain" in text_of(client.get("/o/alpha/"))
    with tenant_context(rack):
        node = Node.objects.get(name="n1")
    page = client.get(f"/o/alpha/nodes/{node.pk}/").content.decode()
    assert f"/o/alpha/domains/?only={KEY}".replace("/1", "%2F1").replace(":", "%3A") in page
    assert "No GPU here names" in text_of(client.get("/o/alpha/domains/?only=d:x/1"))


def test_a_domain_outlives_a_batch_that_lists_no_gpu(rack: Any) -> None:
    now_ms = (int(timezone.now().timestamp() * 1000) // SLOT_MS) * SLOT_MS - SLOT_MS // 2
    blind = [interval(now_ms, gpus=0, sources={"nvml": "error", "ib": "absent", "kmsg": "ok", "pci": "ok"})]
    receive(packed(node_id="n1", intervals=blind)[0], key_for(rack), {})
    with tenant_context(rack):
        fold_waiting(timezone.now())
        (found,) = list_domains(timezone.now())
    assert len(found.nodes) == 3


def test_nodes_together_are_cut_where_any_of_them_changes() -> None:
    well, down = Stretch(0, 20, "available", 4, 4, 0), Stretch(5, 10, "down", 4, 4, 0)
    other = [Stretch(0, 5, "available", 4, 4, 0), down, Stretch(10, 20, "unknown", 4, 4, 4)]
    assert together([[well], other]) == [
        Stretch(0, 5, "available", 8, 8, 0),
        Stretch(5, 10, "down", 4, 8, 0),
        Stretch(10, 20, "unknown", 4, 8, 4),
    ]


# ---- neighbours ----


@pytest.fixture
def ports(rack: Any) -> Any:
    """The same three nodes, known for days: two with eight learned ports, the third with six."""
    with tenant_context(rack):
        Node.objects.update(first_seen_at=timezone.now() - timedelta(days=3))
        for live in NodeLive.objects.select_related("node"):
            count = 6 if live.node.name == "n3" else 8
            subjects = [one for one in live.summary["subjects"] if one["kind"] == "gpu"]
            port = {"kind": "port", "state": "observed", "nominal": 100, "lower": 100, "upper": 100}
            subjects += [{**port, "subject": f"p:{k}", "device": str(k)} for k in range(count)]
            live.summary = {**live.summary, "subjects": subjects}
            live.save()
    return rack


def test_fewer_ports_than_the_neighbours_ask_for_a_look_and_lower_nothing(
    ports: Any, ada: Any, client_of: Any, lan: Any, key_of: Any
) -> None:
    client = client_of(ada)
    assert "n3 has 6 ports, its neighbours have 8" in text_of(client.get("/o/alpha/"))
    troubles = get("/v1/fleet", key_of(ports, "read")).json()["troubles"]
    (found,) = [one for one in troubles if one["code"] == "IB_PORT_PEERS"]
    assert "would weigh 75 of 100" in json.dumps(found)
    with tenant_context(ports):
        nodes = {node.name: node.pk for node in Node.objects.all()}
    words = text_of(client.get(f"/o/alpha/nodes/{nodes['n3']}/?part=events"))
    assert "Fewer ports than its neighbours" in words
    assert "nothing is lowered" in words
    assert "Fewer ports" not in text_of(client.get(f"/o/alpha/nodes/{nodes['n1']}/?part=events"))


def test_what_is_declared_or_young_is_not_compared(ports: Any, ada: Any, client_of: Any, lan: Any) -> None:
    with tenant_context(ports):
        node = Node.objects.get(name="n3")
        row = ExpectedHardware.objects.create(node=node, ports=[], from_at=timezone.now() - timedelta(days=1))
    assert "its neighbours" not in text_of(client_of(ada).get("/o/alpha/"))
    with tenant_context(ports):
        row.delete()
        Node.objects.filter(pk=node.pk).update(first_seen_at=timezone.now() - timedelta(hours=3))
    assert "its neighbours" not in text_of(client_of(ada).get("/o/alpha/"))
