"""The page of a node: who may see it and the slots of its GPUs, what it says, its downloads."""

from __future__ import annotations

import csv
import io
import json
import re
from datetime import timedelta
from typing import Any

import msgspec
import pytest
from django.utils import timezone
from django_tenants.utils import tenant_context

from fleet.decode import gunzip
from fleet.domain.rules import load_rules
from fleet.domain.slots import SLOT_MS
from fleet.folding import fold_waiting
from fleet.ingest import receive
from fleet.models import Node, NodeHour, NodeLive
from fleet.node_events import EVENT_KEYS, devices_at, rule_of
from fleet.selectors_live import to_ms
from fleet.selectors_node import unknown_keys
from fleet.selectors_plain import read_plain
from fleet.selectors_reviews import list_reviews
from fleet.tests.bodies import interval, packed
from fleet.tests.test_pages import fill, text_of
from orgs.keys import KeyInfo
from orgs.models import Membership, User

pytestmark = pytest.mark.django_db
PARTS = ("", "node.csv", "node.json", "gpus/0/", "?part=events")


def only_node(org: Any, name: str = "sim-0001") -> int:
    with tenant_context(org):
        return Node.objects.get(name=name).pk


def damage(org: Any, code: str = "GPU_MISSING", place: int = 3, since_ms: int | None = None) -> str:
    """Make a GPU of the node down in its live summary, as the fold would; the UUID of that GPU."""
    with tenant_context(org):
        live = NodeLive.objects.get(node__name="sim-0001")
        subject = next(s for s in live.summary["subjects"] if s["subject"] == f"g{place}")
        since = since_ms or to_ms(timezone.now()) - 600_000
        condition = {"code": code, "party": "infrastructure", "since_ms": since, "last_ms": since, "weight": 0}
        subject.update(nominal=0, lower=0, upper=0, certain=[code], state="observed")
        subject["conditions"] = [{**condition, "certain": True}]
        live.save(update_fields=["summary"])
        uuid: str = subject["device"]
        return uuid


def store(org: Any, **content: Any) -> None:
    """Receive and fold one batch."""
    key = KeyInfo(0, "test", frozenset({"ingest"}), "", None, org.pk, org.slug, org.schema_name)
    receive(packed(**content)[0], key, {})
    with tenant_context(org):
        fold_waiting(timezone.now())


# Who may see them


@pytest.mark.parametrize("part", PARTS)
def test_nobody_is_led_to_the_login_and_a_stranger_finds_nothing(
    part: str, beta: Any, ada: Any, bo: Any, client_of: Any, lan: Any
) -> None:
    fill(beta, nodes=1, minutes=3)
    url = f"/o/{beta.slug}/nodes/{only_node(beta)}/{part}"
    assert client_of(None).get(url).status_code == 302
    assert client_of(ada).get(url).status_code == 404
    assert client_of(bo).get(url).status_code == 200


@pytest.mark.parametrize("part", PARTS)
def test_a_member_finds_no_node_of_another_org_under_their_own(
    part: str, alpha: Any, beta: Any, ada: Any, client_of: Any, lan: Any
) -> None:
    fill(beta, nodes=1, minutes=3)
    assert client_of(ada).get(f"/o/alpha/nodes/{only_node(beta)}/{part}").status_code == 404


@pytest.mark.parametrize("part", PARTS)
def test_whoever_may_see_one_cluster_sees_no_node_of_another(part: str, alpha: Any, client_of: Any, lan: Any) -> None:
    fill(alpha, cluster="open-to-cleo", nodes=1, minutes=3)
    with tenant_context(alpha):
        theirs = Node.objects.get().pk
    fill(alpha, cluster="not-for-cleo", nodes=1, minutes=3)
    with tenant_context(alpha):
        hidden = Node.objects.exclude(pk=theirs).get().pk
    cleo = User.objects.create_user("cleo@alpha.example")
    Membership.objects.create(user=cleo, org=alpha, role=Membership.Role.VIEWER, clusters=["open-to-cleo"])
    assert client_of(cleo).get(f"/o/alpha/nodes/{theirs}/{part}").status_code == 200
    assert client_of(cleo).get(f"/o/alpha/nodes/{hidden}/{part}").status_code == 404


@pytest.mark.parametrize("url", ["nodes/999999/", "nodes/99999999999999999999/", "nodes/999999/gpus/0/"])
def test_an_unknown_node_is_not_found(url: str, alpha: Any, ada: Any, client_of: Any) -> None:
    assert client_of(ada).get(f"/o/alpha/{url}").status_code == 404


# What the node page says


