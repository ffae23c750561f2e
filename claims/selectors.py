"""What the pages and the API of contracts, reports and claims read."""

from __future__ import annotations

from calendar import monthrange
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

from django.db.models import Count, Q

from claims.domain.facts import ancestors
from claims.domain.periods import ms_of
from claims.drawing import day_bars, tier_bar
from claims.errors import ClaimsError, NotThere
from claims.inputs import gather
from claims.models import Anchor, Claim, Contract, ContractVersion, Overlay, Report
from claims.scope import within
from claims.words import best_unit, method
from fleet.domain.slots import SLOT_MS

MONTHS_SHOWN = 4
STATES = {
    "draft": "degraded",
    "filed": "mark",
    "acknowledged": "mark",
    "paid": "available",
    "refused": "down",
    "written_off": "unknown",
}


def month_of(now: datetime) -> str:
    """`2026-11`."""
    return f"{now.astimezone(UTC):%Y-%m}"


def months_before(month: str, count: int) -> list[str]:
    """So many months up to this one, the newest last."""
    year, number = (int(part) for part in month.split("-"))
    total = year * 12 + number - 1
    return [f"{at // 12:04d}-{at % 12 + 1:02d}" for at in range(total - count + 1, total + 1)]


def month_words(month: str) -> str:
    """`October 2026`."""
    return f"{datetime.strptime(month, '%Y-%m').replace(tzinfo=UTC):%B %Y}"


@dataclass(frozen=True)
class Month:
    """A contract's month as a page shows it: the issued report's document, else the one of this moment.

    `problem`: why there is none, in a sentence. `units`: the lowest uptime first.
    """

    contract: Contract
    version: ContractVersion | None
    month: str
    document: dict[str, Any] | None
    report: Report | None
    problem: str = ""

    @property
    def assessment(self) -> dict[str, Any]:
        """Of the document."""
        return self.document["assessment"] if self.document else {}

    @property
    def result(self) -> dict[str, Any] | None:
        """The contract's result; None where it is incomplete."""
        return self.assessment.get("result")

    @property
    def method(self) -> list[str]:
        """How the numbers were made."""
        return method(self.document, self.report.inputs if self.report else None) if self.document else []

    @property
    def head(self) -> Any:
        """The unit with the lowest uptime."""
        return best_unit(self.result) if self.result else None

    @property
    def projection(self) -> Any:
        """What the month comes to if nothing more happens; None when it is over."""
        ahead = (self.document or {}).get("projection", {})
        return ahead.get("result")

    @property
    def bar(self) -> Any:
        """The tier bar."""
        if not self.document or not self.head:
            return None
        readings = self.head["readings"]
        tiers = self.document["contract"]["tiers"]
        return tier_bar(tiers, readings["lower"]["uptime"], readings["upper"]["uptime"])

    @property
    def bars(self) -> Any:
        """The day bars."""
        if not self.document:
            return []
        year, number = (int(part) for part in self.month.split("-"))
        units = len(self.result["units"]) if self.result else 1
        return day_bars(self.document["days"], units, monthrange(year, number)[1])

    @property
    def incidents(self) -> list[dict[str, Any]]:
        """What counted, the longest first, each with its unit, its whole length and its tickets."""
        if not self.result or not self.document:
            return []
        rows = [row for row in self.document["overlays"] if row["kind"] == "ticket" and row["reference"]]
        found = [
            {
                **one,
                "unit": unit["name"],
                "happened": (ms_of(one["end_utc"]) - ms_of(one["start_utc"])) // 1000,
                "tickets": [row["reference"] for row in rows if _is_about(row, one, unit["name"])],
            }
            for unit in self.result["units"]
            for one in unit["incidents"]
        ]
        return sorted(found, key=lambda one: (-int(one["counted_seconds"]), one["start_utc"]))

    @property
    def against(self) -> list[tuple[str, int]]:
        """What was counted against ourselves: (why, seconds), summed over the units."""
        totals: dict[str, int] = {}
        for unit in self.result["units"] if self.result else ():
            for key, seconds in unit["against_ourselves_seconds"].items():
                totals[key] = totals.get(key, 0) + int(seconds)
        return [(AGAINST[key], seconds) for key, seconds in totals.items() if seconds and key in AGAINST]


