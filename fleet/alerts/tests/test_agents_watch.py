"""A node that two agents report is told once, whether or not they agree; one that takes another's place is not."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import pytest
from django.utils import timezone

from fleet.agents.counts import Count, add, hour_of_receipt
from fleet.alerts import agents_watch
from fleet.alerts.agents_watch import watch_agents
from fleet.alerts.models import Thread
from fleet.alerts.tests.conftest import HttpSink
from fleet.models import Cluster, Node
from fleet.tasks import close_silence_of_org

pytestmark = pytest.mark.django_db
Make = Callable[..., Any]


def node(name: str, cluster: str = "main") -> Node:
    """A node."""
    found = Cluster.objects.get_or_create(name=cluster)[0]
    return Node.objects.create(cluster=found, identity=f"name:{cluster}-{name}", name=name)


def heard(one: Node, agent: str, now: datetime, since_s: int, until_s: int = 0) -> None:
    """An agent's samples of a node reach from so many seconds ago to so many seconds ago."""
    count = Count()
    at = now - timedelta(seconds=until_s)
    count.add("valid", at, "0.9", int((now.timestamp() - since_s) * 1000), int(at.timestamp() * 1000))
    add({(agent, one.pk, hour_of_receipt(at)): count})


def test_two_agents_are_told_once_grow_and_end(inside: Any, http_sink: HttpSink, channel_of: Make, tell: Make) -> None:
    channel_of("webhook", url=http_sink.url, kinds=["agents"], hold_seconds=0)
    now = timezone.now()
    n1, n2 = node("n1"), node("n2")
    for agent in ("a", "b"):
        heard(n1, agent, now, 600)
    heard(n2, "c", now, 600)
    assert watch_agents(now) == 1
    assert watch_agents(now) == 0  # the first one is not routed yet
    tell()
    assert watch_agents(now) == 0
    told = http_sink.received[0].json
    assert told["title"] == "1 node is reported by more than one agent in main"
    assert (told["severity"], told["facts"]["nodes"]) == ("warning", ["n1"])
    heard(n2, "d", now, 600)
    assert watch_agents(now) == 1
    tell()
    assert watch_agents(now + timedelta(minutes=4)) == 1
    tell()
    assert [one.json["what"] for one in http_sink.received] == ["opened", "worsened", "resolved"]
    assert not Thread.objects.get().is_open


def test_more_nodes_than_are_kept_by_name_are_told_once_too(
    inside: Any, http_sink: HttpSink, channel_of: Make, tell: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(agents_watch, "NAMES_KEPT", 1)
    channel_of("webhook", url=http_sink.url, kinds=["agents"], hold_seconds=0)
    now = timezone.now()
    nodes = [node(name) for name in ("n1", "n2", "n3")]
    for agent in ("a", "b"):
        for one in nodes[:2]:
            heard(one, agent, now, 600)
    assert watch_agents(now) == 1
    tell()
    assert watch_agents(now) == 0
    for agent in ("a", "b"):
        heard(nodes[2], agent, now, 600)
    assert watch_agents(now) == 1
    tell()
    assert watch_agents(now) == 0
    assert [one.json["facts"] for one in http_sink.received] == [
        {"doubled": 2, "nodes": ["n1"]},
        {"doubled": 3, "nodes": ["n1"]},
    ]


def test_an_agent_that_takes_anothers_place_is_none_too_many(inside: Any) -> None:
    now = timezone.now()
    n1 = node("n1")
    heard(n1, "old", now, 3600, 100)
    heard(n1, "new", now, 110)
    assert watch_agents(now) == 0


def test_the_minutes_job_looks_for_them(inside: Any) -> None:
    now = timezone.now()
    n1 = node("n1")
    for agent in ("a", "b"):
        heard(n1, agent, now, 600)
    close_silence_of_org(inside.pk)
    assert watch_agents(now) == 0  # told already, not routed yet
    from fleet.alerts.models import Alert

    assert Alert.objects.get().kind == "agents"
