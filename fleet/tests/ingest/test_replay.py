"""I26, I27, I39: the same bytes, the same seq, and a server that dies between commit and answer."""

from __future__ import annotations

import http.client
import logging
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from django.db import connection

from fleet.tests.bodies import packed
from fleet.tests.ingest.server import Server, request
from fleet.tests.ingest.uploads import Answer, count, post


def together(number: int, body: bytes, token: str) -> list[Answer]:
    """Upload one body from many threads at the same instant, each on its own connection."""
    gate = threading.Barrier(number)

    def upload(_: int) -> Answer:
        try:
            gate.wait(timeout=20)
            return post(body, token)
        finally:
            connection.close()

    with ThreadPoolExecutor(number) as pool:
        return list(pool.map(upload, range(number)))


@pytest.mark.django_db
def test_i26_a_hundred_replays_give_one_row_and_one_receipt(alpha: Any, token: str) -> None:
    body, sha256 = packed(agent_id="a", seq=1)
    first = post(body, token).json()
    assert (first["batch_sha256"], first["duplicate"]) == (sha256, False)
    again = {post(body, token).body for _ in range(100)}
    assert len(again) == 1, "every replay is answered with the same bytes"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("time.time", lambda: 4_000_000_000.0)  # a lifetime later
        assert post(body, token).json() == {**first, "duplicate": True}
    assert count(alpha) == 1


@pytest.mark.django_db(transaction=True)
def test_i26_twenty_threads_at_once_give_one_row_and_one_receipt(alpha: Any, token: str) -> None:
    for round_ in range(5):
        body, _ = packed(agent_id="a", seq=round_)
        receipts = [answer.json() for answer in together(20, body, token)]
        assert sum(not receipt.pop("duplicate") for receipt in receipts) == 1
        assert all(receipt == receipts[0] for receipt in receipts)
    assert count(alpha) == 5


@pytest.mark.django_db
def test_i26_other_gzip_of_the_same_batch_is_the_same_batch(alpha: Any, token: str) -> None:
    import gzip

    body, sha256 = packed()
    other = gzip.compress(gzip.decompress(body), 9)
    assert other != body
    assert [post(one, token).json()["duplicate"] for one in (body, other)] == [False, True]
    assert count(alpha, f"sha256 = '\\x{sha256}' and body = '\\x{body.hex()}'") == 1


@pytest.mark.django_db
def test_i27_a_conflict_is_logged_with_both_hashes_and_stored_once(
    alpha: Any, token: str, caplog: pytest.LogCaptureFixture
) -> None:
    (one, sha_one), (two, sha_two) = packed(agent_id="a", seq=7), packed(agent_id="a", seq=7, node_id="n2")
    assert post(one, token).status == 202
    with caplog.at_level(logging.WARNING, "fleet.ingest"):
        answers = [post(two, token) for _ in range(2)]
    for answer in answers:
        assert (answer.status, answer.code, answer.json()["permanent"]) == (409, "seq_conflict", True)
        assert "batch_sha256" not in answer.json(), "no receipt: nothing may delete it"
    line = caplog.records[0].getMessage()
    assert sha_one in line
    assert sha_two in line
    assert "\n" not in line
    assert post(one, token).json()["duplicate"] is True, "the first batch stays as good as it was"
    assert (count(alpha), count(alpha, "is_seq_conflict")) == (2, 1)


@pytest.mark.django_db
@pytest.mark.parametrize(("days", "status"), [(-13, 409), (8, 409), (13, 409), (60, 202), (-60, 202)])
def test_i27_a_conflict_is_seen_within_two_weeks(days: int, status: int, alpha: Any, token: str) -> None:
    """Further apart it is a restored disk that counts on from an old state: new facts, whatever their number."""
    day = 86_400_000
    assert post(packed(first_ts=1_790_000_002_500, agent_id="a", seq=7)[0], token).status == 202
    assert post(packed(first_ts=1_790_000_002_500 + days * day, agent_id="a", seq=7)[0], token).status == status


@pytest.mark.django_db(transaction=True)
def test_i27_the_check_for_conflicts_touches_only_the_weeks_around(alpha: Any, token: str) -> None:
    """Else a node with a random clock, or an old inbox, would make every upload of its org slow."""
    from datetime import date, timedelta

    from fleet.partitions import ensure_partition

    far = [date(2033, 1, 3) + timedelta(weeks=n) for n in range(12)]
    for day in far:
        ensure_partition(alpha.schema_name, day)
    try:
        for seq in range(8):  # past the fifth run a prepared statement may get a plan that serves any day
            assert post(packed(agent_id="a", seq=seq)[0], token).status == 202
        with connection.cursor() as cursor:
            cursor.execute("select pg_stat_force_next_flush()")
            cursor.execute(
                "select coalesce(sum(idx_scan), 0) from pg_stat_user_indexes"
                " where schemaname = %s and relname like 'fleet_inbox_2033%%'",
                [alpha.schema_name],
            )
            assert cursor.fetchone()[0] == 0
    finally:
        with connection.cursor() as cursor:
            for day in far:
                cursor.execute(f'drop table "{alpha.schema_name}"."fleet_inbox_{day:%Y%m%d}"')


@pytest.mark.django_db
def test_i27_another_installation_or_none_counts_for_itself(alpha: Any, token: str) -> None:
    for more in ({"agent_id": "a", "seq": 1}, {"agent_id": "b", "seq": 1}, {"seq": 1}, {"agent_id": "a"}, {}):
        assert post(packed(node_id="n2", **more)[0], token).status == 202
        assert post(packed(node_id="n3", **more)[0], token).status == (409 if len(more) == 2 else 202)


DYING = "fleet.tests.ingest.dying:application"


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("moment", ["before-commit", "after-commit"])
def test_i39_a_server_that_dies_before_it_answers_loses_and_doubles_nothing(
    moment: str, alpha: Any, token: str, database_url: str, server: Server, tmp_path: Path
) -> None:
    """SIGKILL at the moment; the agent has no answer and sends again, to the server that took over."""
    body, sha256 = packed(agent_id="a", seq=1)
    dying = Server(tmp_path / "web.log", DYING, DATABASE_URL=database_url, GOODPUT_EXPOSE="lan")
    with dying, dying.connect() as agent:
        agent.sendall(request(body, token, X_Die=moment))
        with suppress(ConnectionResetError):
            assert agent.recv(65536) == b"", "no part of an answer"
    assert count(alpha) == (moment == "after-commit")
    first, second = (server.talk(request(body, token))[0] for _ in range(2))
    assert first.status == 202
    assert first.json()["duplicate"] is (moment == "after-commit")
    assert second.json() == {**first.json(), "duplicate": True}
    assert count(alpha, f"sha256 = '\\x{sha256}'") == 1


@pytest.mark.django_db(transaction=True)
def test_a_receipt_means_that_another_connection_sees_the_row(server: Server, alpha: Any, token: str) -> None:
    web = http.client.HTTPConnection("127.0.0.1", server.port, timeout=10)
    for seq in range(5):
        body, sha256 = packed(agent_id="a", seq=seq)
        headers = {"Content-Type": "application/msgpack", "Content-Encoding": "gzip"}
        web.request("POST", "/v1/batches", body, {**headers, "Authorization": f"Bearer {token}"})
        assert web.getresponse().read()
        assert count(alpha, f"sha256 = '\\x{sha256}'") == 1
    web.close()
