"""Pages: server time, queries and bytes of the Fleet page, a node's page, a GPU's month, the incidents, `/v1/fleet`.

1,000 nodes with 30 days of hours; `/v1/fleet` also with 12,500 nodes of 100,000 GPUs. Rows are cloned from one folded
day, labelled; requests go through Django's test client in this process, so the time is the server's alone.
"""

from __future__ import annotations

import time
from typing import Any

from benchmarks.common import decode_us, repeat, show
from benchmarks.fleet_rows import model_node, start, twins

NODES, HOURS, MANY = 1000, 720, 12_500
PAGES = {
    "fleet_24h": ("Fleet page, 24 h (goal ≤ 300 ms, 300 kB)", "/o/local/"),
    "fleet_30d": ("Fleet page, 30 d (goal ≤ 300 ms, 300 kB)", "/o/local/?period=30d"),
    "fleet_90d": ("Fleet page, 90 d, with rows of 30", "/o/local/?period=90d"),
    "node": ("node page, 24 h", "/o/local/nodes/{node}/"),
    "node_30d": ("node page, 30 d", "/o/local/nodes/{node}/?period=30d"),
    "gpu_month": ("hours of a GPU's month, API", "/v1/gpus/{node}/0/hours?from={month_ago}"),
    "incidents": ("incident list", "/o/local/incidents/"),
    "api_fleet": ("/v1/fleet, 1,000 nodes", "/v1/fleet"),
    "api_nodes": ("/v1/fleet/nodes, a page of 1,000", "/v1/fleet/nodes?page_size=1000"),
}
MANY_PAGES = {
    "many_fleet": ("/v1/fleet, 12,500 nodes", "/v1/fleet"),
    "many_nodes": ("/v1/fleet/nodes, a page of 100 of them", "/v1/fleet/nodes"),
    "many_page": ("Fleet page, 24 h, 12,500 nodes", "/o/local/"),
}
LABELS = {name: label for name, (label, _) in (*PAGES.items(), *MANY_PAGES.items())}


def run(rounds: int) -> dict[str, Any]:
    """Measure and print; the figures."""
    org = start(with_static=True)
    from django_tenants.utils import tenant_context

    with tenant_context(org):
        model_node(org, HOURS)
        twins(NODES - 1, HOURS)
    figures = repeat(rounds, lambda number: _round(org, PAGES), "decode_us")
    with tenant_context(org):
        twins(MANY - NODES, 25)
    many = repeat(max(3, rounds // 2), lambda number: _round(org, MANY_PAGES), "decode_us")
    figures.update({name: value for name, value in many.items() if name.startswith("many_")})
    rows = [("decode_us", "calibrator: typed decode per batch, µs")]
    for name, label in LABELS.items():
        rows += [(f"{name}_ms", f"{label}, ms"), (f"{name}_kb", "  kB"), (f"{name}_queries", "  queries")]
    show(f"pages: {NODES} nodes, {NODES * 8} GPUs, {HOURS} hours", figures, rows)
    return figures


def _round(org: Any, pages: dict[str, tuple[str, str]]) -> dict[str, float]:
    from datetime import timedelta

    from django.db import connection
    from django.test import Client
    from django.test.utils import CaptureQueriesContext
    from django.utils import timezone
    from django_tenants.utils import tenant_context

    from benchmarks.common import bodies
    from fleet.decode import gunzip
    from fleet.models import Node

    with tenant_context(org):
        node = Node.objects.order_by("pk").values_list("pk", flat=True)[1]
    month_ago = f"{timezone.now() - timedelta(days=30):%Y-%m-%dT%H:00:00Z}"
    client = Client(HTTP_HOST="localhost")
    figures = {"decode_us": decode_us([gunzip(body) for body, _ in bodies(10, 10)])}
    for name, (_, path) in pages.items():
        url = path.format(node=node, month_ago=month_ago)
        begin = time.perf_counter()
        response = client.get(url)
        spent = time.perf_counter() - begin
        if response.status_code != 200:
            raise RuntimeError(f"{url} answered {response.status_code}: {response.content[:300]!r}")
        with CaptureQueriesContext(connection) as queries:
            client.get(url)
        asked = [one for one in queries.captured_queries if not one["sql"].startswith("SET ")]
        figures |= {
            f"{name}_ms": spent * 1000,
            f"{name}_kb": len(response.content) / 1000,
            f"{name}_queries": len(asked),
        }
    return figures
