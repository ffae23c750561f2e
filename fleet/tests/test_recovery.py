"""After a crash the unlogged tables are empty; what is open comes back from the facts, byte for byte."""

from __future__ import annotations

import random
import threading
from typing import Any

import pytest
from django.db import connection, connections, transaction
from django.utils import timezone
from django_tenants.utils import tenant_context

from fleet.domain import state
from fleet.domain.slots import SLOT_MS
from fleet.folding import fold_chunk, fold_waiting
from fleet.ingest import receive
from fleet.models import BatchMark, DirtySpan, Node, NodeHour, NodeLive, Waiting
from fleet.recovery import is_whole, note_progress, recover
from fleet.refolding import refold_dirty, refold_node
from fleet.selectors_waiting import orgs_with_work, unfolded_before
from fleet.tasks import fold_org
from fleet.tests.bodies import packed
from fleet.tests.test_folding import FIRST_MS, HOUR_MS, deliver, forget, history, key_for, rows, states
from fleet.waiting import retry_failed

pytestmark = pytest.mark.django_db
UNLOGGED = ("fleet_waiting", "fleet_nodelive", "fleet_nodehour_open", "fleet_whole", "agents_agentrecent")


@pytest.fixture
def inside(alpha: Any) -> Any:
    """The test runs inside alpha's schema."""
    with tenant_context(alpha):
        yield alpha


def crash() -> None:
    """What PostgreSQL does to unlogged tables when it starts after a crash."""
    with connection.cursor() as cursor:
        cursor.execute("set constraints all immediate")
        cursor.execute(f"truncate {', '.join(UNLOGGED)}")
        cursor.execute("set constraints all deferred")


def settle() -> None:
    """What a worker does for an org until nothing is left."""
    recover(timezone.now())
    while fold_waiting(timezone.now()) or refold_dirty(timezone.now()):
        pass


def test_just_those_tables_are_unlogged_that_are_made_again(inside: Any) -> None:
    with connection.cursor() as cursor:
        cursor.execute(
            "select relname from pg_class where relnamespace = current_schema()::regnamespace"
            " and relpersistence = 'u' and relkind = 'r' order by 1"
        )
        assert [row[0] for row in cursor.fetchall()] == sorted(UNLOGGED)


def test_a_crash_loses_nothing_that_was_folded_or_received(inside: Any) -> None:
    bodies = history(hours=3, nodes=2, seed=21)
    deliver(inside, bodies)
    expected, expected_states = rows(), states()
    assert NodeHour.objects.filter(is_final=False).exists()
    summaries = {live.node.name: live.summary for live in NodeLive.objects.select_related("node")}
    crash()
    assert rows() != expected
    assert orgs_with_work([inside]) == [inside.pk]
    assert unfolded_before(10**6) == 2  # a report can't be issued meanwhile
    settle()
    assert is_whole()
    assert rows() == expected
    assert states() == expected_states
    assert {live.node.name: live.summary for live in NodeLive.objects.select_related("node")} == summaries
    assert orgs_with_work([inside]) == []
    assert recover(timezone.now()) is None


def test_what_waited_at_the_crash_is_folded_after_it(inside: Any) -> None:
    bodies = history(hours=3, nodes=2, seed=22)
    deliver(inside, bodies)
    expected = rows()
    for one in NodeLive.objects.all():
        one.node.delete()
    with connection.cursor() as cursor:
        cursor.execute("delete from fleet_inbox")
    cut = len(bodies) * 2 // 3
    deliver(inside, bodies[:cut])
    note_progress(timezone.now())
    for body in random.Random(3).sample(bodies[cut:], len(bodies) - cut):
        receive(body, key_for(inside), {})
    receive(packed(node_id="new")[0], key_for(inside), {})  # a node that no fold has met
    crash()
    settle()
    assert {key: body for key, body in rows().items() if key[0] != "new"} == expected
    assert NodeHour.objects.filter(node__name="new").exists()


def test_hours_that_were_dirty_at_the_crash_are_folded_after_it(inside: Any) -> None:
    bodies = history(hours=3, nodes=1, seed=23)
    deliver(inside, bodies)
    expected = rows()
    for one in NodeLive.objects.all():
        one.node.delete()
    with connection.cursor() as cursor:
        cursor.execute("delete from fleet_inbox")
    late = bodies.pop(10)
    deliver(inside, bodies)
    assert rows() != expected
    receive(late, key_for(inside), {})
    fold_waiting(timezone.now())
    assert DirtySpan.objects.count() == 1
    with connection.cursor() as cursor:  # everything up to now is folded: the late batch itself does not wait again
        cursor.execute("update fleet_folded_through set at = now() + interval '1 day'")
    crash()
    settle()
    assert rows() == expected
    assert DirtySpan.objects.count() == 0


def test_an_hour_is_either_open_or_final(inside: Any) -> None:
    bodies = history(hours=2, nodes=1, seed=24)
    random.Random(1).shuffle(bodies)
    deliver(inside, bodies, every=30)
    keys = list(NodeHour.objects.values_list("node_id", "hour"))
    assert len(keys) == len(set(keys)) == 2


