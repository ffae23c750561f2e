"""Incidents: which bad slots belong to one fault. Derived from strips alone, so they can be recomputed like them.

1. A slot of a subject is *bad* when a reason of severity degraded, down or lost stands in its verdict, certain or
   possible, and the reason is not the customer's. It is a *suspicion* while it weighs 100 and its reasons are possible
   only (pending, contested): that opens nothing, but belongs to the bad slots that follow within ten minutes.
2. Bad slots of a subject at most `REOPEN_SLOTS` apart are one *part*: a fault that comes back within ten minutes
   reopens.
3. A part that never took more than half of the hardware and lasted under a minute is a *blip* and no incident.
4. Parts of one node that begin within `TOGETHER_SLOTS` of each other and share a reason are one incident: a dead node
   is one fault, not eight.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from fleet.domain.rules import Rules
from fleet.domain.rules.model import SEVERITIES
from fleet.domain.slots import SLOT_S
from fleet.domain.strips import StripRun
from fleet.domain.verdicts import Verdict

REOPEN_SLOTS = 40  # ten minutes
TOGETHER_SLOTS = 8  # two minutes
BLIP_SLOTS = 4  # one minute
BLIP_WEIGHT = 50  # a slot at or below this weight is never a blip
BURST_MS = 180_000  # a silence that ends a burst of one own-slot reason (docs/fold.md)
NODE_LOST = "NODE_LOST"
WISH = "RECOVERY_"  # reasons that are NVML's recovery action and nothing else
OPENING = frozenset({"degraded", "down", "lost"})


@dataclass(frozen=True)
class CodeSpan:
    """Where one reason stood within a part: its first and last slot, its least nominal weight there."""

    first_slot: int
    last_slot: int
    weight: int


@dataclass(frozen=True)
class Part:
    """One subject's share in an incident: slots `[first_slot, end_slot)`, the reasons that stood in them.

    `bad_slots` counts the slots that were bad, `lost` adds up 100 − nominal over them (weight times slots).
    """

    subject: str
    first_slot: int
    end_slot: int
    codes: Mapping[str, CodeSpan]
    bad_slots: int
    lost: int
    weight: int

    @property
    def is_blip(self) -> bool:
        """Too short and too shallow to be an incident."""
        return self.bad_slots < BLIP_SLOTS and self.weight > BLIP_WEIGHT


@dataclass(frozen=True)
class IncidentFacts:
    """One fault of a node: its parts, the reason that leads, its whole extent in slots."""

    parts: tuple[Part, ...]
    first_slot: int = field(init=False)
    end_slot: int = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "first_slot", min(part.first_slot for part in self.parts))
        object.__setattr__(self, "end_slot", max(part.end_slot for part in self.parts))

    @property
    def weight(self) -> int:
        """The least nominal weight of any part."""
        return min(part.weight for part in self.parts)

    @property
    def lost_gpu_seconds(self) -> int:
        """GPU-seconds lost in the nominal reading, rounded down: parts of GPUs only."""
        return sum(part.lost for part in self.parts if part.subject.startswith("g")) * SLOT_S // 100

    @property
    def scope(self) -> str:
        """`gpu`, `port` or `node`: the narrowest that holds all parts."""
        kinds = {part.subject[0] for part in self.parts}
        if len(self.parts) == 1 and kinds != {"n"}:
            return "gpu" if kinds == {"g"} else "port"
        return "node"

    def codes(self) -> dict[str, CodeSpan]:
        """Every reason in the incident with its extent over all parts."""
        found: dict[str, CodeSpan] = {}
        for part in self.parts:
            for code, span in part.codes.items():
                found[code] = _joined(found[code], span) if code in found else span
        return found

    def leading_code(self, rules: Rules) -> str:
        """The reason that tells most: least weight in the incident, a cause before what follows from it, least weight
        by rule, earliest, greatest severity, by name.

        What follows: a symptom of another reason in the incident, and the driver's wish for an action beside the fault
        that made it ask (fold.md 11).
        """
        codes = self.codes()

        def rank(entry: tuple[str, CodeSpan]) -> tuple[int, bool, int, int, int, str]:
            code, span = entry
            rule = rules.reasons.get(code)
            if rule is None:
                return span.weight, False, 100, span.first_slot, 0, code
            follows = code.startswith(WISH) or any(other in codes for other in rule.symptom_of)
            return span.weight, follows, rule.weight, span.first_slot, -SEVERITIES.index(rule.severity), code

        return min(codes.items(), key=rank)[0]

    def party(self, rules: Rules, is_together: bool = False) -> str:
        """Whose fault; `is_together`: as part of a cluster-wide incident."""
        return party_of(self.codes(), self.leading_code(rules), rules, is_together)


def party_of(codes: Iterable[str], leading: str, rules: Rules, is_together: bool) -> str:
    """Whose fault an incident with these reasons is: `infrastructure` as soon as one of them says so, else `ambiguous`.

    `is_together`: it is part of a cluster-wide incident. Nodes that died together did so by the infrastructure; a
    hardware fault before a node's death lies in the incident itself (architecture 4).
    """
    parties = {rules.reasons[code].party for code in codes if code in rules.reasons}
    is_theirs = "infrastructure" in parties or (is_together and leading == NODE_LOST)
    return "infrastructure" if is_theirs else "ambiguous"


def opens(code: str, rules: Rules) -> bool:
    """Whether a slot with this reason is bad."""
    rule = rules.reasons.get(code)
    return rule is not None and rule.severity in OPENING and rule.party not in ("customer", "none")


def parts_of(subject: str, runs: Iterable[StripRun], rules: Rules, since: int = 0) -> list[Part]:
    """The parts in a subject's runs (in order of time, hours joined), blips included.

    `since`: what is bad before this slot was counted before; suspicions before it are not, as long as nothing followed.
    """
    parts: list[Part] = []
    suspicions: list[tuple[StripRun, list[str]]] = []
    for run in runs:
        codes = _bad_codes(run.verdict, rules)
        if not codes:
            continue
        if _is_suspicion(run.verdict, codes):
            suspicions.append((run, codes))
            continue
        bad = run._replace(first_slot=max(since, run.first_slot))
        if bad.end_slot > since:
            nearest = bad.first_slot - REOPEN_SLOTS
            for earlier, suspected in suspicions:
                if earlier.end_slot > nearest and run.first_slot >= since:
                    first = max(nearest, earlier.first_slot)
                    _add(parts, _part_of(subject, earlier._replace(first_slot=first), suspected))
            _add(parts, _part_of(subject, bad, codes))
        suspicions = []
    return parts


def first_bad(runs: Iterable[StripRun], rules: Rules, since: int) -> int | None:
    """The first slot from `since` on that is bad and no suspicion."""
    for run in runs:
        codes = _bad_codes(run.verdict, rules)
        if codes and run.end_slot > since and not _is_suspicion(run.verdict, codes):
            return max(since, run.first_slot)
    return None


def _bad_codes(verdict: Verdict, rules: Rules) -> list[str]:
    return [code for code in (*verdict.certain, *verdict.possible) if opens(code, rules)]


def _is_suspicion(verdict: Verdict, codes: Iterable[str]) -> bool:
    return verdict.nominal == 100 and not any(code in verdict.certain for code in codes)


def _part_of(subject: str, run: StripRun, codes: Iterable[str]) -> Part:
    weight = 100 if run.verdict.nominal is None else run.verdict.nominal
    slots = run.end_slot - run.first_slot
    span = CodeSpan(run.first_slot, run.end_slot - 1, weight)
    lost = slots * (100 - weight)
    return Part(subject, run.first_slot, run.end_slot, dict.fromkeys(codes, span), slots, lost, weight)


def _add(parts: list[Part], found: Part) -> None:
    """Append it, or join it to the last one that is near enough."""
    if parts and found.first_slot - parts[-1].end_slot <= REOPEN_SLOTS:
        parts[-1] = join(parts[-1], found)
    else:
        parts.append(found)


def join(first: Part, second: Part) -> Part:
    """Two parts of one subject as one; `second` begins where or after `first` ends."""
    codes = dict(first.codes)
    for code, span in second.codes.items():
        codes[code] = _joined(codes[code], span) if code in codes else span
    return Part(
        first.subject,
        min(first.first_slot, second.first_slot),
        max(first.end_slot, second.end_slot),
        codes,
        first.bad_slots + second.bad_slots,
        first.lost + second.lost,
        min(first.weight, second.weight),
    )


def _joined(one: CodeSpan, other: CodeSpan) -> CodeSpan:
    return CodeSpan(
        min(one.first_slot, other.first_slot),
        max(one.last_slot, other.last_slot),
        min(one.weight, other.weight),
    )


def group(parts: Sequence[Part]) -> list[IncidentFacts]:
    """The incidents of one node, in order of time; blips are left out."""
    incidents: list[list[Part]] = []
    for part in sorted((p for p in parts if not p.is_blip), key=lambda p: (p.first_slot, p.subject)):
        for incident in reversed(incidents):
            head = incident[0]
            if part.first_slot - head.first_slot > TOGETHER_SLOTS:
                continue
            if any(set(part.codes) & set(member.codes) for member in incident):
                incident.append(part)
                break
        else:
            incidents.append([part])
    return [IncidentFacts(tuple(incident)) for incident in incidents]
