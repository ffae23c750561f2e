"""Rows for benchmarks of reads: one node's day is folded for real and written, relabelled, to other hours and nodes.

What comes out is a fleet in which every node lives through the same day again and again; figures made with it say so.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from typing import Any

PROPER_HOURS = 25


def start(*, with_static: bool = False) -> Any:
    """Prepare the database of the run, and the static files that pages name, and open Django; the org `local`."""
    os.environ["DJANGO_SETTINGS_MODULE"] = "goodput_site.settings"
    left_out = [] if with_static else ["--no-static"]
    subprocess.check_call([sys.executable, "manage.py", "prepare", *left_out], stdout=subprocess.DEVNULL)
    import django

    django.setup()
    from orgs.models import Org

    return Org.objects.get(slug="local")


def key_of(org: Any) -> Any:
    """An ingest key of an org, without a row."""
    from orgs.keys import KeyInfo

    return KeyInfo(0, "bench", frozenset({"ingest"}), "", None, org.pk, org.slug, org.schema_name)


def model_node(org: Any, hours: int) -> None:
    """One simulated node's day, folded; its quiet hours again for every hour back to `hours` ago."""
    from django.utils import timezone

    from fleet.bodies import load_row, pack_row
    from fleet.folding import fold_waiting
    from fleet.ingest import receive
    from fleet.models import NodeHour
    from fleet.simulation import Plan, uploads

    end_ms = int(time.time()) // 60 * 60_000
    for body, _ in uploads(Plan("bench", 1, end_ms - PROPER_HOURS * 3_600_000, end_ms, 4)):
        receive(body, key_of(org), {})
    fold_waiting(timezone.now())
    proper = list(NodeHour.objects.order_by("hour"))
    row = load_row(proper[1].body)
    past = []
    for back in range(1, hours - len(proper) + 1):
        row.hour = proper[0].hour - back
        values = {field.name: getattr(proper[1], field.name) for field in NodeHour._meta.fields if field.name != "pk"}
        past.append(NodeHour(**{**values, "hour": row.hour, "body": pack_row(row), "is_final": True}))
    NodeHour.objects.bulk_create(past, batch_size=2000)


def twins(count: int, hours: int) -> None:
    """So many more nodes with the model's live state and its rows of the last `hours`; then the days are summed."""
    from django.db import connection
    from django.utils import timezone

    from fleet.day_sums import forget_days, sum_days
    from fleet.models import Node
    from fleet.node_keys import NodeKey

    model = Node.objects.select_related("cluster").order_by("pk").first()
    if model is None:
        raise RuntimeError("there is no model node yet")
    have = Node.objects.count()
    names = [f"bench-{number:05d}" for number in range(have, have + count)]
    made = Node.objects.bulk_create(
        [
            Node(
                cluster=model.cluster,
                identity=f"name:{name}",
                name=name,
                key=NodeKey(model.cluster.name, name, None).number,
                first_seen_at=model.first_seen_at,
            )
            for name in names
        ],
        batch_size=2000,
    )
    first = made[0].pk
    with connection.cursor() as cursor:
        for table, wanted in (
            ("fleet_nodelive", ""),
            ("fleet_nodehour_final", f"and m.hour > (select max(hour) from fleet_nodehour) - {hours:d}"),
            ("fleet_nodehour_open", ""),
        ):
            cursor.execute(
                "select column_name from information_schema.columns where table_schema = current_schema()"
                " and table_name = %s and column_name <> 'node_id' order by ordinal_position",
                [table],
            )
            names_ = [row[0] for row in cursor.fetchall()]
            into, chosen = ", ".join(names_), ", ".join(f"m.{name}" for name in names_)
            cursor.execute(
                f"insert into {table} (node_id, {into}) select n.id, {chosen} from fleet_node n, {table} m"
                f" where n.id >= %s and m.node_id = %s {wanted}",
                [first, model.pk],
            )
    forget_days(0)
    while sum_days(timezone.now()):
        pass
    with connection.cursor() as cursor:  # as autovacuum does by and by: an index alone can answer
        for table in ("fleet_nodehour_final", "fleet_nodehour_open", "fleet_nodeday", "fleet_nodelive", "fleet_node"):
            cursor.execute(f"vacuum analyze {table}")
