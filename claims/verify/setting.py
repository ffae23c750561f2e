"""What dated rows said while a window was folded: written down when the pack is made, said again when it is checked.

Declared hardware, assignments, probe and peers are in no batch. A window's `setting` lists every answer that the fold
got: contexts by hour, and contexts with the witnesses of a silence.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import astuple, fields
from typing import Any

from claims.domain.rule_spans import RuleSpan, rules_at
from claims.errors import PackError
from fleet.domain.context import EMPTY, Context, Dated
from fleet.domain.rules import Rules

Asked = tuple[int, int, int, int | None, bool]


class Recording(Dated):
    """Passes every question on to `source` and keeps the answers."""

    def __init__(self, source: Dated) -> None:
        self._source = source
        self._table: list[Context] = [EMPTY]
        self._hours: dict[tuple[int, bool], int] = {}
        self._silences: dict[Asked, int] = {}

    def rules(self, hour: int) -> Rules:
        """See Dated; not recorded, as the report's rule sets say it."""
        return self._source.rules(hour)

    def context(self, hour: int, is_first: bool = False) -> Context:
        """See Dated."""
        found = self._source.context(hour, is_first)
        self._hours[hour, is_first] = self._place(found)
        return found

    def witnessed(
        self, context: Context, from_ms: int, to_ms: int, seen_ms: int | None, rebooted: bool = False
    ) -> Context:
        """See Dated."""
        found = self._source.witnessed(context, from_ms, to_ms, seen_ms, rebooted)
        if found is not context:
            self._silences[self._place(context), from_ms, to_ms, seen_ms, rebooted] = self._place(found)
        return found

    def _place(self, context: Context) -> int:
        if context not in self._table:
            self._table.append(context)
        return self._table.index(context)

    def plain(self) -> dict[str, Any]:
        """The answers as JSON; what is not listed is the empty context."""
        return {
            "contexts": [astuple(one) for one in self._table],
            "hours": [[*key, place] for key, place in sorted(self._hours.items()) if place],
            "silences": [[*key, place] for key, place in self._silences.items()],
        }


class Replayed(Dated):
    """The answers of a recorded setting."""

    def __init__(self, spans: Sequence[RuleSpan], plain: Mapping[str, Any]) -> None:
        self._spans = spans
        self._table = [_context(one) for one in plain["contexts"]] or [EMPTY]
        self._hours: dict[Any, int] = {(hour, bool(is_first)): place for hour, is_first, place in plain["hours"]}
        self._silences: dict[Any, int] = {tuple(one[:5]): one[5] for one in plain["silences"]}

    def rules(self, hour: int) -> Rules:
        """See Dated."""
        return rules_at(self._spans, hour)

    def context(self, hour: int, is_first: bool = False) -> Context:
        """See Dated."""
        return self._table[self._hours.get((hour, is_first), 0)]

    def witnessed(
        self, context: Context, from_ms: int, to_ms: int, seen_ms: int | None, rebooted: bool = False
    ) -> Context:
        """See Dated."""
        place = self._silences.get((self._table.index(context), from_ms, to_ms, seen_ms, rebooted))
        return context if place is None else self._table[place]


def _context(values: Sequence[Any]) -> Context:
    """A context from JSON: lists back to tuples."""
    names = [one.name for one in fields(Context)]
    if len(values) != len(names):
        raise PackError("A context of this pack has other fields than this verifier knows.")
    return Context(**dict(zip(names, (_tuples(one) for one in values), strict=True)))


def _tuples(value: Any) -> Any:
    return tuple(_tuples(one) for one in value) if isinstance(value, list) else value
