"""What the fold says of signatures and of installations: it marks, and refuses nothing."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.utils import timezone
from django_tenants.utils import tenant_context

from agent import wire
from fleet.agents import services
from fleet.agents.counts import move
from fleet.agents.models import AgentKey, AgentSeen, BatchFlaw
from fleet.agents.selectors import keys_of, list_agents
from fleet.agents.signatures import KnownKey, judge
from fleet.agents.tests.support import Installation
from fleet.domain.slots import SLOT_MS
from fleet.folding import fold_waiting
from fleet.models import NodeHour
from fleet.recovery import note_progress, recover
from fleet.refolding import refold_dirty, refold_everything
from fleet.tests.test_recovery import crash

pytestmark = pytest.mark.django_db
AT = datetime(2026, 11, 20, 10, tzinfo=UTC)
START = 0  # seconds, set by `start`


WHEREVER = pytest.mark.parametrize("start", [600, 3300], ids=["within an hour", "over the hour"], indirect=True)


@pytest.fixture(autouse=True)
def start(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Minute 0 lies so many seconds into an hour that is over, whatever the time is now."""
    hour = (int(time.time()) - 7200) // 3600 * 3600
    monkeypatch.setattr(f"{__name__}.START", hour + getattr(request, "param", 600))


@pytest.fixture
def inside(alpha: Any) -> Iterator[Any]:
    """The test runs inside alpha's schema."""
    with tenant_context(alpha):
        yield alpha


def enrol(one: Installation, state: str = "active") -> AgentKey:
    """Its key as an admin would find it."""
    return AgentKey.objects.create(
        agent_id=one.said["agent_id"], public_key=one.public, state=state, cluster="c1", node=one.said["node_id"],
        enrolled_with="test", is_bootstrap=False, enrolled_at=services.database_now(),
    )  # fmt: skip


def minute(number: int) -> int:
    """First sample of the `number`-th minute."""
    return START * 1000 + SLOT_MS // 2 + number * 60_000


def counts() -> dict[str, int]:
    """The only installation's batches by what their signature says."""
    (one,) = {agent.agent_id: agent for agent in list_agents() if agent.seen}.values()
    return one.counts


def test_each_signature_is_judged_once_and_refuses_nothing(inside: Any) -> None:
    one, other = Installation(), Installation()
    one.send(inside, 1, first_ts=minute(1))
    fold_waiting(timezone.now())
    assert counts() == {"valid": 0, "unsigned": 0, "unknown_key": 1, "bad": 0, "revoked": 0}
    enrol(one)
    one.send(inside, 2, first_ts=minute(2))
    one.send(inside, 3, signed=False, first_ts=minute(3))
    forged = one.send(inside, 4, signed=bytes(64), first_ts=minute(4))
    one.private = other.private  # the identity in other hands
    stolen = one.send(inside, 5, first_ts=minute(5))
    fold_waiting(timezone.now())
    assert counts() == {"valid": 1, "unsigned": 1, "unknown_key": 1, "bad": 2, "revoked": 0}
    assert {bytes(flaw.sha256): flaw.why for flaw in BatchFlaw.objects.all()} == {forged: "bad", stolen: "bad"}
    assert sum(hour.observed_s for hour in NodeHour.objects.all()) >= 5 * 60 * 2 - 60  # all were folded
    refold_everything(timezone.now())
    assert counts()["bad"] == 2  # a re-fold counts nothing twice


def test_what_a_crash_kept_from_being_judged_is_judged_after_it(inside: Any) -> None:
    one = Installation()
    enrol(one)
    one.send(inside, 1, first_ts=minute(1))
    fold_waiting(timezone.now())
    forged = one.send(inside, 2, signed=bytes(64), first_ts=minute(2))
    crash()
    for _ in range(2):
        recover(timezone.now())
        while refold_dirty(timezone.now()) or fold_waiting(timezone.now()):
            pass
        assert [(bytes(flaw.sha256), flaw.why) for flaw in BatchFlaw.objects.all()] == [(forged, "bad")]


