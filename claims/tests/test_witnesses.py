"""Whom the server heard of a node's peers, day by day: the same as in one look, looked up once for a past day."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from claims import witnesses
from claims.models import PeerDay
from claims.services import Actor
from claims.witnesses import witnessed_spans
from fleet.folding import fold_waiting
from fleet.ingest import receive
from fleet.models import Node, ProbeRun, ProbeTarget
from fleet.peers import peer_spans
from fleet.tests.bodies import packed
from fleet.tests.test_folding import key_for

pytestmark = pytest.mark.django_db
DAY = datetime(2026, 10, 5, tzinfo=UTC)
NOW = DAY + timedelta(days=10)
#: Seconds from the first midnight at which n2 was heard: over midnights, alone, and with a break.
HEARD = (-3600, -3480, -3340, -120, 10, 140, 280, 43_200, 86_280, 86_410, 86_540, 172_790, 172_930)


def ms(at: datetime) -> int:
    return round(at.timestamp() * 1000)


@pytest.fixture
def nodes(actor: Actor) -> list[Node]:
    """n1 under a probe, and n2, which was heard at `HEARD`; n1's own batches count for nothing."""
    received = []
    for seq, second in enumerate(HEARD):
        for name in ("n2", "n1") if second == 43_200 else ("n2",):
            at = DAY + timedelta(seconds=second)
            ts = ms(at) // 15_000 * 15_000 - 60_000 + 7_500
            body, sha256 = packed(cluster_id="c1", node_id=name, seq=seq, agent_id=name, first_ts=ts)
            receive(body, key_for(actor.org), {})
            received.append((at, bytes.fromhex(sha256)))
    with connection.cursor() as cursor:
        cursor.execute("alter table fleet_inbox disable trigger user")
        cursor.executemany("update fleet_inbox set received_at = %s where sha256 = %s", received)
        cursor.execute("alter table fleet_inbox enable trigger user")
    while fold_waiting(NOW):
        pass
    node = Node.objects.get(name="n1")
    target = ProbeTarget.objects.create(node=node, address="192.0.2.1", port=22, author="x", from_at=DAY)
    first, last = DAY - timedelta(days=1), DAY + timedelta(days=3)
    ProbeRun.objects.create(target=target, node=node, outcome="ok", first_at=first, last_at=last, rounds=9)
    return [node]


def both(nodes: list[Node], now: datetime = NOW) -> Any:
    return witnessed_spans(nodes, ms(DAY - timedelta(days=31)), ms(DAY + timedelta(days=31)), ms(now))


def test_day_by_day_is_the_same_as_in_one_look(nodes: list[Node]) -> None:
    first, last = ms(DAY - timedelta(days=1)), ms(DAY + timedelta(days=3))
    whole = witnesses.inner_slots(peer_spans(nodes[0].pk, first, last) or ())
    assert len(whole) >= 4
    assert both(nodes) == {"n1": whole}
    assert both(nodes) == {"n1": whole}  # out of what was kept


def test_a_past_day_is_looked_up_once_and_a_day_that_runs_each_time(nodes: list[Node]) -> None:
    both(nodes, DAY + timedelta(days=1, minutes=5))
    assert sorted(PeerDay.objects.values_list("day", flat=True)) == [ms(DAY) // 86_400_000 - back for back in (2, 1)]
    both(nodes)
    with CaptureQueriesContext(
        connection,
    ) as asked:
        both(nodes)
    assert not any("recursive theirs" in one["sql"] for one in asked.captured_queries)


def test_a_node_that_took_anothers_place_has_other_peers(nodes: list[Node]) -> None:
    both(nodes)
    Node.objects.create(cluster=nodes[0].cluster, identity="name:n3", name="n3")
    Node.objects.filter(name="n2").update(merged_into=nodes[0])
    assert both(nodes) == {}


def test_a_month_and_its_margins_are_witnessed_to_their_end(nodes: list[Node]) -> None:
    """A silence is witnessed for forty days at most; a month with its margins is longer."""
    ProbeRun.objects.update(first_at=DAY - timedelta(days=50))
    found = witnessed_spans(nodes, ms(DAY - timedelta(days=45)), ms(DAY + timedelta(days=17)), ms(NOW))
    assert found["n1"][-1][1] * 15_000 > ms(DAY) + 172_000_000
