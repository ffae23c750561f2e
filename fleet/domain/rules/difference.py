"""What two rule sets, or a rule set and its amended self, say otherwise."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

from fleet.domain.rules.model import Reason, Rules

#: Keys in the order in which a reader wants them: what moves a weight or a party first, texts last.
_FIRST = ("weight", "party", "lasts", "needs", "ends", "ends_without_action", "severity", "category")
KEYS = (*_FIRST, *(f.name for f in fields(Reason) if f.name not in (*_FIRST, "code", "where")))


@dataclass(frozen=True, slots=True)
class RuleChange:
    """One reason that differs. `kind`: `added`, `removed` or `changed`; `keys`: (key, old, new) of what changed.

    `is_weighty`: whether a verdict can come out otherwise, not only its words.
    """

    code: str
    kind: str
    keys: tuple[tuple[str, Any, Any], ...] = ()

    @property
    def is_weighty(self) -> bool:
        """Whether more than texts and sources differ."""
        return self.kind != "changed" or any(key not in _WORDS for key, _, _ in self.keys)


_WORDS = ("title", "explanation", "action", "disagreement", "sources", "sxid_names")


def diff(old: Rules, new: Rules) -> tuple[RuleChange, ...]:
    """The reasons that differ, sorted by code; empty for rule sets that decide and say the same."""
    out = []
    for code in sorted({*old.reasons, *new.reasons}):
        a, b = old.reasons.get(code), new.reasons.get(code)
        if a is None or b is None:
            out.append(RuleChange(code, "added" if a is None else "removed"))
            continue
        keys = tuple((key, getattr(a, key), getattr(b, key)) for key in KEYS if getattr(a, key) != getattr(b, key))
        if keys:
            out.append(RuleChange(code, "changed", keys))
    return tuple(out)
