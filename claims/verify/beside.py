"""The result under the unamended rules, beside the one under the amended.

An amendment is the claimant's own. What it moves shows in a second result: the batches of the claimed hours are folded
under the rule sets without amendments, all other verdicts are read by those rules, and the contract is applied again.
Hours that only the unamended rules would count stay as they are: that can but lower what this second result says.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from claims.domain.assemble import assemble
from claims.domain.completeness import assess
from claims.domain.contract import Contract as Terms
from claims.domain.month_runs import VerdictRun
from claims.domain.periods import Period
from claims.domain.plain import plain_assessment
from claims.domain.result import Inputs
from claims.domain.rule_spans import FOREVER, RuleSpan, Translator, rules_at
from fleet.domain.context import Context, Dated
from fleet.domain.rules import Rules

Runs = dict[str, list[VerdictRun]]
Base = Callable[[str], Rules]
#: (node's id, first slot, end slot, runs of these slots under the unamended rules)
Folded = tuple[str, int, int, Mapping[str, Sequence[VerdictRun]]]


class Under(Dated):
    """The same contexts and witnesses under other rules."""

    def __init__(self, source: Dated, spans: Sequence[RuleSpan]) -> None:
        self._source, self._spans = source, spans

    def rules(self, hour: int) -> Rules:
        """See Dated."""
        return rules_at(self._spans, hour)

    def context(self, hour: int, is_first: bool = False) -> Context:
        """See Dated."""
        return self._source.context(hour, is_first)

    def witnessed(
        self, context: Context, from_ms: int, to_ms: int, seen_ms: int | None, rebooted: bool = False
    ) -> Context:
        """See Dated."""
        return self._source.witnessed(context, from_ms, to_ms, seen_ms, rebooted)


def without_amendments(spans: Sequence[RuleSpan], base: Base) -> list[RuleSpan]:
    """The rule sets of these spans as they were before anybody amended them."""
    out: list[RuleSpan] = []
    for span in spans:
        plain = RuleSpan(span.first_slot, span.base, (), base(span.base))
        if not out or out[-1].rules.digest != plain.rules.digest:
            out.append(plain)
    return out


def is_amended(spans: Sequence[RuleSpan], period: Period) -> bool:
    """Whether amended rules were in force in a part of the period."""
    ends = [span.first_slot for span in spans[1:]] + [FOREVER]
    firsts = [-FOREVER, *ends[:-1]]
    return any(
        span.amendments and first < period.end_slot and end > period.first_slot
        for span, first, end in zip(spans, firsts, ends, strict=True)
    )


def put_over(runs: Mapping[str, Sequence[VerdictRun]], low: int, high: int, new: Mapping[str, Any]) -> Runs:
    """The runs with those of the slots `[low, high)` replaced by `new`."""
    out: Runs = {}
    for subject in {**runs, **new}:
        line = runs.get(subject, ())
        before = [(a, min(b, low), verdict) for a, b, verdict in line if a < low]
        inside = [
            (max(a, low), min(b, high), verdict) for a, b, verdict in new.get(subject, ()) if a < high and b > low
        ]
        after = [(max(a, high), b, verdict) for a, b, verdict in line if b > high]
        if found := [*before, *inside, *after]:
            out[subject] = found
    return out


def beside(
    terms: Terms,
    inputs: Inputs,
    nodes: Iterable[tuple[str, str, Mapping[str, Sequence[VerdictRun]]]],
    folded: Iterable[Folded],
    amended: Sequence[RuleSpan],
    base: Base,
) -> dict[str, Any]:
    """The assessment of the same month under the unamended rules. `nodes`: (id, name, runs as the report has them)."""
    runs = {node_id: (name, mine) for node_id, name, mine in nodes}
    for node_id, low, high, new in folded:
        if node_id in runs and new:
            name, mine = runs[node_id]
            runs[node_id] = name, put_over(mine, low, high, new)
    read = Translator(without_amendments(amended, base)).over
    facts = assemble(runs.values(), inputs.first_slot, inputs.end_slot, read)
    return {
        "amendments": sorted({one.digest() for span in amended for one in span.amendments}),
        "assessment": plain_assessment(assess(terms, replace(inputs, facts=facts))),
    }
