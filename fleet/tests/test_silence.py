"""A node that falls silent with an open fault: its hours are held, provisionally, and written anew when it returns."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
from django.utils import timezone
from django_tenants.utils import tenant_context

from fleet.folding import fold_waiting
from fleet.ingest import receive
from fleet.models import NodeHour
from fleet.silence import close_silence
from fleet.tests.bodies import interval, packed
from fleet.tests.test_folding import FIRST_MS, HOUR_MS, key_for

pytestmark = pytest.mark.django_db
SLOT_MS = 15_000
START_MS = (FIRST_MS // HOUR_MS) * HOUR_MS + SLOT_MS // 2


@pytest.fixture
def inside(alpha: Any) -> Iterator[Any]:
    """The test runs inside alpha's schema."""
    with tenant_context(alpha):
        yield alpha


def lost(ts: int, with_xid: bool = False) -> dict[str, Any]:
    """A sample in which GPU 1 is gone and PCI says so."""
    pci = {"0000:10:00.0": "present", "0000:11:00.0": "absent"}
    more: dict[str, Any] = {"pci": pci}
    if with_xid:
        more["events"] = [{"kind": "xid", "code": 79, "pci_bus_id": "0000:11:00.0", "at": ts - 1000}]
    return interval(ts, gpus=1, **more)


def send(org: Any, minute: int, **more: Any) -> None:
    """Receive one minute and fold it."""
    receive(
        packed(first_ts=START_MS + minute * 60_000, boot_id="b1", boot_at=START_MS - HOUR_MS, **more)[0],
        key_for(org),
        {},
    )
    fold_waiting(timezone.now())


def minute_of_loss(minute: int) -> list[dict[str, Any]]:
    """Four samples with GPU 1 lost."""
    first = START_MS + minute * 60_000
    return [lost(first + k * SLOT_MS, with_xid=minute == 2 and k == 0) for k in range(4)]


def at(hours: float) -> datetime:
    """That many hours after the first sample."""
    return datetime.fromtimestamp((START_MS + hours * HOUR_MS) / 1000, UTC)


def test_an_open_fault_is_held_through_silence_and_decided_on_return(inside: Any) -> None:
    send(inside, 0)
    send(inside, 1)
    send(inside, 2, intervals=minute_of_loss(2))
    send(inside, 3, intervals=minute_of_loss(3))
    assert close_silence(at(2.5)) == 1
    hours = list(NodeHour.objects.order_by("hour"))
    assert [hour.hour - hours[0].hour for hour in hours] == [0, 1, 2]
    assert hours[1].held_s == 3600  # the lost GPU, nobody repaired it
    assert hours[1].unknown_s == 3600  # its neighbour, of which nothing is known
    assert not hours[1].is_final
    assert hours[1].lower_sum == 2 * 3600 * 100  # a claim counts none of it without a record
    before = {hour.hour: bytes(hour.body) for hour in hours}
    assert close_silence(at(2.5)) == 1
    assert {hour.hour: bytes(hour.body) for hour in NodeHour.objects.all()} == before  # the same again, nothing new

    send(inside, 170)  # it returns with both GPUs
    again = list(NodeHour.objects.order_by("hour"))
    assert again[1].is_final
    assert again[1].held_s + again[1].down_s >= 3600
    assert again[1].unknown_s == 3600
    assert again[2].observed_s > 0


def test_a_silent_node_without_a_fault_gets_no_rows(inside: Any) -> None:
    send(inside, 0)
    assert close_silence(at(5)) == 0
    assert NodeHour.objects.count() == 1
