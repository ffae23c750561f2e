"""I34, I35: who guesses keys and who floods is held back, and nobody else is."""

from __future__ import annotations

import io
import math
import threading
import time
from typing import Any

import pytest
from django.core.exceptions import ImproperlyConfigured
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django_tenants.utils import schema_context

from fleet.models import Refusal
from fleet.tests.bodies import packed
from fleet.tests.ingest.server import Server, answers, request
from fleet.tests.ingest.uploads import count, post
from goodput_site.limits import quota
from orgs import buckets, keys
from orgs.buckets import Buckets, Rate

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("lan")]
WRONG = "gp_{:08x}_" + "A" * 43


@pytest.fixture
def clock(monkeypatch: Any) -> list[float]:
    """The buckets' clock, to be moved by hand."""
    now = [1000.0]
    monkeypatch.setattr(buckets.time, "monotonic", lambda: now[0])
    return now


def bodies(number: int) -> list[bytes]:
    """Different batches of one installation."""
    return [packed(agent_id="flood", seq=seq)[0] for seq in range(number)]


class Unread(io.BytesIO):
    """A body that nobody may read."""

    def read(self, *_: Any) -> bytes:
        raise AssertionError("a refused body was read")


def test_i35_an_org_over_its_quota_is_refused_and_another_is_not(
    alpha: Any, beta: Any, key_of: Any, settings: Any, clock: list[float]
) -> None:
    settings.GOODPUT_QUOTA_ORG = (2.0, 0.0)  # ten at once, then two a second
    mine, theirs = key_of(alpha, "ingest"), key_of(beta, "ingest")
    sent = bodies(14)
    first = [post(body, mine) for body in sent]
    assert [answer.status for answer in first] == [202] * 10 + [429] * 4
    assert {answer.code for answer in first[10:]} == {"quota_exceeded"}
    assert all(answer.json()["permanent"] is False for answer in first[10:])
    assert [post(body, theirs).status for body in sent[:5]] == [202] * 5
    assert (count(alpha), count(beta)) == (10, 5)
    with schema_context(alpha.schema_name):
        refused = Refusal.objects.filter(code="quota_exceeded")  # a real server of another test may have left its own
        assert not refused.exists(), "a quota is no judgement about a batch"
    clock[0] += 2.0
    assert [post(body, mine).status for body in sent[10:]] == [202] * 4, "what was refused is taken later: nothing lost"
    assert count(alpha) == 14


def test_i35_a_backlog_leaves_a_second_of_its_quota_to_what_is_live(
    alpha: Any, key_of: Any, settings: Any, clock: list[float]
) -> None:
    settings.GOODPUT_QUOTA_ORG = (2.0, 0.0)  # ten at once, then two a second
    token, sent = key_of(alpha, "ingest"), bodies(14)
    late = [post(body, token, HTTP_X_GOODPUT_BACKLOG="1") for body in sent[:10]]
    assert [answer.status for answer in late] == [202] * 8 + [429] * 2
    assert int(late[8].headers["retry-after"]) == 1, "when the second that it must leave is there and one more batch"
    assert [post(body, token).status for body in sent[10:12]] == [202] * 2
    assert post(sent[12], token).status == 429, "who calls all of it live has no more than the quota"
    clock[0] += 1.0
    assert post(sent[8], token, HTTP_X_GOODPUT_BACKLOG="1").status == 429
    clock[0] += 0.5
    assert post(sent[8], token, HTTP_X_GOODPUT_BACKLOG="1").status == 202


def test_i35_a_crowd_is_told_to_come_back_one_after_the_other(
    alpha: Any, key_of: Any, settings: Any, clock: list[float]
) -> None:
    settings.GOODPUT_QUOTA_ORG = (2.0, 0.0)
    token = key_of(alpha, "ingest")
    waits = [int(answer.headers["retry-after"]) for body in bodies(40) if (answer := post(body, token)).status == 429]
    assert waits == [max(1, math.ceil(0.5 * (number + 1))) for number in range(30)]
    waits = [int(post(b"", token, CONTENT_LENGTH="5").headers["retry-after"]) for _ in range(200)]
    assert max(waits) == buckets.MOST_WAIT_S, "a flood can't send an agent away for longer"


