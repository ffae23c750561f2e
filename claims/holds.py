"""What claims need of the raw evidence: months under an open claim stay, and no week is packed before it is logged."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from datetime import date

from django.db import connection

from claims.models import Claim
from claims.node_months import month_hours
from fleet.holds import Hold, register, register_gate

OPEN = (Claim.Status.DRAFT, Claim.Status.FILED, Claim.Status.ACKNOWLEDGED)
_NOT_LOGGED = """
select exists (select 1 from fleet_inbox i where i.sample_day between %s and %s
   and not exists (select 1 from claims_leaf l where l.batch_sha256 = i.sha256))
"""


def open_claims(first_hour: int, last_hour: int) -> Iterator[Hold]:
    """The node months that an open claim rests on and that meet these hours."""
    for claim in Claim.objects.filter(status__in=OPEN).select_related("report"):
        nodes: dict[str, set[int]] = defaultdict(set)
        for one in claim.report.inputs.get("node_months", ()):
            nodes[one["month"]].add(int(one["id"]))
        for month, ids in nodes.items():
            first, end = month_hours(month)
            if first <= last_hour and end > first_hour:
                yield Hold(first, end - 1, ids, f"open claim {claim.label}")


def log_is_behind(first_day: date, last_day: date) -> str | None:
    """Why a week must not be packed yet: some of its batches are not in the org's log."""
    with connection.cursor() as cursor:
        cursor.execute(_NOT_LOGGED, [first_day, last_day])
        return "some of its batches are not in the signed log yet" if cursor.fetchone()[0] else None


def connect() -> None:
    """Let the fleet ask."""
    register(open_claims)
    register_gate(log_is_behind)
