"""A cluster that falls silent is one thread: told once, again when more nodes go, and when all are back."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import pytest
from django.utils import timezone

from fleet.alerts.models import Alert, Thread
from fleet.alerts.silence_watch import watch_silence
from fleet.alerts.tests.conftest import HttpSink
from fleet.models import Cluster, Node, NodeLive

pytestmark = pytest.mark.django_db
Make = Callable[..., Any]


def nodes(cluster: str, **minutes_ago: float) -> dict[str, NodeLive]:
    """Nodes that sent their last sample so long ago."""
    found = Cluster.objects.get_or_create(name=cluster)[0]
    made = {}
    for name, ago in minutes_ago.items():
        node = Node.objects.create(cluster=found, identity=f"name:{cluster}-{name}", name=name)
        made[name] = NodeLive.objects.create(node=node, last_sample_at=timezone.now() - timedelta(minutes=ago))
    return made


def move(live: NodeLive, at: datetime) -> None:
    """Set a node's last sample."""
    NodeLive.objects.filter(pk=live.pk).update(last_sample_at=at)


def test_silence_is_told_once_grows_and_ends(inside: Any, http_sink: HttpSink, channel_of: Make, tell: Make) -> None:
    channel_of("webhook", url=http_sink.url, kinds=["silence"])
    made = nodes("main", n1=11, n2=1, n3=1, n4=60 * 24 * 8)
    nodes("other", m1=1)
    now = timezone.now()
    assert watch_silence(now) == 1
    assert watch_silence(now) == 0  # the first one is not routed yet
    assert tell() == 1
    assert watch_silence(now) == 0
    told = http_sink.received[0].json
    assert told["title"] == "1 of 3 node sends nothing in main"  # n4 was given back long ago
    assert (told["severity"], told["facts"]["nodes"]) == ("warning", ["n1"])
    for name in ("n2", "n3"):
        move(made[name], now - timedelta(minutes=12))
    assert watch_silence(now) == 1
    tell()
    assert http_sink.received[-1].json["severity"] == "critical"
    for live in made.values():
        move(live, now)
    assert watch_silence(now) == 1
    tell()
    assert [one.json["what"] for one in http_sink.received] == ["opened", "worsened", "resolved"]
    assert not Thread.objects.get().is_open
    assert watch_silence(now) == 0
    assert Alert.objects.count() == 3


def test_a_simulated_cluster_says_that_it_is_one(inside: Any) -> None:
    nodes("demo", n1=11)
    Cluster.objects.update(is_simulated=True)
    watch_silence(timezone.now())
    assert Alert.objects.get().title == "1 of 1 node sends nothing in demo (simulated)"


def test_a_removed_cluster_is_not_missed(inside: Any) -> None:
    nodes("demo", n1=11)
    Cluster.objects.update(removed_at=timezone.now())
    assert watch_silence(timezone.now()) == 0