def all_kinds(inside: Any) -> dict[str, int]:
    """Batches of every kind but one, folded; what is counted of them."""
    one = Installation()
    one.send(inside, 1, first_ts=minute(1))
    fold_waiting(timezone.now())
    enrol(one)
    for number in (2, 3, 4):
        one.send(inside, number, first_ts=minute(number))
    one.send(inside, 5, signed=False, first_ts=minute(5))
    one.send(inside, 6, signed=bytes(64), first_ts=minute(6))
    fold_waiting(timezone.now())
    expected = {"valid": 3, "unsigned": 1, "unknown_key": 1, "bad": 1, "revoked": 0}
    assert counts() == expected
    return expected


def recovered() -> None:
    """What the workers do after a crash."""
    recover(timezone.now())
    while refold_dirty(timezone.now()) or fold_waiting(timezone.now()):
        pass


@WHEREVER
def test_after_a_crash_no_batch_is_counted_twice_and_none_is_forgotten(inside: Any) -> None:
    expected = all_kinds(inside)
    waits = Installation()
    waits.send(inside, 7, signed=False, first_ts=minute(7))
    for _ in range(2):
        crash()
        recovered()
        assert counts() == {**expected, "unsigned": 2}


@WHEREVER
def test_counts_are_written_down_once_an_hour_when_all_that_came_in_it_is_folded(inside: Any) -> None:
    expected = all_kinds(inside)
    assert not AgentSeen.objects.exists(), "no logged write with a fold"
    now = timezone.now()
    move(now)  # what came before this hour: nothing
    assert not AgentSeen.objects.exists()
    assert not move(now)
    over = now + timedelta(hours=2)
    note_progress(over)
    assert not move(over - timedelta(hours=1)), "it is written down already"
    row = AgentSeen.objects.get()
    assert {name: getattr(row, name) for name in expected} == expected
    begin = datetime.fromtimestamp(START, UTC)
    assert begin + timedelta(minutes=1) <= row.first_at < row.last_at < begin + timedelta(minutes=7)
    assert counts() == expected, "counted in one of the two tables, not in both"
    crash()
    recovered()
    assert counts() == expected, "an hour that was written down is not counted again"


def test_the_workers_write_counts_down_behind_the_fold(inside: Any) -> None:
    all_kinds(inside)
    soon = timezone.now() + timedelta(minutes=75)
    Installation().send(inside, 8, first_ts=minute(8))
    note_progress(soon)
    assert not AgentSeen.objects.exists(), "something of that hour waits"
    fold_waiting(timezone.now())
    note_progress(soon)
    assert AgentSeen.objects.get().unknown_key == 1


def test_what_is_folded_long_after_it_came_counts_in_the_hour_under_way(inside: Any) -> None:
    """A batch that was set aside is folded long after it came: its hour is written down already."""
    expected = all_kinds(inside)
    assert move(timezone.now() + timedelta(hours=2))
    Installation().send(inside, 9, signed=False, first_ts=minute(9))
    fold_waiting(timezone.now())
    assert counts() == {**expected, "unsigned": 2}


def test_what_a_revoked_key_signed_before_stays_good(inside: Any) -> None:
    one = Installation()
    row = enrol(one)
    one.send(inside, 1, first_ts=minute(1))
    fold_waiting(timezone.now())
    services.revoke(row, inside, actor="test")
    late = one.send(inside, 2, first_ts=minute(2))
    fold_waiting(timezone.now())
    assert counts() == {"valid": 1, "unsigned": 0, "unknown_key": 0, "bad": 0, "revoked": 1}
    assert [(bytes(flaw.sha256), flaw.why) for flaw in BatchFlaw.objects.all()] == [(late, "revoked")]
    (known,) = keys_of(["a1"])
    assert (known["public_key"], known["revoked_at"] is not None) == (one.public.hex(), True)


def test_a_waiting_key_proves_nothing_yet(inside: Any) -> None:
    one, rival = Installation(), Installation()
    enrol(one)
    waiting = enrol(rival, "waiting")
    rival.send(inside, 1, first_ts=minute(1))
    fold_waiting(timezone.now())
    assert counts()["bad"] == 1
    services.accept(waiting, inside, actor="test")
    rival.send(inside, 2, first_ts=minute(2))
    fold_waiting(timezone.now())
    assert counts()["valid"] == 1
    assert [found["public_key"] for found in keys_of(["a1"])] == [one.public.hex(), rival.public.hex()]


