"""Reads: a 1,000-GPU month of rollups, the Fleet page, `/v1/fleet`. The rows are cloned from one folded day, labelled.

R6 = time of the month's sum / one numpy bincount over as many slots (172.8 million).
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from typing import Any

import numpy as np

from benchmarks.common import repeat, show

NODES, HOURS, PROPER_HOURS = 125, 720, 25
SLOTS = 1000 * 240 * HOURS


def run(rounds: int) -> dict[str, Any]:
    """Measure and print; the figures."""
    os.environ["DJANGO_SETTINGS_MODULE"] = "goodput_site.settings"
    subprocess.check_call([sys.executable, "manage.py", "prepare"], stdout=subprocess.DEVNULL)
    import django

    django.setup()
    from django_tenants.utils import tenant_context

    from orgs.models import Org

    org = Org.objects.get(slug="local")
    with tenant_context(org):
        _fill()
    slots = np.random.default_rng(0).integers(0, 3, SLOTS, dtype=np.uint8)
    figures = repeat(rounds, lambda number: _round(org, slots), "bincount_ms")
    show(
        f"reads: {NODES} nodes, {NODES * 8} GPUs, {HOURS} hours",
        figures,
        [
            ("month_ms", "sum of the month's rollups, ms (goal ≤ 150)"),
            ("bincount_ms", "calibrator: numpy bincount over the month's slots, ms"),
            ("R6", "R6: month's sum / bincount"),
            ("page_ms", "Fleet page, 24 h, ms of server time (goal ≤ 300)"),
            ("page_kb", "Fleet page, kB (goal ≤ 300)"),
            ("month_page_ms", "Fleet page, 30 d, ms of server time"),
            ("api_ms", "/v1/fleet, ms of server time"),
            ("api_kb", "/v1/fleet, kB"),
        ],
    )
    return figures


def _fill() -> None:
    """One real node's day, folded, then cloned to all nodes and back over the month."""
    from django.utils import timezone

    from fleet.bodies import compress, load_row
    from fleet.folding import fold_waiting
    from fleet.ingest import receive
    from fleet.models import Node, NodeHour, NodeLive
    from fleet.simulation import Plan, uploads
    from orgs.keys import KeyInfo
    from orgs.models import Org

    org = Org.objects.get(slug="local")
    key = KeyInfo(0, "bench", frozenset({"ingest"}), "", None, org.pk, org.slug, org.schema_name)
    end_ms = int(time.time()) // 60 * 60_000
    plan = Plan("bench", 1, end_ms - PROPER_HOURS * 3_600_000, end_ms, 4)
    for body, _ in uploads(plan):
        receive(body, key, {})
    fold_waiting(timezone.now())
    model = Node.objects.get()
    live = NodeLive.objects.get()
    hours = list(NodeHour.objects.order_by("hour"))
    twins = Node.objects.bulk_create(
        [Node(cluster=model.cluster, identity=f"name:bench-{n}", name=f"bench-{n:04d}") for n in range(1, NODES)]
    )
    copied = {field.name: getattr(live, field.name) for field in NodeLive._meta.fields if field.name != "node"}
    NodeLive.objects.bulk_create([NodeLive(node=twin, **copied) for twin in twins])
    past = []
    oldest = load_row(hours[1].body)
    for back in range(1, HOURS - len(hours) + 1):
        oldest.hour = hours[0].hour - back
        past.append((oldest.hour, compress(oldest.to_bytes()), hours[1]))
    rows = []
    for node in [model, *twins]:
        own: list[tuple[int, Any, Any]] = [] if node is model else [(hour.hour, hour.body, hour) for hour in hours]
        for number, body, like in own + past:
            values = {field.name: getattr(like, field.name) for field in NodeHour._meta.fields if field.name != "pk"}
            rows.append(NodeHour(**{**values, "node": node, "hour": number, "body": body}))
    NodeHour.objects.bulk_create(rows, batch_size=2000)


def _round(org: Any, slots: Any) -> dict[str, float]:
    from django.test import Client
    from django.utils import timezone
    from django_tenants.utils import tenant_context

    from fleet.reading import Period
    from fleet.selectors_hours import add_up

    begin = time.process_time()
    np.bincount(slots, minlength=3)
    bincount = time.process_time() - begin
    with tenant_context(org):
        begin = time.perf_counter()
        summed = add_up(Period.MONTH.window(timezone.now()))
        month = time.perf_counter() - begin
    if len(summed) != NODES:
        raise RuntimeError(f"{len(summed)} nodes were summed, not {NODES}")
    client = Client(HTTP_HOST="localhost")
    page, page_bytes = _get(client, "/o/local/")
    month_page, _ = _get(client, "/o/local/?period=30d")
    api, api_bytes = _get(client, "/v1/fleet")
    return {
        "bincount_ms": bincount * 1000,
        "month_ms": month * 1000,
        "R6": month / bincount,
        "page_ms": page * 1000,
        "page_kb": page_bytes / 1000,
        "month_page_ms": month_page * 1000,
        "api_ms": api * 1000,
        "api_kb": api_bytes / 1000,
    }


def _get(client: Any, path: str) -> tuple[float, int]:
    begin = time.perf_counter()
    response = client.get(path)
    seconds = time.perf_counter() - begin
    if response.status_code != 200:
        raise RuntimeError(f"{path} answered {response.status_code}")
    return seconds, len(response.content)