AGAINST = {
    "excluded": "Maintenance and other exclusions, up or down",
    "unentitled_down": "Down while nothing was owed",
    "outside_clock": "Down before the clock started or after it ended",
    "outside_minutes": "Parts of minutes that the contract's minute rule drops",
    "below_minimum": "Outages shorter than the contract's minimum",
    "outside_period": "Parts of outages that belong to another month",
}


def _is_about(row: dict[str, Any], incident: dict[str, Any], unit: str) -> bool:
    """Whether a ticket names a subject of the incident, or what it lies in, and touches its time."""
    names = {above for name in (*incident["subjects"], unit) for above in ancestors(name)}
    first, end = ms_of(incident["start_utc"]) // SLOT_MS, ms_of(incident["end_utc"]) // SLOT_MS
    is_in_time = int(row["first_slot"]) < end and (row["end_slot"] is None or first < int(row["end_slot"]))
    return row["resource"] in names and is_in_time


def anchors_of_month(report: Report) -> list[dict[str, Any]]:
    """Who else saw the log around the report's period: kind, whose, how often; from a day before it to its issue."""
    period = report.result["whole_period"]
    first = datetime.fromisoformat(period["start_utc"]) - timedelta(days=1)
    last = report.issued_at or report.computed_at
    made = Anchor.objects.filter(state=Anchor.State.MADE, at__gte=first, at__lte=last)
    lines = made.order_by("kind", "who").values("kind", "who").annotate(count=Count("id"))
    return [{**line, "label": Anchor.Kind(line["kind"]).label} for line in lines]


def get_month(contract: Contract, month: str, now: datetime) -> Month:
    """The issued report where there is one, else the computation of this moment."""
    report = contract.reports.filter(month=month).exclude(status="draft").order_by("-number").first()
    if report is not None:
        return Month(contract, report.version, month, report.result, report)
    try:
        gathered = gather(contract, month, now)
        return Month(contract, gathered.version, month, gathered.document(), None)
    except ClaimsError as error:
        return Month(contract, contract.versions.order_by("-number").first(), month, None, None, str(error))


def list_contracts(clusters: Sequence[str] = ()) -> list[Contract]:
    """Those that have not ended and lie within the clusters (empty: all)."""
    return within(Contract.objects.filter(ended_at=None).prefetch_related("versions"), clusters)


def _seen(clusters: Sequence[str]) -> list[int]:
    return [one.pk for one in within(Contract.objects.prefetch_related("versions"), clusters)]


def list_overlays(contract: Contract) -> list[Overlay]:
    """The contract's rows and those of all contracts, the newest first, withdrawn ones too."""
    return list(Overlay.objects.filter(Q(contract=contract) | Q(contract=None)).order_by("-starts_at", "-id"))


def get_report(report_id: int) -> Report:
    """Raises NotThere."""
    found = Report.objects.select_related("contract", "version").filter(pk=report_id).first()
    if found is None:
        raise NotThere("There is no such report in this org.")
    return found


def list_reports(clusters: Sequence[str] = ()) -> list[Report]:
    """Those of the contracts within the clusters (empty: all), the newest month first."""
    found = Report.objects.select_related("contract", "version").prefetch_related("claims")
    return list(found.filter(contract__in=_seen(clusters)) if clusters else found)


def list_claims(clusters: Sequence[str] = ()) -> list[Claim]:
    """Those of the contracts within the clusters (empty: all): what can still be filed first, by when it closes."""
    found = Claim.objects.select_related("report__contract", "report__version")
    claims = list(found.filter(report__contract__in=_seen(clusters)) if clusters else found)
    late = datetime(9999, 1, 1, tzinfo=UTC)
    return sorted(claims, key=lambda one: (one.status != "draft", one.closes_at or late, -one.pk))


@dataclass(frozen=True)
class Deadline:
    """A line of the deadline board."""

    contract: str
    month: str
    state: str
    glyph: str
    amount: str | None
    currency: str
    closes_at: datetime | None
    days_left: int | None
    missing: tuple[str, ...]
    claim: Claim | None
    report: Report | None

    @property
    def is_late(self) -> bool:
        """Whether the window has closed."""
        return self.days_left is not None and self.days_left < 0


