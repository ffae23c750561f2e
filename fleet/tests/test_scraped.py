"""From an exporter's text to verdicts: a renter without our agent gets a timeline, and no more than is known."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.utils import timezone
from django_tenants.utils import tenant_context

from agent.clock import SYNCHRONISED, Instant
from agent.collect.prom import LABEL, RemoteClock, Scrape, scraped_collectors
from agent.node import Node
from agent.schedule import next_centre
from agent.store import Store
from agent.tests.exporter import Exporter
from fleet.bodies import load_row
from fleet.domain.slots import SLOT_MS, first_slot, hour_of_slot
from fleet.domain.verdicts import State, Verdict
from fleet.folding import fold_waiting
from fleet.ingest import receive
from fleet.models import NodeHour, NodeLive
from fleet.refolding import refold_dirty
from orgs.keys import KeyInfo

pytestmark = pytest.mark.django_db


@pytest.fixture
def inside(alpha: Any) -> Iterator[Any]:
    """The test runs inside alpha's schema."""
    with tenant_context(alpha):
        yield alpha


class Renter:
    """A machine beside the GPU node that scrapes its exporter and delivers what it finds."""

    def __init__(self, org: Any, directory: Path) -> None:
        self.org, self.exporter = org, Exporter()
        self.now_ms = (int(time.time()) - 3600) * 1000
        scrape = Scrape([self.exporter.url])
        clock = RemoteClock(self, scrape)
        self.store = Store(directory)
        collectors = scraped_collectors(scrape)
        self.node = Node("rented", "gpu-01", clock, collectors, self.store, boot=clock.boot, label=LABEL)

    def now(self) -> Instant:
        """The scraping machine's clock."""
        return Instant(self.now_ms, 5, 5, "its own boot", 1, SYNCHRONISED, 3)

    def run(self, samples: int) -> int:
        """Takes samples; the instant of the first one."""
        first = next_centre(self.now_ms)
        for _ in range(samples):
            self.now_ms = next_centre(self.now_ms)
            self.node.sample()
        self.store.assemble(self.now_ms)
        key = KeyInfo(0, "test", frozenset({"ingest"}), "", None, self.org.pk, self.org.slug, self.org.schema_name)
        while (leased := self.store.lease(0)) is not None:
            outbox, batch = leased
            receive(batch.body, key, {})
            outbox.delivered(batch, self.now_ms, None)
        fold_waiting(timezone.now())
        while refold_dirty(timezone.now()):
            pass
        return first


def verdict(subject: str, at_ms: int) -> Verdict:
    """The stored verdict of the slot that holds this instant."""
    slot = at_ms // SLOT_MS
    hour = NodeHour.objects.get(hour=hour_of_slot(slot))
    return load_row(hour.body).verdicts(subject)[slot - first_slot(hour.hour)]


def test_an_exporter_gives_a_timeline(inside: Any, tmp_path: Path) -> None:
    renter = Renter(inside, tmp_path)
    exporter = renter.exporter
    healthy = renter.run(8)
    exporter.gpus[0].update({"DCGM_FI_DEV_CLOCKS_EVENT_REASONS": "64", "DCGM_FI_DEV_SM_CLOCK": "900"})
    hot = renter.run(8)
    exporter.gpus[0].update({"DCGM_FI_DEV_CLOCKS_EVENT_REASONS": "0", "DCGM_FI_DEV_SM_CLOCK": "1980"})
    renter.run(4)
    exporter.status = 503
    blind = renter.run(8)
    exporter.status = 200
    again = renter.run(8)
    renter.exporter.close()

    assert (verdict("g0", healthy + 60_000).state, verdict("g0", healthy + 60_000).nominal) == (State.OBSERVED, 100)
    throttled = verdict("g0", hot + 60_000)
    assert (throttled.nominal, "HW_THERMAL_SLOWDOWN" in "".join(throttled.certain) or throttled.certain) != (100, ())
    assert 0 < (throttled.nominal or 0) < 100
    assert verdict("g1", hot + 60_000).nominal == 100
    dark = verdict("g0", blind + 60_000)
    assert dark.state == State.UNKNOWN  # what nobody can read is neither up nor down
    assert verdict("g0", again + 60_000).nominal == 100
    live = NodeLive.objects.get()
    assert live.agent_version.endswith("+prometheus")
    assert live.summary["sources"]["kmsg"] == "absent"  # nobody reads its kernel log, and the page says so


def test_a_gpu_that_the_exporter_no_longer_tells_of_is_not_simply_down(inside: Any, tmp_path: Path) -> None:
    """Nothing on the bus or in the kernel log says that it is gone; the fold's own rule for that decides."""
    renter = Renter(inside, tmp_path)
    renter.run(8)
    del renter.exporter.gpus[1]
    gone = renter.run(8)
    renter.exporter.close()
    missing = verdict("g1", gone + 60_000)
    assert missing.lower == 100  # nothing to claim money for
    assert "GPU_MISSING" in missing.possible
    assert verdict("g0", gone + 60_000).nominal == 100
