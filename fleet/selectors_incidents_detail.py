"""One incident for its page: evidence, the strip of each affected place, exact slots, what would end it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from fleet.bodies import load_row
from fleet.domain.explain import Explained, explain
from fleet.domain.rules import Rules, load_rules
from fleet.domain.slots import SLOT_MS, SLOTS_PER_HOUR, first_slot, hour_of_slot, slot_of
from fleet.domain.strips import StripRun
from fleet.domain.verdicts import State, Verdict
from fleet.models import Incident, IncidentNote, NodeHour
from fleet.selectors_api_incidents import bad_runs
from fleet.selectors_hours import Stretch, merge
from fleet.selectors_incidents import Affected, IncidentLine, lines_of
from fleet.selectors_live import title_of, to_ms
from fleet.selectors_node import subject_stretches
from fleet.strip_drawing import Strip, draw
from orgs.models import AuditEntry

MOST_STRIPS = 64
MOST_RUNS = 120  # on the page; the download has all
LEAST_AROUND = 40  # slots on each side of the strip
MOST_HOURS = 31 * 24


@dataclass(frozen=True)
class Evidence:
    """One reason of an incident: where it stood and for whom, and what its rule says."""

    rule: Explained
    places: str
    first_ms: int
    last_ms: int
    weight: int


@dataclass(frozen=True)
class Place:
    """An affected place: its share of the loss and its strip."""

    affected: Affected
    first_ms: int
    end_ms: int
    bad_s: int
    lost_ws: int
    weight: int
    strip: Strip | None
    is_linked: bool


@dataclass(frozen=True)
class BadRun:
    """Slots of one place with one verdict: its weights, how it came about, why."""

    affected: Affected
    first_ms: int
    end_ms: int
    slots: int
    verdict: Verdict
    reasons: str


@dataclass(frozen=True)
class IncidentDetail:
    """The page of an incident. Strips are drawn over `[drawn_from, drawn_to)` slots."""

    line: IncidentLine
    evidence: tuple[Evidence, ...]
    places: tuple[Place, ...]
    more_places: int
    runs: tuple[BadRun, ...]
    run_count: int
    runs_from_ms: int
    drawn_from: int
    drawn_to: int
    notes: tuple[IncidentNote, ...]
    trail: tuple[AuditEntry, ...]
    rules: Rules

    @property
    def lead(self) -> Evidence | None:
        """The evidence of the reason that leads."""
        return next((one for one in self.evidence if one.rule.code == self.line.row.code), None)


def get_detail(now: datetime, incident: Incident, org_id: int) -> IncidentDetail:
    """Everything about one incident; the caller has looked whether the asker may see it."""
    (line,) = lines_of(now, [incident])
    rules = load_rules()
    by_subject = {one.subject: one for one in line.affected}
    around = max(LEAST_AROUND, (incident.end_slot - incident.first_slot) // 8)
    drawn_from = max(incident.first_slot - around, incident.end_slot - MOST_HOURS * SLOTS_PER_HOUR)
    drawn_to = min(incident.end_slot + around, slot_of(to_ms(now)))
    shown = sorted(incident.parts, key=lambda part: list(by_subject).index(part["subject"]))[:MOST_STRIPS]
    strips = _strips(incident.node_id, [part["subject"] for part in shown], drawn_from, drawn_to)
    runs_from, runs = bad_runs(incident, rules)
    listed = list_runs(runs, by_subject)
    return IncidentDetail(
        line=line,
        evidence=_evidence(incident, by_subject, rules),
        places=tuple(_place(part, by_subject[part["subject"]], strips.get(part["subject"])) for part in shown),
        more_places=len(incident.parts) - len(shown),
        runs=tuple(listed[:MOST_RUNS]),
        run_count=len(listed),
        runs_from_ms=runs_from * SLOT_MS,
        drawn_from=drawn_from,
        drawn_to=drawn_to,
        notes=tuple(incident.notes.all()),
        trail=tuple(AuditEntry.objects.filter(org_id=org_id, target=f"incident {incident.pk}").order_by("at", "id")),
        rules=rules,
    )


def list_runs(runs: dict[str, list[StripRun]], by_subject: dict[str, Affected]) -> list[BadRun]:
    """The bad slots of all places in order of time."""
    found = [
        BadRun(
            by_subject[subject],
            run.first_slot * SLOT_MS,
            run.end_slot * SLOT_MS,
            run.end_slot - run.first_slot,
            run.verdict,
            ", ".join(title_of(code) for code in (*run.verdict.certain, *run.verdict.possible)),
        )
        for subject, mine in runs.items()
        for run in mine
    ]
    return sorted(found, key=lambda run: (run.first_ms, run.affected.kind != "gpu", run.affected.index or 0))


def _evidence(incident: Incident, by_subject: dict[str, Affected], rules: Rules) -> tuple[Evidence, ...]:
    spans: dict[str, list[tuple[Affected, int, int, int]]] = {}
    for part in incident.parts:
        for code, (first, last, weight) in part["codes"].items():
            spans.setdefault(code, []).append((by_subject[part["subject"]], first, last, weight))
    found = []
    for code, mine in spans.items():
        (rule,) = explain(Verdict(State.OBSERVED, 100, 100, 100, (code,)), rules)
        gpus = sorted(one.index for one, *_ in mine if one.index is not None)
        places = f"GPU {', '.join(map(str, gpus))}" if gpus else ", ".join(one.label for one, *_ in mine[:3])
        found.append(
            Evidence(
                rule,
                places,
                min(first for _, first, _, _ in mine) * SLOT_MS,
                (max(last for _, _, last, _ in mine) + 1) * SLOT_MS,
                min(weight for *_, weight in mine),
            )
        )
    return tuple(sorted(found, key=lambda one: (one.first_ms, one.weight, one.rule.code)))


def _place(part: dict[str, Any], affected: Affected, strip: Strip | None) -> Place:
    return Place(
        affected=affected,
        first_ms=part["first_slot"] * SLOT_MS,
        end_ms=part["end_slot"] * SLOT_MS,
        bad_s=part["bad_slots"] * SLOT_MS // 1000,
        lost_ws=part["lost"] * SLOT_MS // 1000,
        weight=part["weight"],
        strip=strip,
        is_linked=affected.kind == "gpu",
    )


def _strips(node_id: int, subjects: list[str], first: int, end: int) -> dict[str, Strip]:
    """subject → strip of `[first, end)`. One query."""
    hours = range(hour_of_slot(first), hour_of_slot(max(first, end - 1)) + 1)
    found = NodeHour.objects.filter(node_id=node_id, hour__gte=hours.start, hour__lt=hours.stop)
    rows = {hour: load_row(body) for hour, body in found.values_list("hour", "body")}
    strips = {}
    for subject in subjects:
        stretches: list[Stretch] = []
        for hour in hours:
            base = first_slot(hour)
            if hour in rows:
                stretches += subject_stretches(rows[hour], subject)
            else:
                stretches.append(Stretch(base, base + SLOTS_PER_HOUR, "unknown", 1, 1, 1))
        strips[subject] = draw(merge(stretches), first, end, first, stretches[-1].end if stretches else first)
    return strips
