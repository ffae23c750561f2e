"""The few words of an alert: what it is about, what became of it, how bad it is."""

from __future__ import annotations

KINDS = ("incident", "silence", "agents", "budget", "deadline")
WHATS = ("opened", "worsened", "acknowledged", "resolved", "reminder")
SEVERITIES = ("info", "warning", "critical")  # rising
MAX_TITLE_CHARS = 300
MAX_TEXT_CHARS = 4000
MAX_KEY_CHARS = 120


def severity_of_weight(weight: int) -> str:
    """Of an incident by its least nominal weight: down is critical, degraded a warning, what lowers nothing info."""
    return "critical" if weight == 0 else "warning" if weight < 100 else "info"


def at_least(severity: str, least: str) -> bool:
    """Whether a severity reaches another."""
    return SEVERITIES.index(severity) >= SEVERITIES.index(least)


def worst(*severities: str) -> str:
    """The highest of some severities."""
    return max(severities, key=SEVERITIES.index)
