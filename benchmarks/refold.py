"""Folding history again: CPU per batch of `manage.py refold`, out of the inbox and out of packs.

A month of 1,000 GPUs is 5.4 million batches (125 nodes, one a minute); the goal is ten minutes on two cores, which is
222 µs of CPU a batch, worker and PostgreSQL together. What a node costs once, 12 to 16 ms, is 0.3 µs a batch in a
month; a day of a node is folded here, so that it is not taken for the batches' own.
"""

from __future__ import annotations

import os
import time
from datetime import timedelta
from typing import Any

import psutil

from benchmarks.common import bodies, cpu_of, decode_us, repeat, show
from benchmarks.fleet_rows import key_of, start

NODES, MINUTES = 2, 1440
MONTH_BATCHES = 125 * 1440 * 30
CORES = 2


def run(rounds: int) -> dict[str, Any]:
    """Measure and print; the figures."""
    org = start()
    from django.db import connection
    from django.utils import timezone
    from django_tenants.utils import tenant_context

    from fleet import holds
    from fleet.decode import gunzip
    from fleet.folding import fold_waiting
    from fleet.ingest import receive
    from fleet.packing import pack_due

    holds._gates.clear()
    with connection.cursor() as cursor:
        cursor.execute("select pg_backend_pid()")
        postmaster = psutil.Process(cursor.fetchone()[0]).ppid()
    first_ms = (int(time.time()) // 604_800 - 3) * 604_800_000
    load = [body for body, _ in bodies(NODES, MINUTES, first_ms=first_ms)]
    sample = [gunzip(body) for body in load[:200]]
    with tenant_context(org):
        for body in load:
            receive(body, key_of(org), {})
        fold_waiting(timezone.now(), 600)
    found = repeat(rounds, lambda number: _round(org, postmaster, len(load), sample, "inbox"), "decode_us")
    with tenant_context(org):
        if pack_due(timezone.now() + timedelta(days=30), 1).batches != len(load):
            raise RuntimeError("not everything was packed")
    packed = repeat(rounds, lambda number: _round(org, postmaster, len(load), sample, "packs"), "decode_us")
    figures = {**packed, **found}
    show(
        f"folding again: {NODES} nodes, {MINUTES // 60} hours, {os.cpu_count()} cores here",
        figures,
        [
            ("inbox_us", "CPU per batch out of the inbox, µs"),
            ("packs_us", "CPU per batch out of packs, µs (222 = goal)"),
            ("inbox_month", f"a month of 1,000 GPUs out of the inbox on {CORES} cores, minutes by CPU"),
            ("packs_month", "  out of packs (goal ≤ 10)"),
            ("decode_us", "calibrator: typed decode per batch, µs"),
            ("inbox_ratio", "CPU per batch out of the inbox / calibrator"),
            ("packs_ratio", "  out of packs / calibrator"),
        ],
    )
    return figures


def _round(org: Any, postmaster: int, count: int, sample: list[bytes], where: str) -> dict[str, float]:
    from django.utils import timezone
    from django_tenants.utils import tenant_context

    from fleet.refolding import refold_everything

    decoded = decode_us(sample)
    before = cpu_of(postmaster) + time.process_time()
    with tenant_context(org):
        refold_everything(timezone.now())
    spent = (cpu_of(postmaster) + time.process_time() - before) / count
    return {
        "decode_us": decoded,
        f"{where}_ratio": spent * 1e6 / decoded,
        f"{where}_us": spent * 1e6,
        f"{where}_month": spent * MONTH_BATCHES / CORES / 60,
    }
