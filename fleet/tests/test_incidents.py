"""Incidents follow the strips: however the facts arrive, the same faults are told, each once."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pytest
from django.utils import timezone
from django_tenants.utils import tenant_context

from fleet.domain.rules import load_rules
from fleet.domain.strips import HourRow
from fleet.domain.verdicts import HEALTHY, State, Verdict
from fleet.folding import fold_waiting
from fleet.incidents import sync_incidents
from fleet.ingest import receive
from fleet.models import Cluster, Incident, IncidentNote, Node
from fleet.node_rows import write_hours
from fleet.refolding import refold_everything
from fleet.silence import close_silence
from fleet.simulation import Plan, truth, uploads
from fleet.tests.test_folding import FIRST_MS, HOUR_MS, deliver, forget, key_for
from fleet.tests.test_silence import at, minute_of_loss, send

pytestmark = pytest.mark.django_db


@pytest.fixture
def inside(alpha: Any) -> Iterator[Any]:
    """The test runs inside alpha's schema."""
    with tenant_context(alpha):
        yield alpha


def facts() -> list[tuple[Any, ...]]:
    """What is derived of every incident."""
    names = ("node__name", "scope", "code", "party", "weight", "first_slot", "end_slot", "is_open", "lost_gpu_seconds")
    return sorted(Incident.objects.filter(withdrawn_at=None).values_list(*names))


@pytest.mark.parametrize(("scenario", "code"), [("xid79", "XID_79"), ("thermal", "HW_THERMAL")])
def test_each_injected_fault_is_one_incident_however_it_arrives(inside: Any, scenario: str, code: str) -> None:
    plan = Plan("sim", 1, FIRST_MS, FIRST_MS + 2 * HOUR_MS, 11, scenario)
    bodies = [body for body, _ in uploads(plan)]
    deliver(inside, bodies, every=len(bodies))
    expected = facts()
    assert len(expected) == len(truth(plan))
    assert {row[2] for row in expected} <= {code, "GPU_MISSING"}
    assert all(row[3] == "infrastructure" and row[8] > 0 for row in expected)
    for every, seed in ((3, None), (40, 3)):
        forget()
        if seed:
            random.Random(seed).shuffle(bodies)
        deliver(inside, bodies, every=every)
        assert facts() == expected
    refold_everything(timezone.now())
    assert facts() == expected


def test_a_long_fault_is_settled_hour_by_hour_and_stays_one(inside: Any) -> None:
    for minute in range(2):
        send(inside, minute)
    for minute in range(2, 200):
        receive_minute(inside, minute)
        if minute % 5 == 0 or minute == 199:
            fold_waiting(timezone.now())
    (incident,) = Incident.objects.all()
    assert incident.is_open
    assert incident.settled_slot is not None
    assert incident.lost_gpu_seconds == pytest.approx(198 * 60, abs=60)
    hours = incident.settled_slot // 240 - incident.first_slot // 240
    assert hours == 3  # only the open hour is read again each minute
    told = facts()
    refold_everything(timezone.now())
    assert facts() == told


def receive_minute(org: Any, minute: int) -> None:
    """Receive one minute with GPU 1 lost."""
    from fleet.tests.bodies import packed
    from fleet.tests.test_silence import START_MS

    more: dict[str, Any] = {"boot_id": "b1", "boot_at": START_MS - HOUR_MS, "intervals": minute_of_loss(minute)}
    receive(packed(first_ts=START_MS + minute * 60_000, **more)[0], key_for(org), {})


def test_an_open_fault_stays_open_through_silence_and_closes_on_return(inside: Any) -> None:
    for minute in range(4):
        more = {"intervals": minute_of_loss(minute)} if minute >= 2 else {}
        send(inside, minute, **more)
    assert Incident.objects.get().is_open
    close_silence(at(2.5))
    held = Incident.objects.get()
    assert held.is_open
    assert held.lost_gpu_seconds > 2 * 3600
    send(inside, 170)
    closed = Incident.objects.get()
    assert not closed.is_open
    assert closed.pk == held.pk


def test_the_human_layer_survives_a_refold_and_a_fault_that_vanishes(inside: Any) -> None:
    for minute in range(4):
        more = {"intervals": minute_of_loss(minute)} if minute >= 2 else {}
        send(inside, minute, **more)
    incident = Incident.objects.get()
    IncidentNote.objects.create(incident=incident, author="ada", text="ticket sent")
    Incident.objects.filter(pk=incident.pk).update(acknowledged_by="ada", acknowledged_at=timezone.now())
    refold_everything(timezone.now())
    again = Incident.objects.get()
    assert again.pk == incident.pk
    assert again.acknowledged_by == "ada"
    assert again.notes.count() == 1


PENDING = Verdict(State.PENDING, 100, 100, 0, (), ("XID_79",))
LOST = Verdict(State.OBSERVED, 0, 0, 0, ("GPU_MISSING", "XID_79"), ())
HOUR = 480_000


def written(at_once: int, *faults: tuple[int, int, Verdict]) -> list[tuple[Any, ...]]:
    """(first, end, bad slots, lost, is open) of the incidents of three hours of one GPU, written so many at a time.

    Slots of `faults` count from the first hour's.
    """
    Incident.objects.all().delete()
    cluster, _ = Cluster.objects.get_or_create(name="main")
    node, _ = Node.objects.get_or_create(cluster=cluster, identity="name:n1", defaults={"name": "n1"})
    rules, rows = load_rules(), {}
    for hour in range(HOUR, HOUR + 3):
        row = rows[node.pk, hour] = HourRow(hour, rules.version)
        row.final = hour < HOUR + 2
        for subject in ("n", "g0", "g1"):
            row.put(subject, hour * 240, hour * 240 + 240, HEALTHY)
        for first, end, verdict in faults:
            row.put("g0", max(HOUR * 240 + first, hour * 240), min(HOUR * 240 + end, hour * 240 + 240), verdict)
    keys = sorted(rows)
    for begin in range(0, 3, at_once):
        some = {key: rows[key] for key in keys[begin : begin + at_once]}
        write_hours(some, may_reopen=True)
        sync_incidents(some, rules)
    found = Incident.objects.order_by("first_slot")
    return [
        (one.first_slot - HOUR * 240, one.end_slot - HOUR * 240, part["bad_slots"], part["lost"], one.is_open)
        for one in found
        for part in one.parts
    ]


def test_what_is_only_pending_is_no_incident_however_long(inside: Any) -> None:
    assert written(1, (10, 700, PENDING)) == []


@pytest.mark.parametrize("at_once", [1, 2, 3])
def test_an_incident_begins_with_what_announced_it_in_the_hour_before(inside: Any, at_once: int) -> None:
    assert written(at_once, (236, 242, PENDING), (242, 300, LOST)) == [(236, 300, 64, 5800, False)]
    gone = (10, 60, LOST)
    assert written(at_once, gone, (236, 242, PENDING), (242, 300, LOST)) == [
        (10, 60, 50, 5000, False),
        (236, 300, 64, 5800, False),
    ]
    # a gap of 42 slots without a pending one in it would part them; so far reaches what announces the second
    assert written(at_once, (10, 200, LOST), (230, 242, PENDING), (242, 290, LOST)) == [(10, 290, 250, 23800, False)]
    assert written(at_once, (10, 470, LOST), (490, 515, PENDING), (515, 530, LOST)) == [(10, 530, 500, 47500, False)]