def test_i35_bytes_count_before_they_are_read_and_a_batch_above_the_burst_still_gets_in(
    alpha: Any, key_of: Any, settings: Any, clock: list[float]
) -> None:
    body = packed()[0]
    settings.GOODPUT_QUOTA_ORG = (0.0, len(body) / 10)  # the whole burst is half a batch
    token = key_of(alpha, "ingest")
    assert post(body, token).status == 202
    assert post(body, token, stream=Unread(body)).code == "quota_exceeded"
    clock[0] += 10.0  # it went into debt
    assert post(body, token).status == 202


@pytest.mark.parametrize("kind", ["KEY", "NODE"])
def test_i35_one_key_over_its_quota_leaves_the_other_keys_of_its_org_alone(
    kind: str, alpha: Any, key_of: Any, settings: Any, clock: list[float]
) -> None:
    from orgs.models import ApiKey

    setattr(settings, f"GOODPUT_QUOTA_{kind}", (1.0, 0.0))
    loud, quiet = key_of(alpha, "ingest"), key_of(alpha, "ingest")
    if kind == "NODE":
        ApiKey.objects.update(node="n1")
    assert [post(body, loud).status for body in bodies(7)] == [202] * 5 + [429] * 2
    assert post(bodies(1)[0], quiet).status == 202


def test_i35_what_a_refusal_cost_the_org_is_nothing(alpha: Any, key_of: Any, settings: Any, clock: list[float]) -> None:
    """The key's quota refuses, so the org's bucket must not have been drawn from."""
    settings.GOODPUT_QUOTA_KEY, settings.GOODPUT_QUOTA_ORG = (1.0, 0.0), (2.0, 0.0)
    loud, quiet = key_of(alpha, "ingest"), key_of(alpha, "ingest")
    assert [post(body, loud).status for body in bodies(50)].count(202) == 5
    assert [post(body, quiet).status for body in bodies(5)] == [202] * 5


def test_i35_without_quotas_nobody_is_counted(alpha: Any, key_of: Any, settings: Any) -> None:
    from fleet import quotas

    settings.GOODPUT_QUOTA_ORG = settings.GOODPUT_QUOTA_KEY = (0.0, 0.0)
    assert post(packed()[0], key_of(alpha, "ingest")).status == 202
    assert len(quotas.buckets) == 0


def test_i35_several_web_processes_share_the_quota(alpha: Any, key_of: Any, settings: Any, clock: list[float]) -> None:
    settings.GOODPUT_QUOTA_ORG, settings.GOODPUT_WEB_WORKERS = (2.0, 0.0), 2
    token = key_of(alpha, "ingest")
    assert [post(body, token).status for body in bodies(8)].count(202) == 5


