"""The rule sets that a pack encloses, by their time, as they were amended."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache

from claims.domain.rule_spans import RuleSpan, read_spans
from claims.verify.documents import read
from fleet.domain.rules import Rules, read_rules

Files = Mapping[str, bytes]


def base_of(files: Files) -> Callable[[str], Rules]:
    """What gives an enclosed rule set by its version, without amendments."""

    def base(version: str) -> Rules:
        folder = f"rules/{version}/"
        return _read_rules(version, tuple((n.rpartition("/")[2], b) for n, b in files.items() if n.startswith(folder)))

    return base


@lru_cache(maxsize=16)
def _read_rules(version: str, texts: tuple[tuple[str, bytes], ...]) -> Rules:
    return read_rules(version, dict(texts))


def rules_of(files: Files) -> list[RuleSpan]:
    """The rule sets that the pack encloses, by their time, as they were amended."""
    return read_spans(read(files, "inputs.json")["rules"]["spans"], base_of(files))
