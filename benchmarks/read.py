"""Reads: a 1,000-GPU month of rollups from its hours. The rows are cloned from one folded day, labelled.

R6 = time of the month's sum / one numpy bincount over as many slots (172.8 million).
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from benchmarks.common import repeat, show
from benchmarks.fleet_rows import model_node, start, twins

NODES, HOURS = 125, 720
SLOTS = 1000 * 240 * HOURS


def run(rounds: int) -> dict[str, Any]:
    """Measure and print; the figures."""
    org = start()
    from django_tenants.utils import tenant_context

    with tenant_context(org):
        model_node(org, HOURS)
        twins(NODES - 1, HOURS)
    slots = np.random.default_rng(0).integers(0, 3, SLOTS, dtype=np.uint8)
    figures = repeat(rounds, lambda number: _round(org, slots), "bincount_ms")
    show(
        f"reads: {NODES} nodes, {NODES * 8} GPUs, {HOURS} hours",
        figures,
        [
            ("month_ms", "sum of the month from its hours, ms of database time (goal ≤ 150)"),
            ("days_ms", "the same from the sums of its days, ms"),
            ("bincount_ms", "calibrator: numpy bincount over the month's slots, ms"),
            ("R6", "R6: month's sum / bincount"),
        ],
    )
    return figures


def _round(org: Any, slots: Any) -> dict[str, float]:
    from django.utils import timezone
    from django_tenants.utils import tenant_context

    from fleet.reading import Period
    from fleet.selectors import added_up
    from fleet.selectors_hours import add_up

    begin = time.process_time()
    np.bincount(slots, minlength=3)
    bincount = time.process_time() - begin
    with tenant_context(org):
        window = Period.MONTH.window(timezone.now())
        begin = time.perf_counter()
        summed = add_up(window)
        month = time.perf_counter() - begin
        begin = time.perf_counter()
        again = added_up(window)
        days = time.perf_counter() - begin
    if len(summed) != NODES or summed != again:
        raise RuntimeError("the sums of hours and of days differ")
    return {
        "bincount_ms": bincount * 1000,
        "month_ms": month * 1000,
        "days_ms": days * 1000,
        "R6": month / bincount,
    }
