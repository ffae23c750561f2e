"""The Fleet page: what it says, that its numbers are those of the rows, what downloads hold."""

from __future__ import annotations

import csv
import io
import json
import re
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db import connection
from django.utils import timezone
from django_tenants.utils import tenant_context

from fleet import selectors, views
from fleet.bodies import load_row
from fleet.domain.slots import SLOT_S
from fleet.domain.verdicts import UNKNOWN_PROVISIONAL
from fleet.fleet_json import floored
from fleet.folding import fold_waiting
from fleet.ingest import receive
from fleet.models import Cluster, Node, NodeHour, NodeLive
from fleet.selectors import Filter, Period, fleet_summary, get_fleet
from fleet.simulation import Plan, uploads
from orgs.keys import KeyInfo

pytestmark = pytest.mark.django_db
MINUTE_MS = 60_000


def fill(org: Any, cluster: str = "sim", nodes: int = 2, minutes: int = 130, seed: int = 3, until: Any = None) -> None:
    """A simulated past of these minutes, up to now, stored and folded."""
    end_ms = int((until or timezone.now()).timestamp() * 1000) // MINUTE_MS * MINUTE_MS
    plan = Plan(cluster, nodes, end_ms - minutes * MINUTE_MS, end_ms, seed)
    key = KeyInfo(0, "test", frozenset({"ingest"}), "", None, org.pk, org.slug, org.schema_name)
    for body, _ in uploads(plan):
        receive(body, key, {})
    with tenant_context(org):
        fold_waiting(timezone.now())


def text_of(response: Any) -> str:
    """The words of a page, without markup."""
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", response.content.decode()))


# What it says


def test_an_empty_org_shows_the_line_that_connects_a_node(alpha: Any, ada: Any, client_of: Any, lan: Any) -> None:
    page = text_of(client_of(ada).get("/o/alpha/"))
    assert "Waiting for the first node" in page
    assert "--endpoint http://localhost/v1/batches" in page
    assert "create_key" in page


def test_the_connect_line_names_the_host_that_the_visitor_used(local: Any, client_of: Any) -> None:
    page = text_of(client_of(None).get("/o/local/", HTTP_HOST="127.0.0.1:8099"))
    assert "--endpoint http://127.0.0.1:8099/v1/batches" in page
    assert "--token-file" not in page


def test_in_local_mode_an_org_of_its_own_still_needs_its_key(alpha: Any, ada: Any, client_of: Any) -> None:
    page = text_of(client_of(ada).get("/o/alpha/"))
    assert "--token-file" in page
    assert "create_key --org alpha" in page


def test_the_empty_page_becomes_the_fleet_with_the_first_batch(alpha: Any, ada: Any, client_of: Any) -> None:
    client = client_of(ada)
    part = client.get("/o/alpha/", headers={"hx-request": "true"}).content.decode()
    assert 'data-every="3"' in part
    fill(alpha, nodes=1, minutes=2)
    part = client.get("/o/alpha/", headers={"hx-request": "true"}).content.decode()
    assert 'data-every="15"' in part
    assert "sim-0001" in part


def test_every_gpu_is_named_by_host_index_and_uuid(alpha: Any, ada: Any, client_of: Any) -> None:
    fill(alpha, nodes=1, minutes=3)
    page = client_of(ada).get("/o/alpha/").content.decode()
    with tenant_context(alpha):
        summary = NodeLive.objects.get().summary
    uuids = [subject["device"] for subject in summary["subjects"] if subject["kind"] == "gpu"]
    assert len(uuids) == 8
    for index, uuid in enumerate(uuids):
        assert f"sim-0001 · GPU {index}&#10;{uuid}" in page


def test_simulated_data_says_so_on_the_page_and_beside_the_cluster(alpha: Any, ada: Any, client_of: Any) -> None:
    fill(alpha, nodes=1, minutes=3)
    page = text_of(client_of(ada).get("/o/alpha/"))
    assert page.count("simulated") >= 3
    assert "made up by Goodput&#x27;s simulated source" in page or "made up by Goodput's simulated source" in page
    assert fleet_of(alpha)["simulated"] is True


