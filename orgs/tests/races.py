"""Two acts beside each other, each on a thread and a connection of its own, in real transactions."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

from django.db import connection, connections, transaction
from django_tenants.utils import tenant_context

Act = Callable[[], Any]


def told(org: Any, act: Act, refusals: tuple[type[Exception], ...] = ()) -> Any:
    """What the act returns inside the org on this thread's own connection, or the words of its refusal."""
    try:
        with tenant_context(org):
            return act()
    except refusals as error:
        return str(error)
    finally:
        connections.close_all()


def at_once(org: Any, *acts: Act, refusals: tuple[type[Exception], ...] = ()) -> list[Any]:
    """What came of each act; all start together."""
    ready = threading.Barrier(len(acts), timeout=60)

    def run(act: Act) -> Any:
        ready.wait()
        return told(org, act, refusals)

    with ThreadPoolExecutor(len(acts)) as pool:
        return list(pool.map(run, acts))


def beside(org: Any, first: Act, second: Act, refusals: tuple[type[Exception], ...] = ()) -> tuple[Any, Any]:
    """The first act is done and not committed when the second begins; it commits when that waits for it or is over."""
    is_done, may_commit = threading.Event(), threading.Event()

    def held() -> Any:
        with transaction.atomic():
            result = first()
            is_done.set()
            assert may_commit.wait(120)
        return result

    with ThreadPoolExecutor(2) as pool, finally_set(may_commit):
        one = pool.submit(told, org, held, refusals)
        wait_for(lambda: is_done.is_set() or one.done())
        other = pool.submit(told, org, second, refusals)
        wait_for(lambda: other.done() or someone_waits())
        may_commit.set()
        return one.result(120), other.result(120)


@contextmanager
def finally_set(event: threading.Event) -> Iterator[None]:
    """Sets it whatever happens, so that no thread waits for ever."""
    try:
        yield
    finally:
        event.set()


def someone_waits() -> bool:
    """Whether a statement in this database waits for another's lock; true to the moment, within a transaction as well.

    A wait for a row's lock names no database, the waiting process's other locks do.
    """
    with connection.cursor() as cursor:
        cursor.execute(
            "select exists (select 1 from pg_locks waits join pg_locks its using (pid) where not waits.granted"
            " and its.database = (select oid from pg_database where datname = current_database()))"
        )
        return bool(cursor.fetchone()[0])


def wait_for(condition: Callable[[], bool]) -> None:
    """Until it holds. Fails after a minute."""
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)