def test_a_refold_that_fails_is_tried_three_times_and_shown(inside: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from fleet.summary.selectors import failed_batches, queues

    deliver(inside, history(hours=1, nodes=1))
    node = Node.objects.get()
    NodeLive.objects.update(dirty_hour=FIRST_MS // HOUR_MS, dirty_through=FIRST_MS // HOUR_MS)
    tries = []

    def poisonous(*args: Any, **more: Any) -> None:
        tries.append(args)
        raise ZeroDivisionError("poison")

    with monkeypatch.context() as patched:
        patched.setattr("fleet.refolding.refold_from", poisonous)
        for _ in range(5):
            refold_dirty(timezone.now())
    assert len(tries) == 3
    assert orgs_with_work([inside]) == []
    assert unfolded_before(10**6) == 1  # its month can't be issued
    assert queues([inside])[0].failed == 1
    (shown,) = failed_batches(inside)
    assert (shown["node"], shown["error"]) == (node.name, "ZeroDivisionError: poison")
    assert retry_failed() == 1
    assert orgs_with_work([inside]) == [inside.pk]
    assert refold_dirty(timezone.now()) == 1
    live = NodeLive.objects.get()
    assert (live.dirty_hour, live.attempts, live.error) == (None, 0, "")


def test_an_upgrade_of_the_fold_makes_its_open_state_again(inside: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    bodies = history(hours=2, nodes=2, seed=24)
    deliver(inside, bodies)
    expected, expected_states = rows(), states()
    forget()
    with monkeypatch.context() as older:
        older.setattr(state, "FORMAT", state.FORMAT - 1)
        deliver(inside, bodies[: len(bodies) // 2])
    for body in bodies[len(bodies) // 2 :]:
        receive(body, key_for(inside), {})
    with pytest.raises(state.OtherFormat):
        fold_waiting(timezone.now())
    for _ in range(3):  # the first finds it, the next fold what it asked for
        fold_org(inside.pk)
    assert (rows(), states()) == (expected, expected_states)


def test_a_server_that_is_out_of_date_leaves_newer_states_alone(inside: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    bodies = history(hours=1, nodes=1, seed=25)
    deliver(inside, bodies[:-1])
    expected = rows()
    monkeypatch.setattr(state, "FORMAT", state.FORMAT - 1)
    receive(bodies[-1], key_for(inside), {})
    with pytest.raises(state.OtherFormat):
        fold_org(inside.pk)
    assert rows() == expected


def test_a_damaged_batch_is_left_out_of_a_refold_and_its_neighbours_are_not(inside: Any) -> None:
    first = (FIRST_MS // HOUR_MS) * HOUR_MS + SLOT_MS // 2
    deliver(inside, [packed(first_ts=first + minute * 60_000)[0] for minute in range(10)])
    with connection.cursor() as cursor:
        cursor.execute("update fleet_inbox set body = 'not gzip' where sha256 = (select max(sha256) from fleet_inbox)")
    NodeLive.objects.update(dirty_hour=FIRST_MS // HOUR_MS, dirty_through=FIRST_MS // HOUR_MS)
    assert refold_dirty(timezone.now()) == 1
    mark = BatchMark.objects.get()
    assert (mark.reason, "gzip" in mark.error) == ("failed", True)
    assert NodeLive.objects.get().dirty_hour is None
    assert 9 * 60 * 2 - 2 * 60 <= NodeHour.objects.get().observed_s <= 10 * 60 * 2


@pytest.mark.django_db(transaction=True)
def test_nodes_that_another_worker_holds_do_not_stop_the_others(alpha: Any) -> None:
    first = (FIRST_MS // HOUR_MS) * HOUR_MS + SLOT_MS // 2
    with tenant_context(alpha):
        deliver(alpha, [packed(first_ts=first, node_id="held")[0], packed(first_ts=first, node_id="free")[0]])
        for minute in range(1, 31):  # the oldest that wait are all of the node that is held
            receive(packed(first_ts=first + minute * 60_000, node_id="held")[0], key_for(alpha), {})
        receive(packed(first_ts=first + 60_000, node_id="free")[0], key_for(alpha), {})
    locked, done = threading.Event(), threading.Event()

    def hold() -> None:
        try:
            with tenant_context(alpha), transaction.atomic():
                list(NodeLive.objects.select_for_update().filter(node__name="held"))
                locked.set()
                done.wait(30)
        finally:
            connections.close_all()

    thread = threading.Thread(target=hold)
    thread.start()
    assert locked.wait(30)
    try:
        with tenant_context(alpha):
            assert fold_chunk(timezone.now(), 10) == 1
            assert set(Waiting.objects.values_list("node", flat=True)) == {"held"}
            assert fold_chunk(timezone.now(), 10) == 0
    finally:
        done.set()
        thread.join(30)
    with tenant_context(alpha):
        while fold_chunk(timezone.now(), 10):
            pass
        assert Waiting.objects.count() == 0


def test_a_node_without_its_state_is_folded_again_before_anything_new(inside: Any) -> None:
    bodies = history(hours=2, nodes=1, seed=25)
    deliver(inside, bodies[:-5])
    crash()
    recover(timezone.now())
    for body in bodies[-5:]:
        receive(body, key_for(inside), {})
    assert fold_waiting(timezone.now()) == 0
    assert refold_node(Node.objects.get().pk, timezone.now())
    settle()
    again = rows()
    NodeHour.objects.all().delete()
    NodeLive.objects.all().delete()
    with connection.cursor() as cursor:
        cursor.execute("delete from fleet_whole")
    settle()
    assert rows() == again