def test_a_silent_node_is_unknown_and_never_healthy_or_down(alpha: Any, ada: Any, client_of: Any) -> None:
    fill(alpha, nodes=1, minutes=65, until=timezone.now() - timedelta(minutes=30))
    with tenant_context(alpha):
        fleet = get_fleet(timezone.now())
    assert fleet.counts == {"down": 0, "degraded": 0, "unknown": 8, "held": 0, "available": 0}
    assert fleet.silent == 1
    assert 1700 * 8 < fleet.sums.unknown < 2000 * 8
    page = text_of(client_of(ada).get("/o/alpha/"))
    assert "sim-0001 is silent" in page
    assert "Nothing is claimed for silence without a witness" in page


def test_a_node_that_never_sent_a_sample_is_shown_as_never_heard(alpha: Any, ada: Any, client_of: Any) -> None:
    with tenant_context(alpha):
        node = Node.objects.create(cluster=Cluster.objects.create(name="c"), identity="name:n", name="n")
        NodeLive.objects.create(node=node)
    page = text_of(client_of(ada).get("/o/alpha/"))
    assert "never heard" in page
    assert "n is silent" in page


def test_names_from_agents_stay_inert(alpha: Any, ada: Any, client_of: Any) -> None:
    hostile = "<script>alert(1)</script>'\"&=cmd"
    with tenant_context(alpha):
        node = Node.objects.create(cluster=Cluster.objects.create(name=hostile), identity="name:x", name=hostile)
        subject = {"subject": "g0", "kind": "gpu", "device": hostile, "bus_id": hostile, "model": hostile}
        summary = {"subjects": [subject], "driver": hostile, "node": {}}
        NodeLive.objects.create(node=node, summary=summary, agent_version=hostile)
    page = client_of(ada).get("/o/alpha/?open=" + str(node.pk)).content.decode()
    assert "<script>alert" not in page
    assert "&lt;script&gt;alert(1)" in page


@pytest.mark.parametrize(
    "query",
    [
        "period=99y",
        "state=%3Cb%3E",
        "page=-1",
        "page=999999",
        "page=0",
        "open=x",
        "open=99999999999999999",
        "cluster=%00",
        "q=%00",
        "q=" + "x" * 500,
        "page=all",
    ],
)
def test_a_url_that_means_nothing_still_shows_a_page(query: str, alpha: Any, ada: Any, client_of: Any) -> None:
    fill(alpha, nodes=1, minutes=2)
    assert client_of(ada).get(f"/o/alpha/?{query}").status_code == 200


def test_filters_live_in_the_url(alpha: Any, ada: Any, client_of: Any) -> None:
    fill(alpha, nodes=2, minutes=3)
    client = client_of(ada)
    assert "sim-0002" not in nodes_of(client.get("/o/alpha/?q=sim-0001"))
    assert nodes_of(client.get("/o/alpha/?cluster=elsewhere")) == []
    assert nodes_of(client.get("/o/alpha/?state=down")) == []
    everything = client.get("/o/alpha/?state=available&period=7d").content.decode()
    assert "/o/alpha/?period=30d&amp;state=available" in everything
    assert "/o/alpha/fleet.csv?period=7d&amp;state=available" in everything


def test_a_refresh_gets_the_living_part_alone_and_history_the_whole_page(alpha: Any, ada: Any, client_of: Any) -> None:
    fill(alpha, nodes=1, minutes=2)
    client = client_of(ada)
    part = client.get("/o/alpha/", headers={"hx-request": "true"})
    assert "<html" not in part.content.decode()
    assert 'id="asof" hx-swap-oob="true"' in part.content.decode()
    assert "HX-Request" in part["Vary"]
    whole = client.get("/o/alpha/", headers={"hx-request": "true", "hx-history-restore-request": "true"})
    assert "<html" in whole.content.decode()


def test_the_page_has_no_inline_script_or_style_and_names_no_other_host(alpha: Any, ada: Any, client_of: Any) -> None:
    fill(alpha, nodes=1, minutes=3)
    response = client_of(ada).get("/o/alpha/?open=1")
    page = response.content.decode()
    assert not re.search(r"\sstyle=|<style|<script(?![^>]*\ssrc=)|\son\w+=|javascript:", page)
    assert re.findall(r"(?:src|href)=\"(?:https?:)?//", page) == []
    policy = response["Content-Security-Policy"]
    assert "unsafe" not in policy
    assert "default-src 'none'" in policy


