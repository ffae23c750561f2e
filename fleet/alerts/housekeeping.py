"""Locks that outlive a transaction, and the end of old rows."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta

from django.db import connection

from fleet.alerts.models import Alert, Channel, Delivery, Thread

KEPT_FOR = timedelta(days=90)


@contextmanager
def alone(name: str) -> Iterator[bool]:
    """Whether this session got the lock of this name in the current schema; it is let go at the end."""
    key = [name, connection.schema_name]  # type: ignore[attr-defined]
    with connection.cursor() as cursor:
        cursor.execute("select pg_try_advisory_lock(hashtext(%s), hashtext(%s))", key)
        is_alone = bool(cursor.fetchone()[0])
    try:
        yield is_alone
    finally:
        if is_alone:
            with connection.cursor() as cursor:
                cursor.execute("select pg_advisory_unlock(hashtext(%s), hashtext(%s))", key)


def forget_old(now: datetime) -> int:
    """Remove alerts and deliveries that are older than 90 days, and what nothing refers to any more; the rows gone."""
    before = now - KEPT_FOR
    gone = Alert.objects.filter(routed_at__lt=before, dedup=None).delete()[0]
    gone += Delivery.objects.filter(created_at__lt=before).exclude(status=Delivery.Status.WAITING).delete()[0]
    gone += Thread.objects.filter(is_open=False, changed_at__lt=before, deliveries=None).delete()[0]
    return gone + Channel.objects.filter(removed_at__lt=before, deliveries=None).delete()[0]
