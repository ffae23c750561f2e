"""`doctor`: one line per check with a next step."""

from __future__ import annotations

from agent.config import Settings


def examine(settings: Settings) -> int:
    return 0
