"""What every dated row has, as JSON-ready maps; the org's own rule for a reason."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from fleet.models import Amendment
from fleet.models_dated import DatedRow


def amendment(one: Amendment) -> dict[str, Any]:
    """The org's own rule for a reason."""
    return {
        "id": one.pk,
        "code": one.code,
        "changes": one.changes,
        "from": at_or_null(one.from_at),
        "until": at_or_null(one.until_at),
        **dated(one),
    }


def dated(one: DatedRow) -> dict[str, Any]:
    """Who entered a dated row, when and why, and who withdrew it."""
    return {
        "reason": one.reason,
        "author": one.author,
        "entered": at_or_null(one.entered_at),
        "withdrawn": at_or_null(one.withdrawn_at),
        "withdrawn_by": one.withdrawn_by or None,
    }


def at_or_null(at: datetime | None) -> str | None:
    """An instant as RFC 3339, UTC."""
    return None if at is None else at.astimezone(UTC).isoformat().replace("+00:00", "Z")
