"""A small fleet for the API's tests: two clusters with hostile and plain names, a lost GPU, a quiet neighbour."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone
from django_tenants.utils import tenant_context

from fleet.folding import fold_waiting
from fleet.ingest import receive
from fleet.tests.bodies import SLOT_MS, interval, packed
from fleet.tests.test_folding import key_for

HOSTILE = '=HYPERLINK("http://x","y")'
MINUTE_MS = 60_000
HOUR_MS = 3_600_000
FIRST_MINUTE, MINUTES = 40, 75  # of north-1, counted from a whole hour
LOST_FROM, LOST_TO = 45, 50  # minutes in which GPU 1 of north-1 is gone


def get(path: str, token: str | None = None, **headers: Any) -> Any:
    """GET as a program does."""
    if token:
        headers["HTTP_AUTHORIZATION"] = f"Bearer {token}"
    return Client().get(path, HTTP_HOST="localhost", **headers)


def at(ms: int) -> str:
    """RFC 3339."""
    return datetime.fromtimestamp(ms / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


@functools.cache
def start_ms() -> int:
    """The slot's centre at the whole hour from which minutes are counted; all of them lie in the past.

    Once in a run: what is asked for and what was uploaded must count from the same hour when the clock moves on.
    """
    return (int(time.time() * 1000) - MINUTES * MINUTE_MS) // HOUR_MS * HOUR_MS + SLOT_MS // 2


def minute(first: int, number: int) -> list[dict[str, Any]]:
    """Four samples of a minute of north-1."""
    out = []
    for k in range(4):
        ts = first + number * MINUTE_MS + k * SLOT_MS
        if LOST_FROM <= number < LOST_TO:
            more: dict[str, Any] = {"pci": {"0000:10:00.0": "present", "0000:11:00.0": "absent"}}
            if number == LOST_FROM and k == 0:
                more["events"] = [{"kind": "xid", "code": 79, "pci_bus_id": "0000:11:00.0", "at": ts - 1000}]
            out.append(interval(ts, gpus=1, **more))
        else:
            out.append(interval(ts))
    return out


def fill(
    org: Any,
    name: str = "north",
    node: str = "north-1",
    with_fault: bool = True,
    minutes: int = 75,
    first: int | None = None,
) -> None:
    """Receive and fold a node's minutes; the last one ends before now."""
    first = start_ms() if first is None else first // SLOT_MS * SLOT_MS + SLOT_MS // 2
    with tenant_context(org):
        for number in range(FIRST_MINUTE, minutes):
            samples = minute(first, number)
            if not with_fault:
                samples = [interval(s["ts"]) for s in samples]
            for sample in samples:
                for each in sample["gpus"]:
                    each["uuid"] = f"GPU-{node}-{each['uuid'][4:]}"
            boot = "b1" if not (with_fault and number >= LOST_TO) else "b2"  # a new boot ends the loss
            booted = first - HOUR_MS if boot == "b1" else first + LOST_TO * MINUTE_MS - 5000
            more: dict[str, Any] = {"boot_id": boot, "boot_at": booted}
            if boot == "b2":
                more |= {"last_shutdown": "clean", "last_alive": first + LOST_TO * MINUTE_MS - 8000}
            batch = packed(cluster_id=name, node_id=node, intervals=samples, **more)
            receive(batch[0], key_for(org), {})
        fold_waiting(timezone.now())


@pytest.fixture
def filled(alpha: Any) -> Any:
    """Alpha with a faulty node in `north` and a healthy one with a hostile name in `south`."""
    fill(alpha)
    fill(alpha, "south", HOSTILE, with_fault=False, minutes=50)
    return alpha


@pytest.fixture
def read(filled: Any, key_of: Any) -> Callable[..., Any]:
    """A function: GET with a key that reads all of alpha."""
    token = key_of(filled, "read")
    return lambda path, **headers: get(path, token, **headers)


@pytest.fixture
def ask(alpha: Any, key_of: Any) -> Callable[..., Any]:
    """As `read`, of an empty fleet: for what does not depend on any node."""
    token = key_of(alpha, "read")
    return lambda path, **headers: get(path, token, **headers)


@pytest.fixture
def north_id(filled: Any) -> int:
    """The id of north-1."""
    from fleet.models import Node

    with tenant_context(filled):
        return Node.objects.get(name="north-1").pk


@pytest.fixture
def incident_id(filled: Any) -> int:
    """The id of the one incident."""
    from fleet.models import Incident

    with tenant_context(filled):
        return Incident.objects.get().pk
