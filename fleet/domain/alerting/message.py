"""What is told of a thread, as plain data: the same message goes to every channel, each in its own form."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from typing import Any

HEADS = {
    "opened": {"critical": "Down", "warning": "Degraded", "info": "Possible"},
    "worsened": {"critical": "Worse: down", "warning": "Worse", "info": "Changed"},
}
CONFIRM = "confirm"  # asks an address whether it wants alerts
OTHER_HEADS = {
    "acknowledged": "Acknowledged",
    "resolved": "Resolved",
    "reminder": "Reminder",
    "test": "Test",
    CONFIRM: "Please confirm",
}
OTHER_KINDS = {"silence": "Silent", "agents": "Two agents", "budget": "Uptime", "deadline": "Deadline"}


@dataclass(frozen=True)
class Message:
    """One message. Instants are RFC 3339 in UTC, `ended_at` is None while it goes on; `url` is its page.

    `changes` counts what happened since the last message of this thread; `is_over` says that the trouble was over
    before anything of it was told.
    """

    org: str
    key: str
    kind: str
    what: str
    severity: str
    title: str
    text: str
    began_at: str
    at: str
    url: str
    ended_at: str | None = None
    party: str = ""
    cluster: str = ""
    changes: int = 1
    is_over: bool = False
    facts: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, plain: Mapping[str, Any]) -> Message:
        """A message from its JSON."""
        return cls(**plain)

    def plain(self) -> dict[str, Any]:
        """Itself as JSON."""
        return {**asdict(self), "facts": dict(self.facts)}

    @property
    def head(self) -> str:
        """What became of it in a word or two, such as `Down` or `Resolved`."""
        if self.what in OTHER_HEADS:
            return OTHER_HEADS[self.what]
        if self.kind in OTHER_KINDS:
            return OTHER_KINDS[self.kind]
        return HEADS.get(self.what, HEADS["worsened"])[self.severity]

    @property
    def line(self) -> str:
        """The message in one line."""
        return f"{self.head}: {self.title}"


def rfc3339(at: datetime) -> str:
    """An instant in UTC to the second, such as `2026-11-30T07:04:15Z`."""
    return at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def lasted(began_at: str, ended_at: str) -> str:
    """A span in words: `45 s`, `8 min`, `2 h 20 min`, `3 d 4 h`."""
    seconds = max(0, int((datetime.fromisoformat(ended_at) - datetime.fromisoformat(began_at)).total_seconds()))
    if seconds < 60:
        return f"{seconds} s"
    if seconds < 3600:
        return f"{seconds // 60} min"
    if seconds < 172_800:
        return f"{seconds // 3600} h {seconds % 3600 // 60} min"
    return f"{seconds // 86_400} d {seconds % 86_400 // 3600} h"
