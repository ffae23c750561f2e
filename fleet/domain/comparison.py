"""What another rule set makes of the same facts: slots, seconds and incidents that come out otherwise, and why.

Works on rows that two folds of the same items gave. "Why" names each rule that differs and stands in a verdict that
differs; a verdict can also differ because of what a changed rule did before (a condition that it opened or ended).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise

from fleet.domain.incidents import IncidentFacts, group, parts_of
from fleet.domain.rules import RuleChange, Rules
from fleet.domain.slots import SLOT_S
from fleet.domain.strips import HourRow, StripRun
from fleet.domain.verdicts import Verdict


@dataclass(frozen=True)
class HourChange:
    """One subject's hour that comes out otherwise. `seconds` differ; sums are weight times seconds (0..100 × s)."""

    hour: int
    subject: str
    seconds: int
    nominal_before: int
    nominal_after: int
    lower_before: int
    lower_after: int
    known_before_s: int
    known_after_s: int
    codes: tuple[str, ...]  # in the verdicts that differ, before or after


@dataclass(frozen=True)
class IncidentChange:
    """An incident that appears, vanishes or differs. Slots, weights 0..100, GPU-seconds; None: there is none."""

    kind: str  # opens, vanishes, changes
    before: IncidentFacts | None
    after: IncidentFacts | None

    @property
    def codes(self) -> tuple[str, ...]:
        """Every reason that stands in it, before or after."""
        sides = [one for one in (self.before, self.after) if one is not None]
        return tuple(sorted({code for one in sides for part in one.parts for code in part.codes}))


def compare_hour(hour: int, before: HourRow | None, after: HourRow | None) -> list[HourChange]:
    """The subjects whose verdicts differ in this hour; a row that is not there says nothing."""
    old, new = before or HourRow(hour), after or HourRow(hour)
    out = []
    for subject in sorted({*old.subjects(), *new.subjects()}):
        seconds, codes = 0, set[str]()
        for a, b in _pairs(old.runs(subject), new.runs(subject)):
            if a[2] != b[2]:
                seconds += (b[1] - b[0]) * SLOT_S
                codes.update((*a[2].certain, *a[2].possible, *b[2].certain, *b[2].possible))
        if seconds:
            one, other = old.rollup(subject), new.rollup(subject)
            out.append(
                HourChange(
                    hour,
                    subject,
                    seconds,
                    one.nominal_ws,
                    other.nominal_ws,
                    one.lower_ws,
                    other.lower_ws,
                    one.known_s,
                    other.known_s,
                    tuple(sorted(codes)),
                )
            )
    return out


Cut = tuple[int, int, Verdict]


def _pairs(old: Iterable[StripRun], new: Iterable[StripRun]) -> Iterable[tuple[Cut, Cut]]:
    """Both strips cut at each other's edges: pairs of the same slots."""
    mine, theirs = list(old), list(new)
    edges = sorted({run.first_slot for run in (*mine, *theirs)} | {run.end_slot for run in mine})
    at = other = 0
    for a, b in pairwise(edges):
        while mine[at].end_slot <= a:
            at += 1
        while theirs[other].end_slot <= a:
            other += 1
        yield (a, b, mine[at].verdict), (a, b, theirs[other].verdict)


def incidents_of(rows: Mapping[int, HourRow], rules: Rules) -> list[IncidentFacts]:
    """The incidents of one node's rows, as fleet/incidents.py would derive them from all of these at once."""
    runs: dict[str, list[StripRun]] = defaultdict(list)
    for _, row in sorted(rows.items()):
        for subject in row.subjects():
            runs[subject] += row.runs(subject)
    return group([part for subject in sorted(runs) for part in parts_of(subject, runs[subject], rules)])


def compare_incidents(
    before: list[IncidentFacts], after: list[IncidentFacts], old: Rules, new: Rules
) -> list[IncidentChange]:
    """Which incidents open, vanish or change; two are the same while any of their parts overlap."""
    left = list(after)
    out = []
    for one in before:
        same = next((other for other in left if _overlap(one, other)), None)
        if same is None:
            out.append(IncidentChange("vanishes", one, None))
            continue
        left.remove(same)
        if _figures(one, old) != _figures(same, new):
            out.append(IncidentChange("changes", one, same))
    out += [IncidentChange("opens", None, one) for one in left]
    return sorted(out, key=lambda one: min(facts.first_slot for facts in (one.before, one.after) if facts is not None))


def _overlap(one: IncidentFacts, other: IncidentFacts) -> bool:
    return any(
        a.subject == b.subject and a.first_slot < b.end_slot and b.first_slot < a.end_slot
        for a in one.parts
        for b in other.parts
    )


def _figures(one: IncidentFacts, rules: Rules) -> tuple[object, ...]:
    lead = one.leading_code(rules)
    return (one.first_slot, one.end_slot, one.weight, one.lost_gpu_seconds, lead, one.party(rules), one.scope)


def why(codes: Iterable[str], changes: Iterable[RuleChange]) -> tuple[RuleChange, ...]:
    """The rules that differ and stand in what differs."""
    named = set(codes)
    return tuple(one for one in changes if one.code in named and one.is_weighty)