def test_the_colours_chosen_are_in_the_first_byte(alpha: Any, ada: Any, client_of: Any) -> None:
    client = client_of(ada)
    assert "data-theme" not in client.get("/o/alpha/").content.decode()[:80]
    client.cookies["theme"] = "dark"
    assert '<html lang="en" data-theme="dark">' in client.get("/o/alpha/").content.decode()
    client.cookies["theme"] = '"><script>'
    assert '<html lang="en">' in client.get("/o/alpha/").content.decode()


# Numbers


def fleet_of(org: Any, period: Period = Period.DAY) -> dict[str, Any]:
    """The JSON of an org's fleet."""
    with tenant_context(org):
        return fleet_summary(timezone.now(), period)


def nodes_of(response: Any) -> list[str]:
    """The nodes listed on a page."""
    return re.findall(r'<h3><a class="opener"[^>]*></a><a [^>]*>([^<]+)</a>', response.content.decode())


def test_the_sums_are_those_of_the_slots(alpha: Any) -> None:
    """Brute force over every slot of every GPU, straight from the stored rows."""
    fill(alpha, nodes=3, minutes=200, seed=11)
    now = timezone.now()
    with tenant_context(alpha):
        fleet = get_fleet(now)
        slots = {"known": 0, "nominal": 0, "lower": 0, "upper": 0, "down": 0, "degraded": 0}
        for hour in NodeHour.objects.all():
            row = load_row(bytes(hour.body))
            for subject in row.subjects():
                if subject.startswith("g"):
                    for verdict in row.verdicts(subject):
                        if verdict != UNKNOWN_PROVISIONAL and verdict.nominal is not None:
                            slots["known"] += 1
                            slots["nominal"] += verdict.nominal
                            slots["lower"] += verdict.lower
                            slots["upper"] += verdict.upper
                            slots["down"] += verdict.nominal == 0 and verdict.state != "held"
                            slots["degraded"] += 0 < verdict.nominal < 100
    sums = fleet.sums
    assert slots["known"] > 3 * 8 * 700
    for name in ("known", "nominal", "down", "degraded", "upper"):
        assert getattr(sums, name) == slots[name] * SLOT_S, name
    assert sums.lower == slots["lower"] * SLOT_S + 100 * sums.unknown
    assert sums.nominal <= sums.known_full
    assert sums.upper <= sums.nominal <= sums.lower <= sums.all_full


def test_the_opened_nodes_gpus_add_up_to_the_node(alpha: Any) -> None:
    fill(alpha, nodes=2, minutes=200, seed=11)
    with tenant_context(alpha):
        for node_id in Node.objects.values_list("pk", flat=True):
            fleet = get_fleet(timezone.now(), Period.WEEK, Filter(opened=node_id))
            row = next(row for cluster in fleet.clusters for row in cluster.nodes if row.id == node_id)
            assert len(row.places) == 8
            for name in ("known", "unknown", "nominal", "lower", "upper", "down", "degraded", "held"):
                assert sum(getattr(place.sums, name) for place in row.places) == getattr(row.sums, name), name


def test_the_figures_of_the_parts_add_up_to_the_whole(alpha: Any) -> None:
    fill(alpha, cluster="a", nodes=2, minutes=100)
    fill(alpha, cluster="b", nodes=1, minutes=70, seed=5)
    found = fleet_of(alpha)
    for name, value in found["sums"].items():
        assert value == sum(cluster["sums"][name] for cluster in found["clusters"])
        assert value == sum(node["sums"][name] for cluster in found["clusters"] for node in cluster["nodes"])
    states = [gpu["state"] for cluster in found["clusters"] for node in cluster["nodes"] for gpu in node["gpus"]]
    assert found["gpus"]["total"] == len(states) == 24
    for word in ("down", "degraded", "unknown", "held", "available"):
        assert found["gpus"][word] == states.count(word)


@pytest.mark.parametrize(
    ("part", "whole", "shown"),
    [
        (0, 0, None),
        (0, 7, "0.00"),
        (7, 7, "100"),
        (99_999, 100_000, "99.99"),
        (999_999_999, 1_000_000_000, "99.99"),
        (1, 3, "33.33"),
        (2, 3, "66.66"),
    ],
)
def test_a_share_is_cut_and_never_rounded_up(part: int, whole: int, shown: str | None) -> None:
    assert floored(part, whole) == shown


