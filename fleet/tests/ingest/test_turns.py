"""I25, I35: one org never holds all threads of a web process, whether by a crowd or by bodies that trickle in."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from fleet import turns
from fleet.errors import Busy
from fleet.tests.bodies import packed
from fleet.tests.ingest.server import Server, request
from fleet.tests.ingest.uploads import count, post
from fleet.turns import Turns

ALPHA, BETA, THREADS = 1, 2, 4


@pytest.fixture
def clock(monkeypatch: Any, settings: Any) -> list[float]:
    """The clock of the turns, to be moved by hand; a process has four threads."""
    settings.GOODPUT_WEB_THREADS = THREADS
    now = [1000.0]
    monkeypatch.setattr(turns.time, "monotonic", lambda: now[0])
    return now


@contextlib.contextmanager
def held(some: Turns, org: int, number: int, is_backlog: bool = False) -> Iterator[None]:
    """So many uploads of an org under way."""
    with contextlib.ExitStack() as stack:
        for _ in range(number):
            stack.enter_context(some.turn(org, is_backlog))
        yield


def is_busy(some: Turns, org: int, is_backlog: bool = False) -> bool:
    """Whether another upload of this org is refused now."""
    try:
        with some.turn(org, is_backlog):
            return False
    except Busy:
        return True


def test_i35_beside_another_org_the_share_is_all_threads_but_one(clock: list[float]) -> None:
    some = Turns()
    with some.turn(BETA):
        pass
    with held(some, ALPHA, THREADS - 2):
        assert not is_busy(some, ALPHA)
    with held(some, ALPHA, THREADS - 1):
        assert is_busy(some, ALPHA), "refused at once, without a wait"
        assert not is_busy(some, BETA)
    assert not is_busy(some, ALPHA), "what was given back can be taken again"


def test_i35_a_backlog_leaves_a_thread_of_its_orgs_share_to_what_is_live(clock: list[float], settings: Any) -> None:
    some = Turns()
    with some.turn(BETA):
        pass
    with held(some, ALPHA, THREADS - 2, is_backlog=True):
        assert is_busy(some, ALPHA, is_backlog=True)
        assert not is_busy(some, ALPHA)
        with some.turn(ALPHA):
            assert is_busy(some, ALPHA), "who calls all of it live has no more than the org's share"
            assert not is_busy(some, BETA)
    settings.GOODPUT_WEB_THREADS = 2
    assert not is_busy(some, ALPHA, is_backlog=True), "a share of one thread is everybody's"


def test_i35_the_backlog_of_an_org_alone_may_hold_its_whole_share(clock: list[float]) -> None:
    some = Turns()
    with held(some, ALPHA, THREADS - 2, is_backlog=True):
        assert not is_busy(some, ALPHA, is_backlog=True)


def test_i35_an_org_alone_waits_for_its_own_uploads_and_is_not_refused(clock: list[float]) -> None:
    some, taken = Turns(), threading.Event()

    def another() -> None:
        with some.turn(ALPHA):
            taken.set()

    with held(some, ALPHA, THREADS - 1):
        waiting = threading.Thread(target=another)
        waiting.start()
        assert not taken.wait(0.05)
    waiting.join(30)
    assert taken.is_set()


def test_i35_an_org_that_was_not_heard_for_long_is_no_other_one(clock: list[float]) -> None:
    some = Turns()
    with some.turn(BETA):
        pass
    clock[0] += turns.OTHERS_S + 1
    with held(some, ALPHA, THREADS - 1):
        waits = threading.Thread(target=is_busy, args=(some, ALPHA))
        waits.start()
        waits.join(0.05)
        assert waits.is_alive(), "nobody else is there, so it is not refused"
    waits.join(30)


def test_i25_behind_uploads_that_stand_still_nobody_waits(clock: list[float]) -> None:
    some = Turns()
    with held(some, ALPHA, THREADS - 1):
        clock[0] += turns.STALLED_S + 0.1
        assert is_busy(some, ALPHA)
        assert not is_busy(some, BETA)


def test_i35_one_thread_is_every_orgs(clock: list[float], settings: Any) -> None:
    settings.GOODPUT_WEB_THREADS = 1
    some = Turns()
    assert not is_busy(some, ALPHA)
    assert not is_busy(some, BETA)


@pytest.mark.django_db
def test_i35_a_busy_org_is_told_to_come_back_and_nothing_is_stored(
    alpha: Any, token: str, clock: list[float], monkeypatch: Any
) -> None:
    with turns.turns.turn(-1), held(turns.turns, alpha.pk, THREADS - 1):
        answer = post(packed()[0], token)
    assert (answer.status, answer.code) == (503, "busy")
    assert answer.json()["permanent"] is False
    assert turns.RETRY_S[0] <= int(answer.headers["retry-after"]) <= turns.RETRY_S[1]
    assert count(alpha) == 0
    assert post(packed()[0], token).status == 202


@pytest.mark.django_db(transaction=True)
def test_i25_bodies_that_trickle_in_with_a_key_hold_up_their_own_org_only(
    server: Server, alpha: Any, beta: Any, token: str, key_of: Any
) -> None:
    """Four threads serve; twelve agents of one org send a byte and wait."""
    theirs = key_of(beta, "ingest")
    with contextlib.ExitStack() as stack:
        slow = [stack.enter_context(server.connect()) for _ in range(12)]
        for one in slow:
            one.sendall(request(b"\x1f", token, Content_Length=500))
        began = time.monotonic()
        while server.talk(request(b"no gzip", token))[0].code != "busy":  # the attack has its org's share of threads
            assert time.monotonic() - began < 60
        for seq in range(3):
            assert server.talk(request(packed(seq=seq)[0], theirs))[0].status == 202
    assert (count(alpha), count(beta)) == (0, 3)


@pytest.mark.django_db(transaction=True)
def test_i35_a_live_batch_is_served_while_the_backlog_of_its_org_is_refused(
    server: Server, alpha: Any, beta: Any, token: str, key_of: Any
) -> None:
    """Bodies of beta's backlog that stand hold all that it may hold, in the real server."""
    mine = key_of(beta, "ingest")
    assert server.talk(request(packed(seq=1)[0], token))[0].status == 202
    with contextlib.ExitStack() as stack:
        began = time.monotonic()
        while server.talk(request(b"no gzip", mine, X_Goodput_Backlog="1"))[0].code != "busy":
            assert time.monotonic() - began < 60
            slow = stack.enter_context(server.connect())
            slow.sendall(request(b"\x1f", mine, Content_Length=500, X_Goodput_Backlog="1"))
        for seq in range(3):
            assert server.talk(request(packed(seq=seq)[0], mine, X_Goodput_Backlog="1"))[0].code == "busy"
            assert server.talk(request(packed(seq=seq)[0], mine))[0].status == 202
    assert (count(alpha), count(beta)) == (1, 3)