def test_judging_alone(inside: Any) -> None:
    one = Installation()
    sha256 = bytes(range(32))
    good = one.private.sign(wire.signed_message(sha256))
    assert judge(sha256, good, AT, [KnownKey(one.public, AT)]) == "valid"
    second = timedelta(seconds=1)
    assert judge(sha256, good, AT, [KnownKey(one.public, AT - 2 * second, AT)]) == "revoked"
    assert judge(sha256, good, AT - second, [KnownKey(one.public, AT - 2 * second, AT)]) == "valid"
    assert judge(sha256, good, AT - second, [KnownKey(one.public, AT)]) == "unknown_key", "it was enrolled later"
    rival = KnownKey(Installation().public, AT - second)
    assert judge(sha256, good, AT - second, [rival, KnownKey(one.public, AT)]) == "bad", "it was accepted later"
    assert judge(sha256, good, AT, [KnownKey(Installation().public, AT), KnownKey(one.public, AT)]) == "valid"
    assert judge(bytes(32), good, AT, [KnownKey(one.public, AT)]) == "bad"
    assert judge(sha256, good, AT, [KnownKey(b"\xff" * 32, AT)]) == "bad"
    assert judge(sha256, None, AT, [KnownKey(one.public, AT)]) == "unsigned"
    assert judge(sha256, good, AT, []) == "unknown_key"


@pytest.mark.parametrize(
    "made",
    [
        lambda sha256: sha256,
        lambda sha256: wire.enrolment_message(sha256),
        lambda sha256: wire.receipt_message(sha256.hex(), "n1", 1, "2026-11-20T10:00:00.000Z"),
    ],
    ids=["bare", "enrolment", "receipt"],
)
def test_a_signature_made_for_something_else_signs_no_batch(inside: Any, made: Any) -> None:
    """By the right key over the right hash: only what it was made for differs (attack E27)."""
    one = Installation()
    enrol(one)
    sha256 = one.send(inside, 1, signed=False, first_ts=minute(1))
    stolen = one.private.sign(made(sha256))
    assert judge(sha256, stolen, AT, [KnownKey(one.public, AT)]) == "bad"
    one.send(inside, 2, signed=stolen, first_ts=minute(2))
    fold_waiting(timezone.now())
    assert counts() == {"valid": 0, "unsigned": 1, "unknown_key": 0, "bad": 1, "revoked": 0}


def flags() -> dict[tuple[str, str], tuple[str, ...]]:
    """(identity, node) → what is flagged."""
    return {(one.agent_id, one.node): one.flags for one in list_agents()}


def test_two_installations_on_one_node_are_flagged(inside: Any) -> None:
    for number in range(5):
        Installation("a1").send(inside, number + 1, first_ts=minute(number))
        Installation("a2").send(inside, number + 1, first_ts=minute(number) + 1)
    fold_waiting(timezone.now())
    assert flags() == {("a1", "n1"): ("two_agents",), ("a2", "n1"): ("two_agents",)}


def test_a_new_state_directory_is_no_second_installation(inside: Any) -> None:
    for number in range(4):
        Installation("a1").send(inside, number + 1, first_ts=minute(number))
        Installation("a2").send(inside, number + 1, first_ts=minute(number + 4))
    fold_waiting(timezone.now())
    assert flags() == {("a1", "n1"): (), ("a2", "n1"): ()}


def test_one_identity_on_two_machines_is_flagged(inside: Any) -> None:
    for number in range(5):
        Installation("a1", "n1").send(inside, 2 * number + 1, first_ts=minute(number))
        Installation("a1", "n2").send(inside, 2 * number + 2, first_ts=minute(number) + 1)
    fold_waiting(timezone.now())
    assert set(flags().values()) == {("copied",)}


def test_one_signing_key_on_two_machines_is_flagged(inside: Any) -> None:
    one, copy = Installation("a1", "n1"), Installation("a2", "n2")
    copy.private = one.private
    enrol(one)
    enrol(copy)
    enrol(Installation("a3", "n3"))
    assert flags() == {("a1", "n1"): ("same_key",), ("a2", "n2"): ("same_key",), ("a3", "n3"): ()}
