"""From the inbox to node hours: the same facts give the same rows, whatever the order and however often they come."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import psycopg
import pytest
from django.db import connection
from django.utils import timezone
from django_tenants.utils import tenant_context

from agent import wire
from fleet.domain.refold import refold
from fleet.domain.slots import SLOT_MS
from fleet.folding import fold_waiting
from fleet.ingest import receive
from fleet.models import BatchMark, Cluster, Inbox, Node, NodeHour, NodeLive, Waiting
from fleet.refolding import refold_dirty, refold_everything
from fleet.selectors_waiting import oldest_waiting, orgs_with_work
from fleet.services import remove_simulated
from fleet.simulation import Plan, uploads
from fleet.tests.bodies import interval, packed
from fleet.waiting import retry_failed
from orgs.keys import KeyInfo

pytestmark = pytest.mark.django_db
HOUR_MS = 3_600_000
FIRST_MS = 1_795_734_000_000  # 2026-11-26 23:00 UTC: a day's edge lies within, and the mixed month has faults then


def key_for(org: Any) -> KeyInfo:
    """An ingest key of an org, without a row."""
    return KeyInfo(0, "test", frozenset({"ingest"}), "", None, org.pk, org.slug, org.schema_name)


@pytest.fixture
def inside(alpha: Any) -> Iterator[Any]:
    """The test runs inside alpha's schema."""
    with tenant_context(alpha):
        yield alpha


def history(hours: int = 3, nodes: int = 2, seed: int = 11) -> list[bytes]:
    """Bodies of a simulated history, minute by minute."""
    plan = Plan("sim", nodes, FIRST_MS, FIRST_MS + hours * HOUR_MS, seed)
    return [body for body, _ in uploads(plan)]


def deliver(org: Any, bodies: list[bytes], every: int = 200) -> None:
    """Receive bodies and fold after each `every` of them, then what became dirty."""
    for start in range(0, len(bodies), every):
        for body in bodies[start : start + every]:
            receive(body, key_for(org), {})
        fold_waiting(timezone.now())
    while refold_dirty(timezone.now()):
        pass


def rows() -> dict[tuple[str, int], bytes]:
    """Every node hour as stored, by node name and hour."""
    return {(hour.node.name, hour.hour): bytes(hour.body) for hour in NodeHour.objects.select_related("node")}


def states() -> dict[str, bytes]:
    """Every node's newest state."""
    return {live.node.name: bytes(live.state) for live in NodeLive.objects.select_related("node")}


def forget() -> None:
    """Empty the org."""
    Cluster.objects.all().delete()
    with connection.cursor() as cursor:
        cursor.execute("delete from fleet_inbox")
        cursor.execute("delete from fleet_waiting")