@pytest.mark.django_db(transaction=True)
def test_i35_a_flood_at_a_real_server_refuses_only_the_flooder(
    alpha: Any, beta: Any, key_of: Any, database_url: str, tmp_path: Any
) -> None:
    """Eight connections of one org send without a pause; another org's uploads are all taken, each with its receipt."""
    over = threading.Event()
    statuses: list[int] = []
    taken: set[int] = set()
    mine, theirs = key_of(alpha, "ingest"), key_of(beta, "ingest")
    sent = bodies(20)

    def flood(server: Server) -> None:
        number = 0
        with server.connect() as connection:
            while not over.is_set():
                connection.sendall(request(sent[number % len(sent)], mine))
                status = answers(connection)[0].status
                statuses.append(status)
                taken.update({number % len(sent)} if status == 202 else ())
                number += 1

    env = {"DATABASE_URL": database_url, "GOODPUT_EXPOSE": "lan", "GOODPUT_QUOTA_ORG": "20,0"}
    with Server(tmp_path / "web.log", **env) as server:
        began = time.monotonic()
        crowd = [threading.Thread(target=flood, args=(server,)) for _ in range(8)]
        for one in crowd:
            one.start()
        try:
            while 429 not in statuses:
                time.sleep(0.01)
                assert time.monotonic() - began < 60
            with server.connect() as connection:
                for body in sent:
                    connection.sendall(request(body, theirs))
                    assert answers(connection)[0].status == 202
        finally:
            over.set()
            for one in crowd:
                one.join()
        took_s = time.monotonic() - began
    assert set(statuses) == {202, 429}
    assert statuses.count(202) <= 100 + 20 * took_s
    assert (count(alpha), count(beta)) == (len(taken), 20)
    assert "quota_exceeded org=alpha" in (tmp_path / "web.log").read_text()


def test_i34_a_guesser_is_refused_and_the_agent_behind_the_same_address_goes_on(
    alpha: Any, token: str, clock: list[float], monkeypatch: Any
) -> None:
    monkeypatch.setattr(keys, "PAST_THE_LIMIT", Rate(1, 5))
    assert post(packed()[0], token).status == 202
    for number in range(60):
        assert post(b"x", WRONG.format(number)).status == 401
    for number in range(60, 65):  # the few that are still looked up
        assert post(b"x", WRONG.format(number)).status == 401
    with CaptureQueriesContext(connection) as queries:
        refused = post(b"x", WRONG.format(99))
    assert (refused.status, refused.code) == (429, "too_many_wrong_keys")
    assert int(refused.headers["retry-after"]) >= keys.WAIT_S
    assert not queries.captured_queries, "a guess past the limit costs the database nothing"
    keys.cache.clear()  # its life is over
    assert post(packed()[0], token).status == 202, "known here before, so looked up as ever"
    assert post(b"x", WRONG.format(100), REMOTE_ADDR="192.0.2.9").status == 401, "elsewhere nobody guessed"
    clock[0] += 10
    assert post(b"x", WRONG.format(101)).status == 401, "looked at again after a while"


def test_i34_guesses_at_one_key_from_many_addresses_count_together(
    alpha: Any, token: str, clock: list[float], monkeypatch: Any
) -> None:
    monkeypatch.setattr(keys, "PAST_THE_LIMIT", Rate(1, 1))
    assert post(packed()[0], token).status == 202
    for number in range(21):
        assert post(b"x", f"{token[:12]}{number:043}", REMOTE_ADDR=f"192.0.2.{number}").status == 401
    assert post(b"x", f"{token[:12]}{99:043}", REMOTE_ADDR="192.0.2.99").code == "too_many_wrong_keys"
    keys.cache.clear()
    assert post(packed()[0], token).status == 202


def test_i34_a_new_agent_behind_a_guessers_address_comes_in(alpha: Any, key_of: Any, clock: list[float]) -> None:
    for number in range(80):
        post(b"x", WRONG.format(number))
    assert post(packed()[0], key_of(alpha, "ingest")).status == 202


def test_buckets_do_not_grow_without_end(monkeypatch: Any) -> None:
    monkeypatch.setattr(buckets, "MAX_BUCKETS", 10)
    some = Buckets()
    for number in range(1000):
        some.take((("org", number), Rate(1, 1), 1.0))
    assert len(some) <= 10


@pytest.mark.parametrize("text", ["", "400", "1,2,3", "a,b", "-1,0", "nan,1", "inf,1"])
def test_a_quota_that_is_none_stops_the_start(text: str) -> None:
    with pytest.raises(ImproperlyConfigured, match="GOODPUT_QUOTA_ORG"):
        quota("GOODPUT_QUOTA_ORG", text)
