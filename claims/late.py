"""Facts of an issued month that came after its issue: how many, and what a restatement would change.

An issued report never changes. Late batches are kept, and those of hours that are not sealed are folded; what the
month would come to now stands beside what was issued, and a person decides whether to restate it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from claims.errors import ClaimsError
from claims.inputs import gather
from claims.models import Contract, Report
from claims.node_months import load_month, month_hours
from claims.scope import within
from claims.services_reports import difference
from fleet.domain.slots import SLOTS_PER_HOUR
from fleet.sql import execute

#: How far back issued months are looked at: every deadline of the catalogue is over by then.
LOOKED_BACK = timedelta(days=400)
_LATE = """
select coalesce(n.merged_into_id, n.id), count(*), count(m.sha256), max(i.received_at)
  from fleet_inbox i join fleet_node n on n.key = i.node_key
  left join fleet_batchmark m on m.sample_day = i.sample_day and m.sha256 = i.sha256 and m.reason = 'sealed'
 where i.sample_day between %b::date and %b::date and i.received_at > %b and i.first_hour < %b and i.last_hour >= %b
   and (n.id = any(%b) or n.merged_into_id = any(%b)) and not i.is_seq_conflict
 group by 1
"""


@dataclass(frozen=True)
class LateNode:
    """A node's late batches. `sealed` of them came after their hours were sealed and are in no verdict."""

    node: str
    batches: int
    sealed: int
    newest_at: datetime


@dataclass(frozen=True)
class Late:
    """What came late for an issued report. `changed`: nodes whose verdicts are others than those that it rests on;
    `difference`: figure → [as issued, as of now]; `problem`: why there is none to compute.
    """

    report: Report
    nodes: tuple[LateNode, ...]
    changed: tuple[str, ...]
    difference: dict[str, list[str | None]]
    problem: str = ""

    @property
    def batches(self) -> int:
        """How many batches came late."""
        return sum(one.batches for one in self.nodes)

    @property
    def sealed(self) -> int:
        """How many of them are in no verdict."""
        return sum(one.sealed for one in self.nodes)

    @property
    def newest_at(self) -> datetime | None:
        """When the last of them came."""
        return max((one.newest_at for one in self.nodes), default=None)

    @property
    def reason(self) -> str:
        """What a restatement could say of itself."""
        if self.batches:
            return f"{self.batches} batches of {', '.join(one.node for one in self.nodes)} came after the issue."
        return f"The verdicts of {', '.join(self.changed)} are others than at the issue."


def late_of(report: Report, now: datetime) -> Late | None:
    """What came late for an issued report; None where nothing did and it would come to the same."""
    if report.issued_at is None:
        return None
    period = report.result["assessment"]["result"]["period"]
    first = int(period["first_slot"]) // SLOTS_PER_HOUR
    end = -(-(int(period["first_slot"]) + int(period["slots"])) // SLOTS_PER_HOUR)
    names = {int(one["id"]): one["node"] for one in report.inputs["node_months"]}
    starts, ends = (datetime.fromisoformat(period[key]) for key in ("start_utc", "end_utc"))
    ids = list(names)
    asked = [starts.date() - timedelta(days=1), ends.date(), report.issued_at, end, first, ids, ids]
    nodes = tuple(
        LateNode(names[node_id], batches, sealed, newest)
        for node_id, batches, sealed, newest in sorted(execute(_LATE, asked))
    )
    changed = _changed(report, names, first, end)
    if not nodes and not changed:
        return None
    try:
        document = gather(report.contract, report.month, now).document()
    except ClaimsError as error:
        return Late(report, nodes, changed, {}, str(error))
    would = difference(report.result, document)
    return Late(report, nodes, changed, would) if nodes or would else None


def _changed(report: Report, names: dict[int, str], first: int, end: int) -> tuple[str, ...]:
    """The nodes whose verdicts of the period's UTC months are others than the report's. Hours of such a month may lie
    outside the period; a month that goes on for more than a day after it is not asked: it still grows.
    """
    found = set()
    for month in sorted({one["month"] for one in report.inputs["node_months"]}):
        low, high = month_hours(month)
        if high <= first or low >= end or high > end + 24:
            continue
        current = load_month(list(names), month)
        for one in report.inputs["node_months"]:
            kept = current.get(int(one["id"]))
            if one["month"] == month and kept is not None and kept.digest != one["digest"]:
                found.add(one["node"])
    return tuple(sorted(found))


def list_late(now: datetime, clusters: Sequence[str] = ()) -> list[Late]:
    """The issued months for which something came late, each in its last version, the newest first."""
    contracts = within(Contract.objects.filter(ended_at=None).prefetch_related("versions"), clusters)
    issued = Report.objects.select_related("contract", "version").exclude(status=Report.Status.DRAFT)
    last: dict[tuple[int, str], Report] = {}
    for one in issued.filter(contract__in=contracts, issued_at__gte=now - LOOKED_BACK).order_by("number"):
        last[one.contract_id, one.month] = one
    found = (late_of(one, now) for one in sorted(last.values(), key=lambda one: one.month, reverse=True))
    return [one for one in found if one is not None]