def test_downloads_hold_what_the_page_shows(alpha: Any, ada: Any, client_of: Any) -> None:
    fill(alpha, nodes=3, minutes=70)
    client = client_of(ada)
    lines = list(csv.DictReader(io.StringIO(client.get("/o/alpha/fleet.csv?q=sim-0002").content.decode())))
    assert [line["node"] for line in lines] == ["sim-0002"] * 8
    assert [line["gpu"] for line in lines] == [str(index) for index in range(8)]
    assert {line["simulated"] for line in lines} == {"yes"}
    data = json.loads(client.get("/o/alpha/fleet.json?q=sim-0002").content)
    (cluster,) = data["clusters"]
    (node,) = cluster["nodes"]
    assert [gpu["uuid"] for gpu in node["gpus"]] == [line["uuid"] for line in lines]
    page = client.get("/o/alpha/?q=sim-0002").content.decode()
    assert nodes_of(client.get("/o/alpha/?q=sim-0002")) == ["sim-0002"]
    assert all(line["uuid"] in page for line in lines)
    assert lines[0]["node_availability_percent"] == node["availability_percent"]


def test_a_name_that_is_a_formula_is_none_in_any_csv(alpha: Any, ada: Any, client_of: Any, lan: Any) -> None:
    fill(alpha, nodes=1, minutes=3)
    client = client_of(ada)
    for name in ("=1+1", "+1", "-1", "@x", "\tx", "\r=1", " =1+1", "|calc", "%x", "＝1"):
        with tenant_context(alpha):
            Node.objects.update(name=name)
            Cluster.objects.update(name=name)
        for path in ("/o/alpha/fleet.csv", "/v1/nodes.csv", "/v1/gpus.csv", "/v1/fleet/nodes.csv"):
            (line, *_) = csv.DictReader(io.StringIO(client.get(path).content.decode(), newline=""))
            words = [line[key] for key in ("node", "name", "cluster") if key in line]
            assert words, path
            assert {word[0] for word in words} == {"'"}, (path, name)


# Many nodes


def many(org: Any, count: int) -> None:
    """So many nodes, copies of one with a past."""
    fill(org, nodes=1, minutes=65)
    with tenant_context(org), connection.cursor() as cursor:
        cursor.execute(
            "select string_agg(quote_ident(column_name), ', ') from information_schema.columns"
            " where table_schema = current_schema() and table_name = 'fleet_node'"
            " and column_name not in ('id', 'identity', 'key', 'name')"
        )
        same = cursor.fetchone()[0]
        cursor.execute(
            f"insert into fleet_node (identity, key, name, {same}) select 'name:copy-' || i, i, 'copy-' || i, {same}"
            " from fleet_node, generate_series(2, %s) i",
            [count],
        )
        for table, left_out in (("fleet_nodelive", "node_id"), ("fleet_nodehour", "node_id")):
            cursor.execute(
                "select string_agg(quote_ident(column_name), ', '), string_agg('t.' || quote_ident(column_name), ', ')"
                " from information_schema.columns"
                " where table_schema = current_schema() and table_name = %s and column_name <> %s",
                [table, left_out],
            )
            columns, copied = cursor.fetchone()
            cursor.execute(
                f"insert into {table} (node_id, {columns}) select n.id, {copied} from {table} t, fleet_node n"
                f" where n.name like 'copy-%%' and t.node_id = (select min(id) from fleet_node)"
            )