def test_a_healthy_node_says_so_and_asks_for_nothing(alpha: Any, ada: Any, client_of: Any) -> None:
    fill(alpha, nodes=1, minutes=5)
    page = text_of(client_of(ada).get(f"/o/alpha/nodes/{only_node(alpha)}/"))
    assert "All 8 GPUs available." in page
    assert "There is nothing to do." in page
    assert "None in this period." in page


def test_a_broken_gpu_is_named_by_host_index_and_uuid_with_reason_since_and_next_step(
    alpha: Any, ada: Any, client_of: Any
) -> None:
    fill(alpha, nodes=1, minutes=5)
    uuid = damage(alpha)
    page = client_of(ada).get(f"/o/alpha/nodes/{only_node(alpha)}/")
    words = text_of(page)
    assert "GPU 3 of sim-0001: GPU missing" in words
    assert uuid in page.content.decode()
    assert "infrastructure" in words
    assert "Next: Reboot" in words
    assert "For 10 min" in words


def test_a_silent_node_is_unknown_and_said_to_be_silent(alpha: Any, ada: Any, client_of: Any) -> None:
    fill(alpha, nodes=1, minutes=5, until=timezone.now() - timedelta(minutes=30))
    words = text_of(client_of(ada).get(f"/o/alpha/nodes/{only_node(alpha)}/"))
    assert "sim-0001 is silent" in words
    assert "8 unknown" in words
    assert "nothing to do" not in words


def test_it_shows_agent_clock_sources_values_and_identity(alpha: Any, ada: Any, client_of: Any) -> None:
    fill(alpha, nodes=1, minutes=5)
    words = text_of(client_of(ada).get(f"/o/alpha/nodes/{only_node(alpha)}/"))
    for expected in ("kernel log: read", "Clock", "Backlog", "Dropped nothing", "name:sim-0001", "SM clock, MHz"):
        assert expected in words
    assert "./goodput agent run --endpoint http://localhost/v1/batches --cluster sim --node-id sim-0001" in words
    assert "none in this period" in words  # swaps


def test_a_blind_kernel_log_stands_in_the_page_not_in_a_footnote(alpha: Any, ada: Any, client_of: Any) -> None:
    now_ms = int(timezone.now().timestamp() * 1000)
    blind = {"nvml": "ok", "ib": "absent", "kmsg": "blind"}
    store(alpha, intervals=[interval(now_ms - 75_000 + k * SLOT_MS, sources=blind) for k in range(4)])
    node_id = only_node(alpha, "n1")
    words = text_of(client_of(ada).get(f"/o/alpha/nodes/{node_id}/"))
    assert "The kernel log is not readable: Xids cannot be seen." in words


def test_keys_that_the_contract_does_not_list_are_found_at_any_depth() -> None:
    raw = msgspec.msgpack.encode(
        {
            "cluster_id": "c",
            "future": 1,
            "intervals": [{"ts": 1, "gpus": [{"uuid": "u", "aura": 3}], "clock": {"x": 1}}],
        }
    )
    assert unknown_keys(raw) == ["aura", "future", "x"]


def test_the_download_holds_one_line_per_gpu_of_what_the_page_shows(alpha: Any, ada: Any, client_of: Any) -> None:
    fill(alpha, nodes=1, minutes=5)
    damage(alpha)
    node_id = only_node(alpha)
    lines = list(csv.DictReader(io.StringIO(client_of(ada).get(f"/o/alpha/nodes/{node_id}/node.csv").content.decode())))
    assert [line["gpu"] for line in lines] == [str(index) for index in range(8)]
    assert [line["state"] for line in lines].count("down") == 1
    body = client_of(ada).get(f"/o/alpha/nodes/{node_id}/node.json").json()
    assert [gpu["index"] for gpu in body["gpus"]] == list(range(8))
    assert body["gpus"][3]["state"] == "down"


def test_hostile_names_stay_inert(alpha: Any, ada: Any, client_of: Any) -> None:
    fill(alpha, cluster="=cmd|' /C calc'!A0<script>alert(1)</script>", nodes=1, minutes=3)
    node_id = only_node(alpha)
    for path in (f"nodes/{node_id}/", f"nodes/{node_id}/gpus/0/"):
        assert "<script>alert" not in client_of(ada).get(f"/o/alpha/{path}").content.decode()
    line = next(csv.DictReader(io.StringIO(client_of(ada).get(f"/o/alpha/nodes/{node_id}/node.csv").content.decode())))
    assert line["cluster"].startswith("'=")


