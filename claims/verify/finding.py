"""What a check finds, and the names that the checks share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

PASS, FAIL, NOT_PROVEN = "PASS", "FAIL", "NOT PROVEN"
Files = Mapping[str, bytes]


@dataclass(frozen=True)
class Finding:
    """One check: its name, the answer that it belongs to, PASS, FAIL or NOT PROVEN, and a sentence."""

    check: str
    answer: str
    verdict: str
    detail: str


class Wrong(Exception):
    """A check that fails, with its sentence."""