def deadline_board(now: datetime, contract: Contract | None = None, clusters: Sequence[str] = ()) -> list[Deadline]:
    """Claims, months that are over but not issued, and outages of a running month whose own windows close: what closes
    first comes first.
    """
    out = []
    claims = [one for one in list_claims(clusters) if contract is None or one.report.contract_id == contract.pk]
    for claim in claims:
        missing = claim.report.result.get("ticket", {}).get("missing", ())
        is_open = claim.status == "draft"
        out.append(
            Deadline(
                claim.report.contract.name,
                claim.report.month,
                claim.get_status_display().lower(),
                STATES[claim.status],
                f"{claim.amount:.2f}",
                claim.currency,
                claim.closes_at,
                _days(claim.closes_at, now) if is_open else None,
                tuple(missing) if is_open else (),
                claim,
                claim.report,
            )
        )
    issued = {(one.report.contract_id, one.report.month) for one in claims}
    drafts = Report.objects.select_related("contract").filter(status="draft", number=1)
    if clusters:
        drafts = drafts.filter(contract__in=_seen(clusters))
    for report in drafts if contract is None else drafts.filter(contract=contract):
        if (report.contract_id, report.month) in issued:
            continue
        if not report.result["is_over"]:
            out += _running(report, now)
            continue
        closes = min((one["closes_utc"] for one in report.result["deadlines"] if one["closes_utc"]), default=None)
        at = None if closes is None else datetime.fromisoformat(closes)
        result = report.result["assessment"].get("result") or {}
        owes_nothing = result.get("claim") is not None and not Decimal(result["claim"])
        missing = ("the report is not issued yet", *(("by its draft nothing is owed",) if owes_nothing else ()))
        out.append(
            Deadline(
                report.contract.name,
                report.month,
                "not issued",
                "unknown",
                result.get("claim"),
                result.get("currency", ""),
                at,
                None if owes_nothing else _days(at, now),
                missing,
                None,
                report,
            )
        )
    late = datetime(9999, 1, 1, tzinfo=UTC)
    return sorted(out, key=lambda one: (one.days_left is None, one.closes_at or late, one.month))


def _running(report: Report, now: datetime) -> list[Deadline]:
    """The outages of a month that still runs, where each has a window of its own."""
    out = []
    for one in report.result["deadlines"]:
        if one["closes_utc"] is None or " " not in one["about"]:
            continue
        at = datetime.fromisoformat(one["closes_utc"])
        out.append(
            Deadline(
                report.contract.name,
                report.month,
                f"outage of {one['about']}",
                "unknown",
                None,
                "",
                at,
                _days(at, now),
                ("the month still runs: file by the outage",),
                None,
                report,
            )
        )
    return out


@dataclass(frozen=True)
class Next:
    """What can be filed next: by when, and how much where that is known."""

    month: str
    amount: str | None
    currency: str
    closes_at: datetime
    days_left: int
    claim_id: int | None


def next_deadline(now: datetime, clusters: Sequence[str] = ()) -> Next | None:
    """What closes next and is still open. Every Fleet page asks, so no whole result is read."""
    found: list[Next] = []
    is_claimed = Q(claims__status=Claim.Status.DRAFT, claims__closes_at__gt=now)
    reports = Report.objects.filter(Q(status=Report.Status.DRAFT, number=1) | is_claimed)
    if clusters:
        reports = reports.filter(contract__in=_seen(clusters))
    of_claim = ("claims__pk", "claims__amount", "claims__currency", "claims__closes_at")
    of_report = ("month", "result__is_over", "result__deadlines", "result__assessment__result__claim")
    for month, is_over, deadlines, draft, pk, amount, currency, until in reports.values_list(*of_report, *of_claim):
        if pk is not None:
            found.append(Next(month, f"{amount:.2f}", currency, until, _days(until, now) or 0, pk))
            continue
        if is_over and draft is not None and not Decimal(draft):
            continue  # by its draft nothing is owed
        for one in deadlines or ():
            if one["closes_utc"] is None or not (is_over or " " in one["about"]):
                continue
            closes_at = datetime.fromisoformat(one["closes_utc"])
            if closes_at > now:
                found.append(Next(month, None, "", closes_at, _days(closes_at, now) or 0, None))
    return min(found, key=lambda one: one.closes_at, default=None)


def _days(at: datetime | None, now: datetime) -> int | None:
    return None if at is None else (at - now) // timedelta(days=1)