def test_only_the_living_part_is_sent_for_a_refresh(alpha: Any, ada: Any, client_of: Any) -> None:
    fill(alpha, nodes=1, minutes=3)
    part = client_of(ada).get(f"/o/alpha/nodes/{only_node(alpha)}/", headers={"hx-request": "true"}).content.decode()
    assert "<html" not in part
    assert 'id="live"' in part


def test_a_part_that_is_opened_without_scripts_is_a_whole_page(alpha: Any, ada: Any, client_of: Any) -> None:
    fill(alpha, nodes=1, minutes=3)
    client, node = client_of(ada), f"nodes/{only_node(alpha)}/"
    for path, words in (("?part=days", "today</span>"), (f"{node}?part=days", "today</span>"), (node, "")):
        page = client.get(f"/o/alpha/{path}").content.decode()
        assert "<h1>" in page
        assert words in page
        for part in re.findall(r'hx-get="([^"]+part=\w+)"', page):
            assert f'href="{part}#' in page  # the link of whoever has no scripts
    whole = client.get(f"/o/alpha/{node}?period=7d&part=events").content.decode()
    assert "<h1>" in whole
    assert "the last 24 h of the period" in whole
    assert 'id="period-7d" href="' in whole
    for path in ("?part=days", f"{node}?part=days", f"{node}?part=events"):
        part = client.get(f"/o/alpha/{path}", headers={"hx-request": "true"}).content.decode()
        assert "<h1>" not in part
        assert "<h2>" in part


def test_a_page_asks_the_database_a_bounded_number_of_times(
    alpha: Any, ada: Any, client_of: Any, django_assert_max_num_queries: Any
) -> None:
    fill(alpha, nodes=2, minutes=10)
    client, node_id = client_of(ada), only_node(alpha)
    for path, most in ((f"nodes/{node_id}/", 42), (f"nodes/{node_id}/gpus/1/", 45)):
        with django_assert_max_num_queries(most):
            assert client.get(f"/o/alpha/{path}").status_code == 200


def test_every_xid_has_a_plain_meaning() -> None:
    for code in (13, 31, 48, 63, 64, 74, 79, 94, 95, 119, 120, 154, 9999):
        rule = rule_of("xid", code)
        assert rule is not None
        assert rule.explanation


def test_an_event_is_told_by_the_rule_that_the_fold_takes() -> None:
    fatal, plain = rule_of("xid", 144, "fatal"), rule_of("xid", 144, "nonfatal")
    assert fatal is load_rules().xid(144, "fatal")
    assert plain is load_rules().xid(144, "nonfatal")
    assert fatal is not plain


def test_the_fleet_page_leads_to_the_node_and_the_gpu(alpha: Any, ada: Any, client_of: Any) -> None:
    fill(alpha, nodes=1, minutes=3)
    node_id = only_node(alpha)
    page = client_of(ada).get(f"/o/alpha/?open={node_id}").content.decode()
    assert f'href="/o/alpha/nodes/{node_id}/"' in page
    assert f'href="/o/alpha/nodes/{node_id}/gpus/0/"' in page
    assert 'href="/o/alpha/incidents/?state=open"' in page


# Its kernel events and its agents


def test_devices_are_those_of_the_hour(alpha: Any) -> None:
    fill(alpha, nodes=1, minutes=5)
    with tenant_context(alpha):
        hour = NodeHour.objects.order_by("-hour").first()
        assert hour is not None
        found = devices_at([(hour.node_id, hour.hour), (hour.node_id, 1)])
    assert set(found) == {(hour.node_id, hour.hour)}
    assert sorted(found[hour.node_id, hour.hour]) == [f"g{i}" for i in range(8)]


def test_kernel_events_are_listed_with_host_index_uuid_and_meaning(alpha: Any, ada: Any, client_of: Any) -> None:
    now_ms = int(timezone.now().timestamp() * 1000)
    event = {"kind": "xid", "code": 79, "pci_bus_id": "0000:11:00.0", "at": now_ms - 70_000, "count": 3}
    store(
        alpha, intervals=[interval(now_ms - 75_000 + k * SLOT_MS, events=[event] if k == 1 else []) for k in range(4)]
    )
    words = text_of(client_of(ada).get(f"/o/alpha/nodes/{only_node(alpha, 'n1')}/?part=events"))
    assert "Xid 79: GPU fell off the PCIe bus" in words
    assert "GPU 1 GPU-1" in words
    assert "× 3" in words
    assert "infrastructure" in words


