"""The inbox's partitions: one a week, no default, made while others read and write."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, date, datetime, timedelta
from typing import Any

import psycopg
import pytest
from django.db import connection

from fleet import ingest
from fleet.partitions import EPOCH, FIRST_DAY, LAST_DAY, ensure_partition, ensure_partitions, sample_day, week_of
from fleet.tests.bodies import packed
from fleet.tests.ingest.uploads import count, holding, packed_raw, post, post_raw

FAR = date(2031, 5, 14)  # a week that nothing else in the tests touches


def ms(day: date) -> int:
    """The first ms of a UTC day."""
    return int(datetime(day.year, day.month, day.day, tzinfo=UTC).timestamp()) * 1000


def partitions(schema: str) -> dict[str, str]:
    """name -> bounds of the partitions that are attached."""
    with connection.cursor() as cursor:
        cursor.execute(
            "select c.relname, pg_get_expr(c.relpartbound, c.oid) from pg_inherits i"
            " join pg_class c on c.oid = i.inhrelid where i.inhparent = %s::regclass",
            [f'"{schema}".fleet_inbox'],
        )
        return dict(cursor.fetchall())


def drop(schema: str, day: date) -> None:
    """Remove a partition that a test committed."""
    with connection.cursor() as cursor:
        cursor.execute(f'drop table if exists "{schema}"."fleet_inbox_{week_of(day):%Y%m%d}"')


@pytest.mark.parametrize(
    ("ts", "day"),
    [
        (0, EPOCH),
        (ms(FIRST_DAY) - 1, EPOCH),
        (ms(FIRST_DAY), FIRST_DAY),
        (ms(date(2026, 11, 29)) + 86_399_999, date(2026, 11, 29)),
        (ms(date(2026, 11, 30)), date(2026, 11, 30)),
        (ms(LAST_DAY) + 86_399_999, LAST_DAY),
        (ms(LAST_DAY) + 86_400_000, EPOCH),
        (253_402_300_799_999, EPOCH),
        (2**63 - 1, EPOCH),
        (-1, EPOCH),
    ],
)
def test_the_day_of_a_batch_is_the_utc_day_of_its_first_sample(ts: int, day: date) -> None:
    assert sample_day(ts) == day


def test_weeks_start_on_monday_and_the_last_day_ends_one() -> None:
    assert week_of(date(2026, 11, 29)) == date(2026, 11, 23)
    assert week_of(date(2026, 11, 30)) == date(2026, 11, 30)
    assert LAST_DAY.isoweekday() == 7
    assert week_of(FIRST_DAY) > EPOCH


@pytest.mark.django_db
def test_there_is_no_default_partition_and_absurd_days_have_their_own(alpha: Any, token: str) -> None:
    for ts in (0, 86_400_000 * 365, 253_402_300_800_000):
        assert post_raw(packed_raw(holding("INTERVAL", ts=ts)), token).status == 202
    bounds = partitions(alpha.schema_name)
    assert not any(bound == "DEFAULT" for bound in bounds.values())
    assert bounds["fleet_inbox_unknown_time"] == "FOR VALUES FROM ('1970-01-01') TO ('2024-12-30')"
    with connection.cursor() as cursor:
        cursor.execute(f'select count(*) from "{alpha.schema_name}".fleet_inbox_unknown_time')
        assert cursor.fetchone()[0] == 3


@pytest.mark.django_db
def test_the_first_and_last_ms_of_a_week_meet_its_partition(alpha: Any, token: str) -> None:
    monday = week_of(FAR)
    for ts in (ms(monday) - 1, ms(monday), ms(monday) + 7 * 86_400_000 - 1, ms(monday) + 7 * 86_400_000):
        assert post_raw(packed_raw(holding("INTERVAL", ts=ts)), token).status == 202
    made = {name for name in partitions(alpha.schema_name) if "2031" in name}
    assert made == {f"fleet_inbox_{monday + timedelta(weeks=n):%Y%m%d}" for n in (-1, 0, 1)}
    with connection.cursor() as cursor:
        cursor.execute(f'select count(*) from "{alpha.schema_name}"."fleet_inbox_{monday:%Y%m%d}"')
        assert cursor.fetchone()[0] == 2


@pytest.mark.django_db
def test_a_new_partition_has_the_indexes_and_storage_of_its_parent(alpha: Any) -> None:
    assert ensure_partition(alpha.schema_name, FAR) is True
    assert ensure_partition(alpha.schema_name, FAR) is False
    name = f"fleet_inbox_{week_of(FAR):%Y%m%d}"
    with connection.cursor() as cursor:
        cursor.execute(
            "select count(*) from pg_indexes where schemaname = %s and tablename = %s", [alpha.schema_name, name]
        )
        assert cursor.fetchone()[0] == 4
        cursor.execute(
            "select attstorage from pg_attribute where attrelid = %s::regclass and attname = 'body'",
            [f'"{alpha.schema_name}"."{name}"'],
        )
        assert cursor.fetchone()[0] in ("e", b"e")
        cursor.execute(
            "select count(*) from pg_constraint where conrelid = %s::regclass and conname like '%%_range'",
            [f'"{alpha.schema_name}"."{name}"'],
        )
        assert cursor.fetchone()[0] == 0, "the check only served the attaching"


@pytest.mark.django_db
def test_partitions_are_made_ahead(alpha: Any) -> None:
    now = datetime(2031, 5, 14, tzinfo=UTC)
    assert ensure_partitions(alpha.schema_name, now) == 5
    assert ensure_partitions(alpha.schema_name, now) == 0
    assert ensure_partitions(alpha.schema_name, now + timedelta(weeks=1)) == 1


@pytest.mark.django_db
@pytest.mark.parametrize("later", [timedelta(days=1), timedelta(days=31), timedelta(days=400)])
def test_the_same_bytes_meet_the_same_row_after_midnight_and_after_a_month(
    later: timedelta, alpha: Any, token: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    body = packed(first_ts=ms(date(2026, 11, 29)) + 86_399_000)[0]  # across midnight and a week's end
    first = post(body, token).json()
    later_s = time.time() + later.total_seconds()
    monkeypatch.setattr("time.time", lambda: later_s)
    ingest._known_partitions.clear()
    assert post(body, token).json() == {**first, "duplicate": True}
    assert count(alpha, "sample_day = '2026-11-29'") == 1


@pytest.mark.django_db(transaction=True)
def test_ten_at_once_make_one_partition_and_lose_no_batch(alpha: Any, token: str) -> None:
    """Ten threads with empty memories, as ten processes after a restart at the week's turn."""
    gate = threading.Barrier(10)

    class Forgetful(set):  # type: ignore[type-arg]
        def __contains__(self, item: object) -> bool:
            return False

    def upload(number: int) -> int:
        try:
            gate.wait(timeout=20)
            return post(packed(first_ts=ms(FAR), seq=number)[0], token).status
        finally:
            connection.close()

    with pytest.MonkeyPatch.context() as patch, ThreadPoolExecutor(10) as pool:
        patch.setattr(ingest, "_known_partitions", Forgetful())
        assert list(pool.map(upload, range(10))) == [202] * 10
    try:
        assert count(alpha) == 10
        assert sum("20310512" in name for name in partitions(alpha.schema_name)) == 1
    finally:
        drop(alpha.schema_name, FAR)