def test_batches_become_node_hours_with_rollups_that_add_up(inside: Any) -> None:
    deliver(inside, history(hours=2, nodes=1))
    hours = list(NodeHour.objects.order_by("hour"))
    assert [hour.hour for hour in hours] == [FIRST_MS // HOUR_MS, FIRST_MS // HOUR_MS + 1]
    for hour in hours:
        states = hour.observed_s + hour.edge_s + hour.pending_s + hour.contested_s + hour.held_s + hour.unknown_s
        assert states == hour.gpus * 3600 == 8 * 3600
        assert hour.lower_sum >= hour.nominal_sum  # the lower loss credits the provider with every doubt
    assert hours[0].is_final
    assert hours[0].unknown_s == 0
    assert Waiting.objects.count() == 0
    assert oldest_waiting([inside]) is None


def test_shuffled_and_duplicated_delivery_gives_identical_rows(inside: Any) -> None:
    bodies = history()
    deliver(inside, bodies)
    expected, expected_states = rows(), states()
    assert len(expected) == 6
    for seed in (1, 2):
        forget()
        mixed = bodies + random.Random(seed).sample(bodies, len(bodies) * 3 // 10)
        random.Random(seed).shuffle(mixed)
        deliver(inside, mixed, every=45)
        assert rows() == expected
        assert states() == expected_states
        assert Inbox.objects.count() == len(bodies)


def test_refold_gives_identical_rows(inside: Any) -> None:
    bodies = history(seed=12)
    random.Random(5).shuffle(bodies)
    deliver(inside, bodies, every=100)
    expected, expected_states = rows(), states()
    told: list[tuple[int, int]] = []
    waiting: list[tuple[int, int]] = []

    def begun() -> None:  # from here on other processes may help: nothing is left but what waits for them
        waiting.append((NodeHour.objects.count(), NodeLive.objects.filter(dirty_hour__isnull=False).count()))

    count = refold_everything(timezone.now(), lambda done, of: told.append((done, of)), begun)
    assert count == len(bodies)
    nodes = Node.objects.count()
    assert waiting == [(0, nodes)]
    assert told[-1] == (nodes, nodes)
    assert rows() == expected
    assert states() == expected_states


def test_a_late_batch_is_folded_into_its_own_hour(inside: Any) -> None:
    bodies = history(hours=2, nodes=1)
    late = bodies.pop(30)
    deliver(inside, bodies)
    before = NodeHour.objects.order_by("hour").first()
    deliver(inside, [late])
    after = NodeHour.objects.order_by("hour").first()
    assert before is not None
    assert after is not None
    assert before.unknown_s > 0  # the missing minute was unknown, not healthy and not down
    assert after.unknown_s == 0
    assert before.down_s == after.down_s


def test_a_late_batch_folds_its_own_time_again_and_not_all_that_came_after(
    inside: Any, django_assert_max_num_queries: Any
) -> None:
    first = (FIRST_MS // HOUR_MS) * HOUR_MS + SLOT_MS // 2
    bodies = [packed(first_ts=first + minute * 60_000)[0] for minute in range(8 * 60)]
    late = bodies.pop(30)
    deliver(inside, bodies)
    receive(late, key_for(inside), {})
    fold_waiting(timezone.now())
    live = NodeLive.objects.get()
    assert live.dirty_hour == live.dirty_through == FIRST_MS // HOUR_MS
    before = states()
    with django_assert_max_num_queries(42):  # eight hours would take a dozen more
        assert refold_dirty(timezone.now()) == 1
    assert states() == before  # its closing state was met again: the newest one stands
    live.refresh_from_db()
    assert live.dirty_hour is None
    assert live.dirty_through is None
    expected = rows()
    refold_everything(timezone.now())
    assert rows() == expected


def test_a_late_batch_that_stands_before_the_hours_that_it_says_is_found_there(inside: Any, monkeypatch: Any) -> None:
    """A machine's clock is hours ahead and nobody sets it; what places its samples are the receipts alone."""
    begins: list[int] = []
    monkeypatch.setattr("fleet.domain.refold.refold", lambda *a, **more: begins.append(a[1]) or refold(*a, **more))
    began = (FIRST_MS // HOUR_MS) * HOUR_MS - 10**7
    bodies = []
    for seq, real, ahead, receipt in ((1, 0, 2 * HOUR_MS, 0), (2, 2 * HOUR_MS, 2 * HOUR_MS, HOUR_MS)):
        first = (FIRST_MS // HOUR_MS) * HOUR_MS + 60_000 + real
        intervals = [
            interval(ts + ahead, boottime=ts - began, mono=ts - began, clock={"status": "unsynchronised"})
            for ts in range(first, first + 60_000, SLOT_MS)
        ]
        sync = {"received_at": first - 15_000 + receipt, "boottime": first - 15_000 - began}
        bodies.append(packed(intervals=intervals, seq=seq, boot_id="b1", sync=sync)[0])
    deliver(inside, bodies[::-1], every=1)
    assert begins == sorted(begins, reverse=True)
    assert len(set(begins)) > 1
    expected, expected_states = rows(), states()
    refold_everything(timezone.now())
    assert (rows(), states()) == (expected, expected_states)


def test_a_claim_of_evicted_batches_hides_nothing_that_was_delivered(inside: Any, beta: Any) -> None:
    """Attack E09: the same history, once with the agent's word that it had to drop everything."""
    bodies = history(hours=1, nodes=1, seed=5)
    deliver(inside, bodies)
    expected = rows()
    with tenant_context(beta):
        for body in bodies:
            receive(body, key_for(beta), {wire.HEADER_DROPPED: str(len(bodies))})
        while fold_waiting(timezone.now()) or refold_dirty(timezone.now()):
            pass
        assert rows() == expected
        assert Inbox.objects.count() == len(bodies)
        assert Node.objects.get().dropped_total == len(bodies), "told, beside facts that stand"


def test_where_many_orgs_have_work_their_batches_gather_for_a_while(inside: Any, beta: Any, monkeypatch: Any) -> None:
    from fleet import tasks

    sent: list[int] = []
    monkeypatch.setattr(tasks.fold_org, "apply_async", lambda args, **_: sent.append(*args))
    monkeypatch.setattr(tasks, "FEW_ORGS", 1)
    receive(packed()[0], key_for(inside), {})
    assert (tasks.sweep(), sent) == (1, [inside.pk]), "few have work: at once"
    receive(packed()[0], key_for(beta), {})
    sent.clear()
    assert (tasks.sweep(), sent) == (0, []), "many have: not before it waited"
    Waiting.objects.update(received_at=timezone.now() - timedelta(seconds=tasks.GATHER_SECONDS))
    assert (tasks.sweep(), sent) == (1, [inside.pk])
    with tenant_context(beta):
        NodeLive.objects.all().delete()
        with connection.cursor() as cursor:
            cursor.execute("truncate fleet_whole")
    sent.clear()
    assert (tasks.sweep(), sorted(sent)) == (2, sorted([inside.pk, beta.pk])), "a crash is mended at once"


def test_the_turn_of_an_org_with_few_batches_takes_few_statements(inside: Any, monkeypatch: Any) -> None:
    """Where 100 orgs report, what a turn costs before its first batch is most of what it costs."""
    from fleet.tasks import fold_org

    said: list[str] = []
    real = psycopg.Cursor.execute

    def execute(self: Any, query: Any, *values: Any, **how: Any) -> Any:
        said.append(str(query))
        return real(self, query, *values, **how)

    first_ms = (int(time.time()) // 3600 - 1) * HOUR_MS + 7500  # of a day whose sums are not kept yet

    def turn(seq: int) -> list[str]:
        receive(packed(agent_id="a", seq=seq, first_ts=first_ms + seq * 60_000)[0], key_for(inside), {})
        said.clear()
        assert fold_org(inside.pk) == 1
        return [text for text in said if "SAVEPOINT" not in text and "search_path" not in text]

    turn(0)
    monkeypatch.setattr(psycopg.Cursor, "execute", execute)
    statements = turn(1)
    assert 0 < len(statements) <= 15, "\n".join(statements)


def test_a_batch_that_breaks_the_fold_is_set_aside_and_stops_nobody(inside: Any) -> None:
    receive(packed(node_id="good")[0], key_for(inside), {})
    receive(packed(node_id="bad")[0], key_for(inside), {})
    with connection.cursor() as cursor:
        cursor.execute("update fleet_inbox set body = 'not gzip' where node = 'bad'")
    assert orgs_with_work([inside]) == [inside.pk]
    fold_waiting(timezone.now())
    assert NodeHour.objects.get().node.name == "good"
    bad = Inbox.objects.get(node="bad")
    mark = BatchMark.objects.get(sha256=bad.sha256)
    assert (mark.reason, bool(mark.error)) == ("failed", True)
    assert Waiting.objects.count() == 0
    assert orgs_with_work([inside]) == []
    assert retry_failed() == 1
    assert bytes(Waiting.objects.get().sha256) == bytes(bad.sha256)
    fold_waiting(timezone.now())
    assert BatchMark.objects.get().reason == "failed"


def test_a_poisonous_batch_does_not_take_its_neighbours_along(inside: Any) -> None:
    first = (FIRST_MS // HOUR_MS) * HOUR_MS + SLOT_MS // 2
    for minute in range(10):
        receive(packed(first_ts=first + minute * 60_000)[0], key_for(inside), {})
    poisoned = Inbox.objects.all()[4]
    with connection.cursor() as cursor:
        cursor.execute("update fleet_inbox set body = 'not gzip' where sha256 = %s", [poisoned.sha256])
    fold_waiting(timezone.now())
    assert [bytes(one.sha256) for one in BatchMark.objects.filter(reason="failed")] == [bytes(poisoned.sha256)]
    assert Waiting.objects.count() == 0
    hour = NodeHour.objects.get()
    assert 9 * 60 * hour.gpus - 60 * hour.gpus <= hour.observed_s < 10 * 60 * hour.gpus


def test_a_node_whose_clock_runs_ahead_is_listed_and_not_judged(inside: Any) -> None:
    ahead = int(time.time() * 1000) + 3 * HOUR_MS
    receive(packed(first_ts=ahead)[0], key_for(inside), {})
    fold_waiting(timezone.now())
    assert BatchMark.objects.get().reason == "suspect_clock"
    assert NodeHour.objects.count() == 0
    assert NodeLive.objects.get().last_sample_at is None


def test_conflicting_seq_is_kept_and_not_folded(inside: Any) -> None:
    from fleet.errors import SeqConflict

    receive(packed(agent_id="a", seq=1)[0], key_for(inside), {})
    with pytest.raises(SeqConflict):
        receive(packed(agent_id="a", seq=1, node_id="n2")[0], key_for(inside), {})
    fold_waiting(timezone.now())
    assert BatchMark.objects.get(sha256=Inbox.objects.get(node="n2").sha256).reason == "seq_conflict"
    assert not Node.objects.filter(name="n2").exists()


def test_a_removed_demo_stays_removed_until_a_real_node_takes_its_name(inside: Any) -> None:
    simulated = {"cluster_id": "demo", "agent_version": "1+sim"}
    receive(packed(**simulated)[0], key_for(inside), {})
    fold_waiting(timezone.now())
    demo = Cluster.objects.get(name="demo")
    assert demo.is_simulated
    assert remove_simulated(demo, actor="test", org=inside)
    assert Node.objects.count() == 0
    assert Inbox.objects.count() == 0
    receive(packed(**simulated, node_id="again")[0], key_for(inside), {})
    fold_waiting(timezone.now())
    assert Node.objects.count() == 0
    receive(packed(cluster_id="demo")[0], key_for(inside), {})
    fold_waiting(timezone.now())
    demo.refresh_from_db()
    assert not demo.is_simulated
    assert demo.removed_at is None
    assert not remove_simulated(demo, actor="test", org=inside)
    assert Node.objects.count() == 1


def test_silence_is_unknown_and_neither_healthy_nor_down(inside: Any) -> None:
    first = (FIRST_MS // HOUR_MS) * HOUR_MS + SLOT_MS // 2
    receive(packed(first_ts=first)[0], key_for(inside), {})
    receive(packed(first_ts=first + 30 * 60_000)[0], key_for(inside), {})
    fold_waiting(timezone.now())
    hour = NodeHour.objects.get()
    assert hour.down_s == 0
    assert hour.observed_s < hour.gpus * 3600 // 10
    assert hour.unknown_s + hour.observed_s == hour.gpus * 3600