def test_an_unknown_xid_asks_for_a_look(alpha: Any, ada: Any, client_of: Any) -> None:
    now_ms = int(timezone.now().timestamp() * 1000)
    event = {"kind": "xid", "code": 9999, "pci_bus_id": "0000:11:00.0", "at": now_ms - 70_000}
    store(
        alpha, intervals=[interval(now_ms - 75_000 + k * SLOT_MS, events=[event] if k == 1 else []) for k in range(4)]
    )
    url = f"/o/alpha/nodes/{only_node(alpha, 'n1')}/?part=events"
    words = text_of(client_of(ada).get(url))
    assert "Asks for a look" in words
    assert "XID_9999" in words.partition("Kernel events")[0]
    assert "GPU 1 GPU-1" in words.partition("Kernel events")[0]
    with tenant_context(alpha):
        (line,) = list_reviews(only_node(alpha, "n1"), now_ms // SLOT_MS - 240, (now_ms // SLOT_MS) + 1)
    assert (line.place, line.uuid, line.code, line.end_slot - line.first_slot) == (1, "GPU-1", "XID_9999", 1)


def test_two_agents_that_agree_are_named_on_the_node_and_under_needs_attention(
    alpha: Any, ada: Any, client_of: Any
) -> None:
    now_ms = int(timezone.now().timestamp() * 1000)
    samples = [interval(now_ms - 75_000 + k * SLOT_MS) for k in range(4)]
    store(alpha, agent_id="first", intervals=samples)
    node = f"/o/alpha/nodes/{only_node(alpha, 'n1')}/"
    assert "reported by" not in text_of(client_of(ada).get(node))
    store(alpha, agent_id="second", intervals=samples)
    for url in (node, "/o/alpha/"):
        words = text_of(client_of(ada).get(url))
        assert "n1 is reported by 2 agents" in words, url
        assert "two agents" in words, url
    with tenant_context(alpha):
        summary = NodeLive.objects.get(node__name="n1").summary
    assert read_plain(json.dumps(summary)) is None
    assert {one["state"] for one in summary["subjects"]} == {"observed"}  # a mark, and no verdict


def test_a_machine_that_booted_earlier_than_the_known_one_is_silent_and_the_page_says_why(
    alpha: Any, ada: Any, client_of: Any
) -> None:
    """A simulated past and another machine of its name: the batches are accepted and none of their samples is taken."""
    now_ms = int(timezone.now().timestamp() * 1000)

    def told(from_ms: int, up_ms: int, **more: Any) -> None:
        samples = [interval(from_ms + k * SLOT_MS, boottime=up_ms + k * SLOT_MS) for k in range(4)]
        store(alpha, intervals=samples, boot_at=from_ms - up_ms, **more)

    told(now_ms - 600_000, 3_600_000, agent_id="past", boot_id="later")
    node = f"/o/alpha/nodes/{only_node(alpha, 'n1')}/"
    assert "earlier boot" not in text_of(client_of(ada).get(node))
    told(now_ms - 60_000, 86_400_000, agent_id="machine", boot_id="earlier")
    for url in (node, "/o/alpha/"):
        words = text_of(client_of(ada).get(url))
        assert "n1 is silent" in words, url
        assert "began before the one that is known" in words, url
        assert "Give each machine a name of its own" in words, url


def test_batches_without_events_are_not_decoded() -> None:
    quiet, loud = packed(), packed(intervals=[interval(1, xids=[{"code": 79}])])
    assert EVENT_KEYS.search(gunzip(quiet[0])) is None
    assert EVENT_KEYS.search(gunzip(loud[0])) is not None


# The clusters of the settings


def test_settings_list_clusters_and_nodes_with_first_and_last_seen(
    alpha: Any, beta: Any, ada: Any, client_of: Any, lan: Any
) -> None:
    fill(alpha, cluster="open-to-cleo", nodes=2, minutes=3)
    fill(alpha, cluster="not-for-cleo", nodes=1, minutes=3)
    words = text_of(client_of(ada).get("/o/alpha/settings/clusters/"))
    for expected in ("open-to-cleo simulated 2 nodes", "not-for-cleo", "name:sim-0002", "0.1.0+sim"):
        assert expected in words
    cleo = User.objects.create_user("cleo@alpha.example")
    Membership.objects.create(user=cleo, org=alpha, role=Membership.Role.VIEWER, clusters=["open-to-cleo"])
    seen = text_of(client_of(cleo).get("/o/alpha/settings/clusters/"))
    assert "open-to-cleo" in seen
    assert "not-for-cleo" not in seen
    assert client_of(ada).get("/o/beta/settings/clusters/").status_code == 404
    assert client_of(None).get("/o/alpha/settings/clusters/").status_code == 302
