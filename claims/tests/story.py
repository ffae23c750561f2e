"""Two months of two simulated nodes for the story of `test_two_months`: real uploads around the faults, folded.

gpu-017 loses GPU 3 for three hours in September, and can't be reached for ninety minutes of October, over the change of
clocks. gpu-018 is well and is heard throughout: it is the peer that witnesses. The hours in between are written as the
fold writes healthy ones.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Any

from django.db import connection

from agent import wire
from claims.tests.months import GPUS
from fleet import simulation
from fleet.bodies import compress
from fleet.domain.rules import load_rules
from fleet.domain.slots import HOUR_MS, SLOT_MS
from fleet.domain.strips import HourRow
from fleet.domain.verdicts import HEALTHY
from fleet.folding import fold_waiting
from fleet.ingest import receive
from fleet.models import Cluster, Node, NodeHour, ProbeRun, ProbeTarget
from fleet.refolding import refold_dirty
from fleet.tests.test_folding import key_for

CLUSTER = "train-a"
LOST_GPU = 3
SEPTEMBER = datetime(2026, 9, 12, tzinfo=UTC)
#: GPU 3 is gone from 10:00 to 13:00; uploads from 08:00 to 14:00.
FIRST_WINDOW = (SEPTEMBER.replace(hour=8), SEPTEMBER.replace(hour=14))
LOST = (SEPTEMBER.replace(hour=10), SEPTEMBER.replace(hour=13))
#: Berlin's clocks change at 01:00 UTC.
OCTOBER = datetime(2026, 10, 25, tzinfo=UTC)
SECOND_WINDOW = (OCTOBER - timedelta(hours=1), OCTOBER.replace(hour=4))
CUT = (OCTOBER.replace(minute=30), OCTOBER.replace(hour=2))
MONTHS = (datetime(2026, 8, 31, tzinfo=UTC), datetime(2026, 11, 2, tzinfo=UTC))


def ms(at: datetime) -> int:
    """Milliseconds since 1970."""
    return round(at.timestamp() * 1000)


class Fleet:
    """The uploads of both nodes, in the order of time, into one org."""

    def __init__(self, org: Any) -> None:
        plan = simulation.Plan(CLUSTER, 1, ms(FIRST_WINDOW[0]), ms(SECOND_WINDOW[1]), 7, "healthy")
        self.org = org
        self.first_ms = plan.first_ms
        self.nodes = {name: simulation.History(plan, name) for name in ("gpu-017", "gpu-018")}
        for number, history in enumerate(self.nodes.values()):
            history._seq = number * 1_000_000  # one plan gives both the same installation

    def upload(self, start: datetime, end: datetime) -> None:
        """Everything that the nodes sent in `[start, end)`, received when it was sent, and folded."""
        received: list[tuple[datetime, bytes]] = []
        for minute in range((ms(start) - self.first_ms) // 60_000, (ms(end) - self.first_ms) // 60_000):
            at = datetime.fromtimestamp(self.first_ms / 1000 + minute * 60, UTC)
            for name, history in self.nodes.items():
                batch = history.batch(minute)
                if name == "gpu-017":
                    if CUT[0] <= at < CUT[1]:
                        continue  # nothing arrives, and nothing was kept
                    self._lose(batch)
                receipt = receive(wire.pack(batch)[0], key_for(self.org), {})
                received.append((at + timedelta(minutes=1), bytes.fromhex(receipt.batch_sha256)))
        with connection.cursor() as cursor:
            cursor.execute("alter table fleet_inbox disable trigger user")  # facts change in a story's past only
            cursor.executemany("update fleet_inbox set received_at = %s where sha256 = %s", received)
            cursor.execute("alter table fleet_inbox enable trigger user")
        self._fold(end)

    def _lose(self, batch: dict[str, Any]) -> None:
        for interval in batch["intervals"]:
            if ms(LOST[0]) <= interval["ts"] < ms(LOST[1]):
                gone = interval["gpus"].pop(LOST_GPU)["pci_bus_id"]
                interval["pci"] = {**interval.get("pci", {}), gone: "dead"}

    def _fold(self, now: datetime) -> None:
        while fold_waiting(now):
            pass
        while refold_dirty(now):
            pass

    def probe(self) -> None:
        """A probe that saw gpu-017 up, then failed throughout the cut. Before the second window is uploaded."""
        node = Node.objects.get(name="gpu-017")
        target = ProbeTarget.objects.create(node=node, address="192.0.2.17", port=22, author="story", from_at=MONTHS[0])
        for outcome, first, last in (
            ("ok", SECOND_WINDOW[0], CUT[0] - timedelta(seconds=15)),
            ("failed", CUT[0], CUT[1] - timedelta(seconds=15)),
            ("ok", CUT[1], SECOND_WINDOW[1]),
        ):
            rounds = round((last - first).total_seconds()) // 15
            ProbeRun.objects.create(
                target=target, node=node, outcome=outcome, first_at=first, last_at=last, rounds=rounds
            )
        from fleet.dated import forget

        forget()

    def fill(self) -> None:
        """Healthy hours around the windows; the silence between the uploads is no part of the story."""
        real = [range(ms(a) // HOUR_MS, ms(b) // HOUR_MS) for a, b in (FIRST_WINDOW, SECOND_WINDOW)]
        hours = [h for h in range(ms(MONTHS[0]) // HOUR_MS, ms(MONTHS[1]) // HOUR_MS) if not any(h in r for r in real)]
        for node in Node.objects.filter(cluster=Cluster.objects.get(name=CLUSTER)):
            NodeHour.objects.filter(node=node, hour__in=hours).delete()
            rows = []
            for hour in hours:
                row = HourRow(hour, load_rules().version)
                first = hour * HOUR_MS // SLOT_MS
                for subject in ("n", *GPUS):
                    row.put(subject, first, first + 240, HEALTHY)
                rows.append(NodeHour(node=node, hour=hour, body=compress(row.to_bytes()), rules=row.rules_version))
            NodeHour.objects.bulk_create(rows, batch_size=500)


PLACES = [f"gpu-017/gpu{index}" for index in range(8)]
COMMON: dict[str, Any] = {
    "version": "1", "zone": "Europe/Berlin", "pooling": "each", "ambiguous_counts": False, "min_duration_s": 0,
    "bridging_s": 0, "minute_rule": "slots", "denominator": "full_month", "exclusion_mode": "counted_as_up",
    "excludes": ["maintenance"], "maintenance_notice_h": 24, "clock_start": "measured", "currency": "EUR",
    "cap": "none", "minimum": "none", "effective_from": "2026-09-01", "provider": "Northwind Cloud",
    "customer": "Acme Research GmbH", "filing_channel": "support portal",
    "deadline": {"count": 60, "unit": "days", "after": "period_end"},
}  # fmt: skip
CONTRACTS: dict[str, dict[str, Any]] = {
    "Instance tier": {
        **COMMON, "name": "Instance tier", "kind": "tiers", "counts": ["unreachable"], "scope": "node",
        "tiers": [["99.9", "10"], ["99", "25"]], "fee_charged": "7000.00", "units": [{"name": "gpu-017"}],
    },
    "Hardware pro rata": {
        **COMMON, "name": "Hardware pro rata", "kind": "pro_rata", "counts": ["hardware_failure"], "scope": "node",
        "commitment": "99.9", "allowance": "deducted", "min_healthy": 8, "fee_charged": "7000.00",
        "units": [{"name": "gpu-017", "members": PLACES}],
    },
    "Weighted": {
        **COMMON, "name": "Weighted", "kind": "weighted", "counts": ["hardware_failure", "degraded", "network"],
        "scope": "gpu", "tiers": [["99.95", "5"], ["99", "20"]], "fee_charged": "7000.00",
        "units": [{"name": "gpu-017", "members": PLACES}],
    },
}  # fmt: skip


class Pages:
    """A person with a browser: sessions, and forms that carry their token."""

    def __init__(self, client: Any, org: str) -> None:
        self.client, self.base = client, f"/o/{org}/"
        client.handler.enforce_csrf_checks = True

    def get(self, path: str) -> str:
        """A page that opens."""
        response = self.client.get(self.base + path)
        assert response.status_code == 200, (path, response.status_code)
        return response.content.decode()

    def send(self, form_on: str, path: str, **values: str) -> str:
        """Send the form that stands on a page, with its token; the page that follows."""
        page = self.get(form_on)
        assert f'action="{self.base}{path}"' in page or path == form_on, (form_on, path)
        token = re.search(r'name="csrfmiddlewaretoken" value="(\w+)"', page)
        assert token is not None, form_on
        response = self.client.post(self.base + path, {**values, "csrfmiddlewaretoken": token[1]}, follow=True)
        assert response.status_code == 200, (path, response.status_code, response.content[:300])
        page = response.content.decode()
        assert 'note bad" role="alert"' not in page, page[page.index("note bad") :][:300]
        return page
