"""Storing: what the database's log takes for a batch, ingest and fold together, and what a packed batch takes.

R4 = bytes of WAL / bytes of bodies, with each node's batch folded for itself, as it is when nodes report once a minute.
"""

from __future__ import annotations

import time
from typing import Any

from benchmarks.common import bodies, decode_us, repeat, show
from benchmarks.fleet_rows import key_of, start

NODES, MINUTES = 20, 60
HOURS_PER_GPU_DAY = 24 / 8  # node hours of 8 GPUs


def run(rounds: int) -> dict[str, Any]:
    """Measure and print; the figures."""
    org = start()
    figures = repeat(rounds, lambda number: _round(org, number), "decode_us")
    show(
        f"storing: {NODES} nodes for {MINUTES} minutes, folded every minute",
        figures,
        [
            ("R4", "R4: WAL / body bytes, ingest and fold (goal ≤ 1.4)"),
            ("R4_ingest", "  of it ingest"),
            ("R4_fold", "  of it the fold"),
            ("member_kb_day", "evidence as received, kB per GPU-day (bodies alone)"),
            ("pack_kb_day", "packed, kB per GPU-day (goal ≤ 300)"),
            ("skeleton_kb_day", "  of it what stays for ever"),
            ("row_kb_day", "verdicts and rollups, kB per GPU-day with their index (goal ≤ 2)"),
            ("pack_us", "CPU to pack a batch and read it back, µs"),
            ("unpack_us", "CPU to read a batch from its pack, µs"),
            ("gunzip_us", "CPU to gunzip a batch, µs"),
            ("decode_us", "calibrator: typed decode per batch, µs"),
        ],
    )
    return figures


def _round(org: Any, number: int) -> dict[str, float]:
    from django.utils import timezone
    from django_tenants.utils import tenant_context

    from fleet import packs
    from fleet.decode import gunzip
    from fleet.folding import fold_waiting
    from fleet.ingest import receive
    from fleet.models import NodeHour
    from fleet.sql import execute

    load = bodies(NODES, MINUTES, seed=number)
    size = sum(len(body) for body, _ in load)
    wal = {"ingest": 0.0, "fold": 0.0}
    spent = "select pg_wal_lsn_diff(%b::text::pg_lsn, %b::text::pg_lsn)"
    with tenant_context(org):

        def lsn() -> Any:
            return execute("select pg_current_wal_insert_lsn()::text", [])[0][0]

        for start_ in range(0, len(load), NODES):
            for name in wal:
                before = lsn()
                if name == "fold":
                    fold_waiting(timezone.now())
                else:
                    for body, _ in load[start_ : start_ + NODES]:
                        receive(body, key_of(org), {})
                wal[name] += float(execute(spent, [lsn(), before])[0][0])
        nodes = list(
            NodeHour.objects.filter(node__name__startswith=f"node-{number}-").values_list("node_id", flat=True)
        )
        row = execute("select avg(pg_column_size(h)) from fleet_nodehour h where node_id = any(%b)", [nodes])[0][0]
    node = [one for at, one in enumerate(load) if at % NODES == 0]
    rows = [
        packs.Row(
            bytes.fromhex(sha), body, 10**15 + at * 60_000_000, "bench", "n", None, "a", at, "b", 1, None, 0, *flags
        )
        for at, (body, sha) in enumerate(node)
        for flags in [(False, False, 500_000)]
    ]
    begin = time.process_time()
    packed = packs.make_pack(rows)
    pack_us = (time.process_time() - begin) / len(rows) * 1e6
    begin = time.process_time()
    packs.read_parts(packs.read_skeleton(packed.skeleton), packed.body)
    unpack_us = (time.process_time() - begin) / len(rows) * 1e6
    begin = time.process_time()
    raws = [gunzip(body) for body, _ in node]
    gunzip_us = (time.process_time() - begin) / len(rows) * 1e6
    per_day = HOURS_PER_GPU_DAY * 60 / MINUTES / 1000
    return {
        "decode_us": decode_us(raws),
        "R4": sum(wal.values()) / size,
        "R4_ingest": wal["ingest"] / size,
        "R4_fold": wal["fold"] / size,
        "member_kb_day": packed.member_bytes * per_day,
        "pack_kb_day": (len(packed.body) + len(packed.skeleton)) * per_day,
        "skeleton_kb_day": len(packed.skeleton) * per_day,
        "row_kb_day": (float(row) + 100) * HOURS_PER_GPU_DAY / 1000,
        "pack_us": pack_us,
        "unpack_us": unpack_us,
        "gunzip_us": gunzip_us,
    }
