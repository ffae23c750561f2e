"""Growth: what a batch costs with 1, 10 and 100 orgs, with a day, 30 and 400 days of history, and the worker's memory.

Cost = CPU of this process and of PostgreSQL, from `receive` to the rows, per batch, over a typed decode. An org's fold
has at least four batches, as it has where 100 orgs of 60 nodes report (fleet/tasks.py, `sweep`).
"""

from __future__ import annotations

import os
import time
from typing import Any

import psutil

from benchmarks.common import bodies, cpu_of, decode_us, repeat, show
from benchmarks.fleet_rows import key_of, model_node, start, twins

NODES, MINUTES = 10, 12
ORGS = (1, 10, 100)
DAYS = (1, 30, 400)
HISTORY_NODES = 20
PER_FOLD = 4  # batches of an org in a fold at least: 60 nodes send them while `sweep` lets them gather


def run(rounds: int) -> dict[str, Any]:
    """Measure and print; the figures."""
    org = start()
    from django.db import connection
    from django.utils import timezone
    from django_tenants.utils import tenant_context

    from fleet.partitions import ensure_partitions
    from orgs.services import create_org

    with connection.cursor() as cursor:
        cursor.execute("select pg_backend_pid()")
        postmaster = psutil.Process(cursor.fetchone()[0]).ppid()
    figures: dict[str, Any] = {}
    orgs = [org]
    for count in ORGS:
        while len(orgs) < count:
            one = create_org(f"bench-{len(orgs)}", f"Bench {len(orgs)}")
            ensure_partitions(one.schema_name, timezone.now())
            orgs.append(one)
        _keep(figures, f"orgs_{count}", _cost(orgs, rounds, postmaster))
    first, have = orgs[0], 0
    for days in DAYS:
        with tenant_context(first):
            if not have:
                model_node(first, DAYS[-1] * 24)
            if have < HISTORY_NODES:
                twins(HISTORY_NODES - have, days * 24)
            else:
                _older(days * 24)
            have = HISTORY_NODES
        _keep(figures, f"days_{days}", _cost([first], rounds, postmaster))
    memory = _memory(first)
    kept = {"rounds": rounds - 1, "kept": figures["orgs_1_kept"]}
    rows = []
    for kind, cases in (("orgs", ORGS), ("days", DAYS)):
        for case in cases:
            label = f"{case} {kind if case > 1 else kind[:-1]}{' of history' if kind == 'days' else ''}"
            rows.append((f"{kind}_{case}", f"{label}: CPU per batch / typed decode"))
    for number, value in enumerate(memory):
        name = f"memory_{number}"
        figures[name], figures[f"{name}_range"] = value, [value, value]
        rows.append((name, f"resident memory after {number + 1} × {NODES * MINUTES * 4} batches, MB"))
    figures.update(kept)
    show("growth: ingest and fold", figures, rows)
    return figures


def _keep(figures: dict[str, Any], name: str, found: dict[str, Any]) -> None:
    figures[name], figures[f"{name}_range"] = found["ratio"], found["ratio_range"]
    figures[f"{name}_us"], figures[f"{name}_kept"] = found["us"], found["kept"]


def _older(hours: int) -> None:
    """Give the twins the model's rows of the last `hours` where they have none yet."""
    from django.db import connection

    with connection.cursor() as cursor:
        cursor.execute(
            "select string_agg(column_name, ', ' order by ordinal_position) from information_schema.columns"
            " where table_schema = current_schema() and table_name = 'fleet_nodehour_final'"
            " and column_name <> 'node_id'"
        )
        names = cursor.fetchone()[0]
        chosen = ", ".join(f"m.{name}" for name in names.split(", "))
        cursor.execute(
            f"insert into fleet_nodehour_final (node_id, {names}) select n.id, {chosen} from fleet_node n,"
            " fleet_nodehour_final m where n.name like 'bench-0%%' and m.node_id = (select min(id) from fleet_node)"
            " and m.hour > (select max(hour) from fleet_nodehour) - %s on conflict do nothing",
            [hours],
        )
        cursor.execute("vacuum analyze fleet_nodehour_final")


_seed = 0


def _cost(orgs: list[Any], rounds: int, postmaster: int) -> dict[str, Any]:
    """CPU per batch, spread over these orgs, as a ratio to a typed decode."""

    def one(number: int) -> dict[str, float]:
        from django.db import connection
        from django.utils import timezone
        from django_tenants.utils import tenant_context

        from fleet.decode import gunzip
        from fleet.folding import fold_waiting
        from fleet.ingest import receive
        from fleet.selectors_waiting import orgs_with_work

        global _seed
        _seed += 1
        load = bodies(NODES, max(MINUTES, PER_FOLD * len(orgs) // NODES), seed=_seed)
        decoded = decode_us([gunzip(body) for body, _ in load])
        before = cpu_of(postmaster) + cpu_of(os.getpid())
        for at, (body, _) in enumerate(load):
            receive(body, key_of(orgs[at % len(orgs)]), {})
        connection.set_schema_to_public()  # type: ignore[attr-defined]
        for pk in orgs_with_work(orgs):
            with tenant_context(next(one for one in orgs if one.pk == pk)):
                fold_waiting(timezone.now())
        spent = (cpu_of(postmaster) + cpu_of(os.getpid()) - before) / len(load) * 1e6
        return {"us": spent, "ratio": spent / decoded, "decode_us": decoded}

    return repeat(rounds, one, "decode_us")


def _memory(org: Any) -> list[float]:
    """Resident MB after each of five equal loads."""
    from django.utils import timezone
    from django_tenants.utils import tenant_context

    from fleet.folding import fold_waiting
    from fleet.ingest import receive

    global _seed
    found = []
    for _ in range(5):
        _seed += 1
        with tenant_context(org):
            for body, _ in bodies(NODES, MINUTES * 4, seed=_seed):
                receive(body, key_of(org), {})
            fold_waiting(timezone.now())
        time.sleep(0.1)
        found.append(psutil.Process().memory_info().rss / 1e6)
    return found
