"""What a scenario comes to: verdicts per slot range, incidents, availability, where it differs from what was said."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from fleet.domain.incidents import BURST_MS, group, parts_of
from fleet.domain.rules import Rules, load_rules
from fleet.domain.scenario.checking import Json
from fleet.domain.scenario.language import Told
from fleet.domain.scenario.node import Node
from fleet.domain.slots import SLOT_MS
from fleet.domain.strips import StripRun
from fleet.domain.verdicts import Verdict

#: One expectation: [from, to, state, nominal, lower, upper, certain, possible], slots from the scenario's first on.
Row = list[Any]


def run(scenario: Json, rules: Rules | None = None) -> Outcome:
    """The scenario folded as a worker would: each batch by itself, dirty hours folded again at the end."""
    told = Told(scenario)
    node = Node(told.context(), rules or load_rules())
    for delivery in told.deliveries():
        for batch in delivery:
            node.deliver([batch])
    node.settle()
    return Outcome(told, node)


@dataclass
class Outcome:
    """A scenario after its run."""

    told: Told
    node: Node

    def until_slot(self) -> int | None:
        """The absolute slot up to which silence is judged; None: up to the last sample's, included."""
        until = self.told.scenario.get("until")
        return None if until is None else self.told.instant(until) // SLOT_MS

    def slots(self) -> tuple[int, int]:
        """The absolute slots `[first, end)` of which something is said."""
        hours = sorted(self.node.rows)
        state = self.node.newest()
        if state is None or not hours:
            return self.told.zero, self.told.zero
        end = max(self.until_slot() or 0, state.open_slot + 1)
        first = min(
            (
                run.first_slot
                for hour in hours[:2]
                for s, run in self.node.runs(hour)
                if run.verdict.certain != ("OPEN",)
            ),
            default=state.open_slot,
        )
        return min(first, state.open_slot), end

    def subjects(self) -> list[str]:
        """The subjects in the order of the language: the node, GPUs, ports."""
        found = {s for hour in self.node.rows for s, _ in self.node.runs(hour)} | set(self.node.open_subjects())
        return sorted(found, key=lambda s: ("ngp".index(s[0]), int(s[1:]) if s[0] == "g" else 0, s))

    def runs(self, subject: str) -> list[StripRun]:
        """The subject's verdicts, equal neighbours joined; slots of which nothing is said are left out."""
        first, end = self.slots()
        out: list[StripRun] = []
        for slot, verdict in enumerate(self.node.verdicts(subject, first, end, self.until_slot()), first):
            if verdict is None or verdict.certain == ("OPEN",):
                continue
            if out and out[-1].end_slot == slot and out[-1].verdict == verdict:
                out[-1] = out[-1]._replace(end_slot=slot + 1)
            else:
                out.append(StripRun(slot, slot + 1, verdict))
        return out

    def verdicts(self) -> dict[str, list[Row]]:
        """Per subject, by its name in the language, its rows."""
        zero = self.told.zero
        return {
            name_of(subject): [
                [run.first_slot - zero, run.end_slot - 1 - zero, *plain(run.verdict)] for run in self.runs(subject)
            ]
            for subject in self.subjects()
        }

    def opened(self) -> list[list[str]]:
        """[subject, code] of everything that was opened, sorted; a burst of own-slot reasons is one."""
        rules, newest, found = self.node.newest_rules(), dict[tuple[str, str], int](), []
        for event in sorted((e for e in self.node.events if e.kind == "opened"), key=lambda e: e.first_ms):
            named = event.subject, event.code
            reason = rules.reasons.get(event.code)
            is_burst = reason is not None and reason.lasts == "slot"
            if not (is_burst and event.first_ms - newest.get(named, -BURST_MS - 1) <= BURST_MS):
                found.append([name_of(event.subject), event.code])
            newest[named] = event.first_ms
        return sorted(found)

    def reviews(self) -> list[list[str]]:
        """[subject, code] of what asks for a person's look, sorted."""
        return sorted({(name_of(e.subject), e.code) for e in self.node.events if e.kind == "review"})  # type: ignore[misc]

    def incidents(self) -> list[Json]:
        """The faults as the product groups them: scope, reason, party, slots, GPU-seconds lost."""
        rules, zero = self.node.newest_rules(), self.told.zero
        parts = [part for subject in self.subjects() for part in parts_of(subject, self.runs(subject), rules)]
        return [
            {
                "scope": one.scope,
                "code": one.leading_code(rules),
                "party": one.party(rules),
                "subjects": [name_of(part.subject) for part in one.parts],
                "first_slot": one.first_slot - zero,
                "last_slot": one.end_slot - 1 - zero,
                "weight": one.weight,
                "lost_gpu_seconds": one.lost_gpu_seconds,
            }
            for one in group(parts)
        ]

    def availability(self) -> dict[str, Json]:
        """Per GPU and of all: nominal (over known slots), both bounds (over all slots) and coverage, as parts of 1."""
        sums: dict[str, list[int]] = {}
        for subject in self.subjects():
            if subject[0] != "g":
                continue
            mine = [0, 0, 0, 0, 0]
            for first, end, verdict in self.runs(subject):
                slots = end - first
                known = verdict.nominal is not None
                for i, value in enumerate((1, known, verdict.nominal or 0, verdict.lower, verdict.upper)):
                    mine[i] += slots * value
            sums[name_of(subject)] = mine
        out = {name: _shares(mine) for name, mine in sums.items()}
        if sums:
            out["all"] = _shares([sum(column) for column in zip(*sums.values(), strict=True)])
        return out

    def differences(self, expected: dict[str, list[Row]] | None = None) -> list[str]:
        """Where it differs from the scenario's expectations (or from these), in words; empty where it does not."""
        scenario, zero = self.told.scenario, self.told.zero
        found = []
        for name, rows in (expected if expected is not None else scenario.get("expected") or {}).items():
            for first, last, state, nominal, lower, upper, certain, possible in rows:
                wanted = (state, nominal, lower, upper, tuple(sorted(certain)), tuple(sorted(possible)))
                got = self.node.verdicts(subject_of(name), zero + first, zero + last + 1, self.until_slot())
                for slot, verdict in enumerate(got, first):
                    if verdict is None or tuple(verdict) != wanted:
                        found.append(f"{name} {slot}: {verdict and tuple(verdict)} instead of {wanted}")
        if scenario.get("incidents") is not None:
            wanted_incidents = sorted([str(s), str(c)] for s, c in scenario["incidents"])
            if self.opened() != wanted_incidents:
                found.append(f"incidents {self.opened()} instead of {wanted_incidents}")
        there = {name_of(subject) for subject in self.subjects()}
        found += [f"{name} must not exist" for name in scenario.get("absent_subjects") or [] if name in there]
        return found

    def as_json(self) -> Json:
        """Everything, as `run_scenario --json` prints it."""
        scenario = self.told.scenario
        said = any(scenario.get(key) is not None for key in ("expected", "incidents", "absent_subjects"))
        return {
            "id": scenario.get("id"),
            "title": scenario.get("title"),
            "verdicts": self.verdicts(),
            "incidents": self.opened(),
            "faults": self.incidents(),
            "reviews": [list(one) for one in self.reviews()],
            "availability": self.availability(),
            "as_expected": not self.differences() if said else None,
            "differences": self.differences(),
        }


def _shares(sums: list[int]) -> Json:
    slots, known, nominal, lower, upper = sums
    return {
        "nominal": _share(nominal, known),
        "lower_loss": _share(lower, slots),
        "higher_loss": _share(upper, slots),
        "coverage": _share(100 * known, slots),
    }


def _share(weights: int, slots: int) -> float | None:
    """The mean of weights from 0 to 100 as a part of 1 with seven decimals, rounded down; None of nothing."""
    return None if not slots else int(Fraction(weights, 100 * slots) * 10_000_000) / 10_000_000


def plain(verdict: Verdict) -> Row:
    """A verdict as the language writes it."""
    state, nominal, lower, upper, certain, possible = verdict
    return [str(state), nominal, lower, upper, list(certain), list(possible)]


def subject_of(name: str) -> str:
    """The subject that the language names: `n`, `g0`, `pG0`."""
    return f"p:{name[1:]}" if name.startswith("p") else name


def name_of(subject: str) -> str:
    """The name of a subject in the language.

    >>> name_of("p:G0")
    'pG0'
    """
    return f"p{subject[2:]}" if subject.startswith("p:") else subject
