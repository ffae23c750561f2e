"""Which orgs have something to group, to route or to send: one statement over all, answered by partial indexes."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from psycopg import sql

from fleet.alerts.delivery import REPEAT_EVERY
from fleet.sql import execute
from orgs.models import Org
from orgs.schemas import ORGS_PER_STATEMENT

_BRANCH = """(select {id}::bigint where
 exists (select 1 from {alert} where routed_at is null)
 or exists (select 1 from {delivery} where status = 'waiting' and due_at <= {now}
            and (claimed_until is null or claimed_until <= {now}))
 or exists (select 1 from {incident} where waits_for_grouping)
 or exists (select 1 from {channel} where kind = 'alertmanager' and is_enabled and removed_at is null
            and coalesce(repeated_at, '-infinity') <= {again} and exists (select 1 from {thread} where is_open)))"""


def orgs_with_alerts(orgs: Iterable[Org], now: datetime) -> list[int]:
    """Ids of the orgs in which something waits, in the order given."""
    listed = list(orgs)
    found: list[int] = []
    for start in range(0, len(listed), ORGS_PER_STATEMENT):
        branches = [
            sql.SQL(_BRANCH).format(
                id=sql.Literal(org.pk),
                now=sql.Literal(now),
                again=sql.Literal(now - REPEAT_EVERY),
                alert=sql.Identifier(org.schema_name, "alerts_alert"),
                delivery=sql.Identifier(org.schema_name, "alerts_delivery"),
                incident=sql.Identifier(org.schema_name, "fleet_incident"),
                channel=sql.Identifier(org.schema_name, "alerts_channel"),
                thread=sql.Identifier(org.schema_name, "alerts_thread"),
            )
            for org in listed[start : start + ORGS_PER_STATEMENT]
        ]
        found += [row[0] for row in execute(sql.SQL(" union all ").join(branches).as_string(None), [])]
    return found
