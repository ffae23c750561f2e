"""What the fold says of a subject's slots, in the words that the contract arithmetic needs.

A `Standing` says how sure a reason is (contract.md 1 to 5). The fold stores codes; the rule set says party, category
and weight. Subjects are paths: `n1` is a node, `n1/gpu0` a place of it; `parent` drops the last part.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import StrEnum
from typing import NamedTuple, Protocol

from fleet.domain.verdicts import State, Verdict

UNREACHABLE = "unreachable"
CATEGORIES = ("unreachable", "hardware_failure", "firmware", "network", "degraded")
#: A possible one of these counts inside the provider's own record of that time (contract.md 3).
WITNESS_CODES = frozenset({"NODE_UNREACHABLE", "NODE_LOST"})

#: Causes of unknown in which the node was heard from: not silent, so known for `unreachable` (contract.md 4).
HEARD = frozenset(
    {
        "TWO_INSTALLATIONS",
        "NVML_BLIND",
        "NVML_ABSENT",
        "NVML_ERROR",
        "NVML_TIMEOUT",
        "NVML_LOST",
        "UNBOUND",
        "IB_BLIND",
        "source_blind",
    }
)


class Standing(StrEnum):
    """How sure a reason is in a slot."""

    CERTAIN = "certain"
    EDGE_BAD = "edge_bad"  # an edge slot whose own sample is bad
    EDGE = "edge"
    PENDING = "pending"
    CONTESTED = "contested"
    HELD = "held"
    POSSIBLE = "possible"


class Reason(NamedTuple):
    """A reason in a slot: weight 0..100, category and party as in the rule set. `is_share`: a port's share of a GPU's
    weight, which no binary contract counts (contract.md 1). `owner`: `driver` or `fabric` where the fault is the
    provider's only if the contract says that the provider owns that.
    """

    code: str
    weight: int
    category: str
    party: str
    standing: Standing
    is_share: bool = False
    owner: str = ""


class Facts(NamedTuple):
    """A slot. `blind`: the subject is unknown; then only a reason that another source saw is certain.

    `nominal` (None exactly when blind), `lower`, `upper`: the fold's weights, 0..100. `cause`: why it is unknown.
    """

    blind: bool
    reasons: tuple[Reason, ...]
    nominal: int | None
    lower: int
    upper: int
    cause: str = ""


class FactRun(NamedTuple):
    """The same facts in the absolute slots `[first_slot, end_slot)`."""

    first_slot: int
    end_slot: int
    facts: Facts


HEALTHY = Facts(False, (), 100, 100, 100)
UNKNOWN = Facts(True, (), None, 100, 0)


class RuleReason(Protocol):
    """What is needed of a reason of the rule set (fleet.domain.rules.model.Reason)."""

    @property
    def weight(self) -> int: ...
    @property
    def category(self) -> str: ...
    @property
    def party(self) -> str: ...
    @property
    def lasts(self) -> str: ...
    @property
    def subject(self) -> str: ...
    @property
    def owner(self) -> str: ...


def parent(resource: str) -> str:
    """The node of a place; '' for a subject that lies in none."""
    return resource.rpartition("/")[0]


def ancestors(resource: str) -> list[str]:
    """The resource itself, then what it lies in."""
    out = []
    while resource:
        out.append(resource)
        resource = parent(resource)
    return out


_STANDINGS = {
    State.EDGE: Standing.EDGE_BAD,
    State.PENDING: Standing.PENDING,
    State.CONTESTED: Standing.CONTESTED,
    State.HELD: Standing.HELD,
}


def facts_of(verdict: Verdict, rules: Mapping[str, RuleReason]) -> Facts:
    """The facts of a verdict of the fold, for a GPU, node or domain.

    The fold calls certain what holds in the claims reading, so everything else takes its standing from the verdict's
    state; beside an observed verdict it is only possible. A certain reason of the category `unreachable` rests on
    witnesses, not on the silent agent, and stays certain in an unknown slot; no other does (contract.md 1). The rule
    set gives `unreachable` the weight 100 because it lowers no GPU; for a contract an unreachable node is down: 0.
    Codes that the rule set does not know are skipped.

    A verdict has one weight a reading and its rules one a reason, but a throttled share, a hidden port's share and a
    MIG slice lower by less than their rule's weight. No reason weighs less than the verdict, so a fixed one weighs the
    greater of both; a variable one weighs the verdict's weight where nothing else can have given it, else 100.
    """
    blind = verdict.state is State.UNKNOWN
    weights = _weights(verdict.certain, verdict.lower, rules)
    reasons: list[Reason] = []
    for code in verdict.certain:
        rule = rules.get(code)
        if rule is not None and rule.category in CATEGORIES and (not blind or rule.category == UNREACHABLE):
            reasons.append(_reason(code, weights[code], rule, Standing.CERTAIN))
    standing = _STANDINGS.get(verdict.state, Standing.POSSIBLE)
    if standing is Standing.EDGE_BAD and verdict.nominal == 100:
        standing = Standing.EDGE
    seen = standing in (Standing.EDGE_BAD, Standing.HELD)
    weights = _weights(verdict.possible, (verdict.nominal or 0) if seen else verdict.upper, rules)
    for code in verdict.possible:
        rule = rules.get(code)
        if rule is not None and rule.category in CATEGORIES:
            # A reachability reason takes no part in the weights, so the state says nothing about it.
            own = Standing.POSSIBLE if rule.category == UNREACHABLE else standing
            reasons.append(_reason(code, weights[code], rule, own))
    cause = ""
    if blind:
        cause = next((c for c in verdict.certain if c in rules and rules[c].category not in CATEGORIES), "")
    return Facts(blind, tuple(reasons), verdict.nominal, verdict.lower, verdict.upper, cause)


def _reason(code: str, weight: int, rule: RuleReason, standing: Standing) -> Reason:
    is_share = rule.subject == "port" and 0 < weight < 100
    return Reason(code, weight, rule.category, rule.party, standing, is_share, rule.owner)


def _weights(codes: Sequence[str], weight: int, rules: Mapping[str, RuleReason]) -> dict[str, int]:
    """What each reason weighs when their least is `weight`; see `facts_of`."""
    known = {code: rules[code] for code in codes if code in rules}
    variable = {code: rule for code, rule in known.items() if rule.lasts == "share" or rule.subject == "port"}
    fixed = [rule for code, rule in known.items() if code not in variable and rule.category != UNREACHABLE]
    explained = any(rule.weight <= weight for rule in fixed if rule.weight < 100)
    one_category = len({rule.category for rule in variable.values()}) == 1
    out = {}
    for code, rule in known.items():
        if rule.category == UNREACHABLE:
            out[code] = 0
        elif code in variable:
            out[code] = weight if one_category and not explained else 100
        else:
            out[code] = max(rule.weight, weight)
    return out


#: The parts of a run `[first, end)` with one set of facts each (claims.domain.rule_spans.Translator.over).
Translate = Callable[[int, int, Verdict], Iterable[tuple[int, int, Facts]]]


def runs_of(verdict_runs: Iterable[tuple[int, int, Verdict]], translate: Translate) -> list[FactRun]:
    """A subject's runs from the fold's, in slot order; equal neighbours are joined."""
    out: list[FactRun] = []
    for run in verdict_runs:
        for first, end, facts in translate(*run):
            if out and out[-1].end_slot == first and out[-1].facts is facts:
                out[-1] = FactRun(out[-1].first_slot, end, facts)
            else:
                out.append(FactRun(first, end, facts))
    return out
