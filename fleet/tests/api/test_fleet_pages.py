"""A fleet of any size by program: totals without the nodes where these are many, and the nodes by pages."""

from __future__ import annotations

import json
from typing import Any

import pytest
from django.utils import timezone
from django_tenants.utils import tenant_context

from fleet import selectors
from fleet.fleet_json import as_json
from fleet.models import NodeLive
from fleet.reading import Filter, Period
from fleet.selectors import get_fleet
from fleet.selectors_live import read_summary
from fleet.selectors_plain import UNNAMED, read_plain
from fleet.tests.api.conftest import HOSTILE, fill, get
from fleet.tests.test_pages import broken
from fleet.tests.test_pages import fill as simulate

pytestmark = pytest.mark.django_db


def test_pages_hold_every_node_once_with_the_figures_of_the_whole(filled: Any, read: Any) -> None:
    for number in range(3):
        fill(filled, "north", f"more-{number}", with_fault=False, minutes=42)
    whole = read("/v1/fleet").json()
    assert whole["nodes_listed"] is True
    paged, url = [], "/v1/fleet/nodes?page_size=2"
    while url:
        page = read(url).json()
        assert len(page["results"]) <= 2
        assert page["period"]["name"] == "24h"
        paged += page["results"]
        url = (page["next"] or "").removeprefix("http://localhost")
    listed = [node for cluster in whole["clusters"] for node in cluster["nodes"]]
    assert paged == sorted(listed, key=lambda node: node["id"])
    only = read("/v1/fleet/nodes?cluster=south&period=7d").json()["results"]
    assert [node["name"] for node in only] == [HOSTILE]
    assert read("/v1/fleet/nodes?cluster=nowhere").json()["results"] == []
    table = read("/v1/fleet/nodes.csv").content.decode()
    assert "'=HYPERLINK" in table
    assert "sums_known_seconds" in table
    assert read("/v1/fleet/nodes?period=2d").status_code == 422


def test_above_a_bound_the_clusters_stand_without_their_nodes(
    filled: Any, read: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = read("/v1/fleet").json()
    monkeypatch.setattr(selectors, "MOST_NODES_LISTED", 1)
    monkeypatch.setattr("fleet.fleet_json.MOST_TROUBLES", 0)
    brief = read("/v1/fleet").json()
    assert (brief["nodes_listed"], brief["troubles"]) == (False, [])
    assert brief["trouble_count"] == len(whole["troubles"]) > 0
    assert all(cluster["nodes"] == [] for cluster in brief["clusters"])
    for key in ("gpus", "nodes", "sums", "availability_percent"):
        assert brief[key] == whole[key]


def test_a_key_of_one_cluster_pages_through_that_cluster_alone(filled: Any, key_of: Any, read: Any) -> None:
    token = key_of(filled, "read", cluster="north")
    assert [node["name"] for node in get("/v1/fleet/nodes", token).json()["results"]] == ["north-1"]
    assert get("/v1/fleet/nodes?cluster=south", token).json()["results"] == []


def test_a_large_fleet_is_read_in_brief_with_the_same_numbers(alpha: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is wholly well is counted and not named; whatever else there is to say is the same."""
    simulate(alpha, nodes=3, minutes=4)
    with tenant_context(alpha):
        NodeLive.objects.filter(node__name="sim-0002").update(summary=broken(alpha))
        now = timezone.now()
        well = 0
        for live in NodeLive.objects.all():
            raw = json.dumps(live.summary)
            plain, full = read_plain(raw), read_summary(raw, False)
            assert (plain is not None) == full.is_plain
            if plain is not None:
                well += 1
                assert len(plain.gpus) == len(full.gpus)
                same = ("is_silent", "conditions", "causes", "model", "driver", "broken_sources", "word", "counts")
                assert all(getattr(plain, name) == getattr(full, name) for name in same)
        assert well
        named = get_fleet(now, Period.DAY, Filter(page=None), strips=False)
        page = get_fleet(now)
        monkeypatch.setattr(selectors, "MANY_NODES", 0)
        brief = get_fleet(now, Period.DAY, Filter(page=None), strips=False, is_brief=True)
        assert any(UNNAMED in row.now.gpus for block in brief.clusters for row in block.nodes)
        assert as_json(brief, 0) == as_json(named, 0)
        assert get_fleet(now) == page  # who is shown is read in full