def test_a_thousand_nodes_are_paged_worst_first_and_small(alpha: Any, ada: Any, client_of: Any) -> None:
    many(alpha, 1000)
    with tenant_context(alpha):
        NodeLive.objects.filter(node__name="copy-777").update(summary=broken(alpha))
    client = client_of(ada)
    page = client.get("/o/alpha/")
    assert len(page.content) < 300_000
    names = nodes_of(page)
    assert names[0] == "copy-777"
    assert len(names) == selectors.WELL_ON_PAGE
    assert "1,000 nodes, 8,000 GPUs" in text_of(page)
    assert "992 more nodes, all well" in text_of(page)
    with tenant_context(alpha):
        opened = f"/o/alpha/?open={Node.objects.get(name='copy-500').pk}"
    assert nodes_of(client.get(opened)) == [*names, "copy-500"]
    seen = []
    for number in range(1, -(-1000 // selectors.NODES_OF_CLUSTER) + 1):
        page = client.get(f"/o/alpha/?cluster=sim&page={number}")
        assert len(page.content) < 300_000
        seen += nodes_of(page)
    assert len(seen) == len(set(seen)) == 1000
    assert len(client.get("/o/alpha/fleet.csv?page=all").content.splitlines()) == 8001


def broken(org: Any) -> dict[str, Any]:
    """The summary of a node whose GPU 3 is gone."""
    summary: dict[str, Any] = NodeLive.objects.exclude(summary={}).first().summary  # type: ignore[union-attr]
    condition = {"code": "GPU_MISSING", "party": "infrastructure", "since_ms": 1_796_000_000_000, "weight": 0}
    subject = next(subject for subject in summary["subjects"] if subject["subject"] == "g3")
    subject |= {"nominal": 0, "lower": 0, "upper": 0, "certain": ["GPU_MISSING"], "state": "observed"}
    subject["conditions"] = [{**condition, "certain": True}]
    return summary


def test_the_rest_is_called_well_only_if_it_is(alpha: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(selectors, "NODES_ON_PAGE", 1)
    monkeypatch.setattr(selectors, "LEAST_PER_CLUSTER", 1)
    fill(alpha, nodes=3, minutes=3)
    with tenant_context(alpha):
        NodeLive.objects.filter(node__name__in=["sim-0001", "sim-0002"]).update(summary=broken(alpha))
        opened = Node.objects.get(name="sim-0003").pk
        (cluster,) = get_fleet(timezone.now(), wanted=Filter(opened=opened)).clusters
    assert [row.name for row in cluster.nodes] == ["sim-0001", "sim-0003"]
    assert not cluster.is_rest_well


def test_what_is_wrong_has_a_reason_a_party_a_since_and_a_next_step(alpha: Any, ada: Any, client_of: Any) -> None:
    fill(alpha, nodes=2, minutes=3)
    with tenant_context(alpha):
        NodeLive.objects.filter(node__name="sim-0002").update(summary=broken(alpha))
    page = text_of(client_of(ada).get("/o/alpha/"))
    assert "GPU 3 of sim-0002: GPU missing" in page
    assert "infrastructure" in page
    assert "Reboot the node; if the GPU stays away, have it replaced" in page
    assert nodes_of(client_of(ada).get("/o/alpha/?state=down")) == ["sim-0002"]
    (trouble,) = fleet_of(alpha)["troubles"]
    assert trouble["since"] == datetime.fromtimestamp(1_796_000_000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


@pytest.mark.parametrize(("last_ms", "marks"), [(1_796_000_000_000, ("edge",)), (1_796_000_015_000, ())])
def test_an_edge_is_marked_only_while_it_is_news(alpha: Any, last_ms: int, marks: tuple[str, ...]) -> None:
    fill(alpha, nodes=1, minutes=3)
    with tenant_context(alpha):
        summary = broken(alpha)
        subject = next(subject for subject in summary["subjects"] if subject["subject"] == "g3")
        subject["state"] = "edge"
        subject["conditions"][0]["last_ms"] = last_ms
        NodeLive.objects.update(summary=summary)
        (cluster,) = get_fleet(timezone.now()).clusters
    assert cluster.nodes[0].now.gpus[3].marks == marks


def test_the_number_of_queries_does_not_grow_with_the_fleet(
    alpha: Any, ada: Any, client_of: Any, django_assert_max_num_queries: Any
) -> None:
    """Thirteen of our own; django-tenants adds a SET search_path to each change between the schemas."""
    many(alpha, 60)
    client = client_of(ada)
    client.get("/o/alpha/")
    with django_assert_max_num_queries(26):
        client.get("/o/alpha/?open=1")


# The home-screen app


def test_the_manifest_opens_the_org(alpha: Any, ada: Any, client_of: Any) -> None:
    response = client_of(ada).get("/o/alpha/manifest.webmanifest")
    assert response["Content-Type"] == "application/manifest+json"
    manifest = response.json()
    assert (manifest["id"], manifest["start_url"], manifest["scope"]) == ("/o/alpha/", "/o/alpha/", "/")
    assert {icon["sizes"] for icon in manifest["icons"]} == {"180x180", "192x192", "512x512"}


def test_limits_of_the_page_hold_together() -> None:
    assert views.ROOMY_NODES <= selectors.NODES_ON_PAGE
