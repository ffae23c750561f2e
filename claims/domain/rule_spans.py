"""Which rule set was in force when: a report may span a newer rule set or an amendment.

What the fold stores of a slot are codes; party, weight and category of a code are those of the rules of its hour.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

from claims.domain.facts import Facts, facts_of
from claims.errors import InputsError
from fleet.domain.rules import Rules, amend, amendment
from fleet.domain.slots import SLOTS_PER_HOUR
from fleet.domain.verdicts import Verdict

FOREVER = 1 << 60


class RuleSpan(NamedTuple):
    """These rules from `first_slot` on, up to the next span. `base`: the rule set without its amendments."""

    first_slot: int
    base: str
    amendments: tuple[Any, ...]
    rules: Rules


class Translator:
    """Verdicts as facts by the rules of their own time; each distinct verdict is translated once a span."""

    def __init__(self, spans: Sequence[RuleSpan]) -> None:
        if not spans:
            raise InputsError("No rule set is named.", "rules")
        ends = [span.first_slot for span in spans[1:]] + [FOREVER]
        firsts = [-FOREVER, *ends[:-1]]
        self._spans = [(a, b, span.rules.reasons) for a, b, span in zip(firsts, ends, spans, strict=True)]
        self._known: list[dict[Verdict, Facts]] = [{} for _ in spans]

    def over(self, first: int, end: int, verdict: Verdict) -> Iterator[tuple[int, int, Facts]]:
        """The parts of a run with one set of facts each."""
        for (low, high, reasons), known in zip(self._spans, self._known, strict=True):
            if low < end and first < high:
                found = known.get(verdict)
                if found is None:
                    found = known[verdict] = facts_of(verdict, reasons)
                yield max(first, low), min(end, high), found


def always(rules: Rules) -> Translator:
    """One rule set for all times."""
    return Translator([RuleSpan(0, rules.version, (), rules)])


def rules_at(spans: Sequence[RuleSpan], hour: int) -> Rules:
    """The rules of an hour since 1970."""
    found = spans[0]
    for span in spans:
        if span.first_slot <= hour * SLOTS_PER_HOUR:
            found = span
    return found.rules


def plain_spans(spans: Sequence[RuleSpan]) -> list[dict[str, Any]]:
    """The spans for `inputs.json`."""
    return [
        {
            "first_slot": str(span.first_slot),
            "base": span.base,
            "version": span.rules.version,
            "digest": span.rules.digest,
            "amendments": [
                {
                    "code": one.code,
                    "changes": {key: list(value) if isinstance(value, tuple) else value for key, value in one.changes},
                    "reason": one.reason,
                    "from_ms": str(one.from_ms),
                    "to_ms": None if one.to_ms is None else str(one.to_ms),
                }
                for one in span.amendments
            ],
        }
        for span in spans
    ]


def read_spans(plain: Sequence[Mapping[str, Any]], base: Callable[[str], Rules]) -> list[RuleSpan]:
    """The spans of `inputs.json`; `base` gives a rule set by its version. Raises InputsError where a digest differs."""
    out = []
    for one in plain:
        amendments = tuple(
            amendment(a["code"], a["changes"], a["reason"], int(a["from_ms"]), a["to_ms"] and int(a["to_ms"]))
            for a in one["amendments"]
        )
        rules = amend(base(one["base"]), amendments)
        if rules.digest != one["digest"]:
            raise InputsError(f"The rules {one['version']} are not those that the report was computed under.", "rules")
        out.append(RuleSpan(int(one["first_slot"]), one["base"], amendments, rules))
    if any(b.first_slot <= a.first_slot for a, b in pairwise(out)):
        raise InputsError("The rule sets are not in the order of their time.", "rules")
    return out
