"""The page of a slot of a GPU: its verdict, the facts that decided it, those beside it, what odd addresses give."""

from __future__ import annotations

import re
from typing import Any

import pytest
from django.utils import timezone
from django_tenants.utils import tenant_context

from fleet.domain.slots import HOUR_MS, SLOT_MS, slot_of
from fleet.fleet_json import when
from fleet.models import Inbox
from fleet.selectors_live import to_ms
from fleet.tests.bodies import gpu, interval
from fleet.tests.test_pages import fill, text_of
from fleet.tests.test_pages_node import only_node, store

pytestmark = pytest.mark.django_db


def at_slot(slot: int) -> str:
    return when(slot * SLOT_MS) or ""


def test_a_slot_shows_its_verdict_the_facts_and_their_hash(alpha: Any, ada: Any, client_of: Any) -> None:
    fill(alpha, nodes=1, minutes=20)
    slot = slot_of(to_ms(timezone.now())) - 40
    response = client_of(ada).get(f"/o/alpha/nodes/{only_node(alpha)}/gpus/2/?at={at_slot(slot)}")
    words = text_of(response)
    assert "Available" in words
    assert "in this slot" in words
    assert "SM clock" in words
    with tenant_context(alpha):
        hashes = {bytes(sha256).hex() for sha256 in Inbox.objects.values_list("sha256", flat=True)}
    assert any(f"SHA-256 {sha256}" in response.content.decode() for sha256 in hashes)
    assert response.content.decode().count('class="lane') == 9  # the list and each of its eight GPUs


def test_an_hour_without_evidence_is_unknown(alpha: Any, ada: Any, client_of: Any) -> None:
    fill(alpha, nodes=1, minutes=5)
    slot = slot_of(to_ms(timezone.now())) - 5760
    words = text_of(client_of(ada).get(f"/o/alpha/nodes/{only_node(alpha)}/gpus/0/?at={at_slot(slot)}"))
    assert "Unknown: No data" in words
    assert "No sample in this slot" in words
    assert "None lies near it either." in words


def test_a_slot_shows_the_facts_that_decided_it(alpha: Any, ada: Any, client_of: Any) -> None:
    """The time counter and the share of a throttled slot, the PCI bus's word of a lost GPU, a port that is down."""
    first = (int(timezone.now().timestamp() * 1000) // SLOT_MS - 12) * SLOT_MS + SLOT_MS // 2
    port = {"device": "mlx5_0", "port": 1, "state": "DOWN", "phys_state": "Polling"}
    hot = gpu(0, sm_clock=990, throttle_time={"hw_thermal": 6000}, power_limit=700_000)
    samples = [
        interval(first + k * SLOT_MS, gpus=2, ib_ports=[port], pci={"0000:10:00.0": "present", "0000:11:00.0": "dead"})
        | ({"gpus": [hot]} if k else {})
        for k in range(4)
    ]
    store(alpha, intervals=samples)
    page, node_id = client_of(ada), only_node(alpha, "n1")
    at = at_slot(first // SLOT_MS + 2)
    words = text_of(page.get(f"/o/alpha/nodes/{node_id}/gpus/0/?at={at}"))
    assert "hw thermal 6.0 s" in words
    assert "50 of 100 when it is all of it; 80 for this slot’s share" in words
    assert "700.0 W" in words
    assert "port mlx5_0/1 DOWN (Polling)" in words
    words = text_of(page.get(f"/o/alpha/nodes/{node_id}/gpus/1/?at={at}"))
    assert "This sample does not list the GPU; the PCI bus says that it is dead." in words


def test_a_slot_of_a_dead_node_shows_the_samples_around_and_the_boot_that_tells(
    alpha: Any, ada: Any, client_of: Any
) -> None:
    first = (int(timezone.now().timestamp() * 1000) // SLOT_MS - 200) * SLOT_MS + SLOT_MS // 2
    back = first + 120 * SLOT_MS
    store(alpha, boot_id="b1", agent_id="a", seq=1, intervals=[interval(first + k * SLOT_MS) for k in range(4)])
    more = {"boot_id": "b2", "boot_at": back - 20_000, "last_shutdown": "unclean", "last_alive": first + 4 * SLOT_MS}
    store(alpha, agent_id="a", seq=2, intervals=[interval(back + k * SLOT_MS) for k in range(4)], **more)
    at = at_slot(first // SLOT_MS + 60)
    words = text_of(client_of(ada).get(f"/o/alpha/nodes/{only_node(alpha, 'n1')}/gpus/0/?at={at}"))
    assert "Node lost" in words
    assert "No sample in this slot" in words
    assert re.search(r"Another boot, begun .*; the one before ended unclean, last alive", words)


def test_a_blind_driver_is_not_said_to_miss_the_gpu_and_repeated_lines_are_one(
    alpha: Any, ada: Any, client_of: Any
) -> None:
    first = (int(timezone.now().timestamp() * 1000) // SLOT_MS - 12) * SLOT_MS + SLOT_MS // 2
    lines = [{"kind": "xid", "code": 13, "pci_bus_id": "0000:10:00.0", "at": first + k} for k in range(5)]
    blind = {"nvml": "timeout", "ib": "absent", "kmsg": "ok", "pci": "ok"}
    samples = [interval(first + k * SLOT_MS, **({"gpus": 0, "sources": blind} if k > 1 else {})) for k in range(4)]
    samples[1]["events"] = lines
    store(alpha, intervals=samples)
    at = at_slot(first // SLOT_MS + 2)
    words = text_of(client_of(ada).get(f"/o/alpha/nodes/{only_node(alpha, 'n1')}/gpus/0/?at={at}"))
    assert "NVML: timeout. It says nothing of the GPU." in words
    assert "does not list the GPU" not in words
    assert "× 5" in words


def test_a_slot_before_the_first_sample_says_so(alpha: Any, ada: Any, client_of: Any) -> None:
    first = (int(timezone.now().timestamp() * 1000) // HOUR_MS) * HOUR_MS - 150 * 60_000 + SLOT_MS // 2
    store(alpha, intervals=[interval(first + k * SLOT_MS) for k in range(4)])
    at = at_slot(first // SLOT_MS - 20)
    words = text_of(client_of(ada).get(f"/o/alpha/nodes/{only_node(alpha, 'n1')}/gpus/0/?at={at}"))
    assert "Unknown: before the first sample" in words
    assert words.count("Not closed yet") == 1  # after the last sample, in the list of the hour


@pytest.mark.parametrize(
    "at",
    ["x", "2026-99-99", "1999-01-01T00:00:00Z", "2999-01-01T00:00:00Z", "9" * 11, "%00", "0001-01-01T00:00:00+14:00"],
)
def test_a_bad_instant_is_said_to_be_one(at: str, alpha: Any, ada: Any, client_of: Any) -> None:
    fill(alpha, nodes=1, minutes=3)
    response = client_of(ada).get(f"/o/alpha/nodes/{only_node(alpha)}/gpus/0/?at={at}")
    assert response.status_code == 422
    assert "at: an instant" in text_of(response)


def test_a_gpu_that_is_not_there_is_not_found(alpha: Any, ada: Any, client_of: Any) -> None:
    fill(alpha, nodes=1, minutes=3)
    for index in (8, 64, 99999999999):
        assert client_of(ada).get(f"/o/alpha/nodes/{only_node(alpha)}/gpus/{index}/").status_code == 404