@pytest.mark.django_db(transaction=True)
def test_a_long_reader_stops_neither_ingest_nor_a_new_partition(alpha: Any, token: str, database_url: str) -> None:
    assert post(packed()[0], token).status == 202
    with psycopg.connect(database_url) as reader:
        with reader.cursor() as cursor:
            cursor.execute(f'select * from "{alpha.schema_name}".fleet_inbox')  # holds its locks until it commits
        with connection.cursor() as cursor:
            cursor.execute("set statement_timeout = '3s'")
        try:
            assert post(packed(node_id="n2")[0], token).status == 202
            assert post(packed(first_ts=ms(FAR))[0], token).status == 202, "a new week while the reader reads"
        finally:
            with connection.cursor() as cursor:
                cursor.execute("set statement_timeout = 0")
        reader.rollback()
    drop(alpha.schema_name, FAR)


@pytest.mark.django_db(transaction=True)
def test_a_partition_that_was_dropped_behind_the_process_is_made_again(alpha: Any, token: str) -> None:
    assert post(packed(first_ts=ms(FAR))[0], token).status == 202
    drop(alpha.schema_name, FAR)
    assert post(packed(first_ts=ms(FAR))[0], token).status == 202
    assert count(alpha) == 1
    drop(alpha.schema_name, FAR)


@pytest.mark.django_db(transaction=True)
def test_a_partition_that_cannot_be_locked_gives_a_503_and_then_a_receipt(
    alpha: Any, token: str, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever holds the parent exclusively makes uploads wait, never fail for good."""
    monkeypatch.setattr("fleet.partitions.LOCK_TIMEOUT", "200ms")
    with psycopg.connect(database_url) as other:
        other.execute(f'lock table "{alpha.schema_name}".fleet_inbox in share update exclusive mode')
        answer = post(packed(first_ts=ms(FAR))[0], token)
        assert (answer.status, answer.code) == (503, "not_stored")
        assert answer.headers["retry-after"]
        assert post(packed()[0], token).status == 202, "known weeks go on"
        other.rollback()
    assert post(packed(first_ts=ms(FAR))[0], token).status == 202
    drop(alpha.schema_name, FAR)
