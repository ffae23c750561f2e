"""What asks for a look: kept beside the hours, told by page, API and console, of the fleet and of no other org's."""

from __future__ import annotations

from typing import Any

import pytest
from django.utils import timezone
from django_tenants.utils import tenant_context

from fleet.domain.slots import SLOT_MS
from fleet.fleet_json import when
from fleet.models import Node, NodeHour, Review
from fleet.refolding import refold_dirty
from fleet.services_dated import mark_dirty_hours
from fleet.summary.services import write_summary
from fleet.tests.api.conftest import get
from fleet.tests.bodies import interval
from fleet.tests.test_pages import text_of
from fleet.tests.test_pages_node import only_node, store

pytestmark = pytest.mark.django_db


@pytest.fixture
def now_ms(alpha: Any) -> int:
    """Of alpha's node n1, whose second GPU told of an Xid that no rule knows 70 s ago."""
    now = int(timezone.now().timestamp() * 1000)
    event = {"kind": "xid", "code": 9999, "pci_bus_id": "0000:11:00.0", "at": now - 70_000}
    store(alpha, intervals=[interval(now - 75_000 + k * SLOT_MS, events=[event] if k == 1 else []) for k in range(4)])
    return now


def test_the_api_lists_it_with_place_uuid_and_words(alpha: Any, beta: Any, key_of: Any, now_ms: int) -> None:
    token = key_of(alpha, "read")
    (line,) = get("/v1/reviews", token).json()["results"]
    assert (line["code"], line["gpu_index"], line["subject"], line["node"]) == ("XID_9999", 1, "g1", "n1")
    assert line["uuid"].startswith("GPU-1")
    assert line["title"]
    assert line["from"] <= when(now_ms - 70_000) < line["to"]
    wanted = f"code=XID_9999&node_id={line['node_id']}&since={when(now_ms - 90_000)}&until={when(now_ms)}"
    assert len(get(f"/v1/reviews?{wanted}", token).json()["results"]) == 1
    for nothing in (f"since={when(now_ms)}", "code=XID_95", "cluster=other", f"until={when(now_ms - 200_000)}"):
        assert get(f"/v1/reviews?{nothing}", token).json()["results"] == []
    assert "XID_9999" in get("/v1/reviews.csv", token).content.decode()
    assert get("/v1/reviews", key_of(beta, "read")).json()["results"] == []
    assert get("/v1/reviews", key_of(alpha, "read", cluster="other")).json()["results"] == []
    assert get("/v1/reviews?since=yesterday", token).status_code == 422


def test_a_refold_writes_the_same_and_takes_back_what_is_no_more(alpha: Any, now_ms: int) -> None:
    with tenant_context(alpha):
        before = list(
            Review.objects.values_list("node_id", "hour", "subject", "code", "first_slot", "end_slot", "uuid")
        )
        assert len(before) == 1
        Review.objects.create(
            node_id=before[0][0], hour=before[0][1], subject="g7", code="XID_1", first_slot=1, end_slot=2
        )
        NodeHour.objects.all().delete()  # as if the rows had said something else
        mark_dirty_hours([before[0][0]], before[0][1], before[0][1])
        refold_dirty(timezone.now())
        after = list(Review.objects.values_list("node_id", "hour", "subject", "code", "first_slot", "end_slot", "uuid"))
    assert after == before


def test_the_providers_console_counts_it_and_names_node_and_code(
    alpha: Any, pat: Any, client_of: Any, lan: Any, now_ms: int
) -> None:
    with tenant_context(alpha):
        write_summary(alpha, timezone.now())
    staff = client_of(pat)
    assert "1 subject to look at" in text_of(staff.get("/provider/"))
    (org,) = [one for one in staff.get("/provider/orgs.json").json()["orgs"] if one["slug"] == "alpha"]
    assert org["reviews"] == 1
    words = text_of(staff.get(f"/provider/orgs/{alpha.pk}/"))
    assert "Asks for a look" in words
    assert "XID_9999" in words
    assert "n1" in words
    with tenant_context(alpha):
        Review.objects.all().delete()
        write_summary(alpha, timezone.now())
    assert "Asks for a look" not in text_of(staff.get(f"/provider/orgs/{alpha.pk}/"))


def test_what_of_a_merged_or_removed_node_asked_is_not_listed(alpha: Any, key_of: Any, now_ms: int) -> None:
    with tenant_context(alpha):
        cluster = Node.objects.get(pk=only_node(alpha, "n1")).cluster
        type(cluster)._default_manager.filter(pk=cluster.pk).update(removed_at=timezone.now())
    assert get("/v1/reviews", key_of(alpha, "read")).json()["results"] == []
