"""Template tags of the people's pages."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime
from typing import Any

from django import template
from django.utils.html import format_html
from django.utils.safestring import SafeString

register = template.Library()
SHOWN = {"full": "%-d %b %H:%M UTC", "day": "%-d %b %Y", "hm": "%H:%M UTC", "clock": "%H:%M:%S UTC"}
MOST_CHARS = 300
EMPTY: tuple[Any, ...] = (None, "", [], {})
INSTANT = re.compile(r"(\d{4}-\d\d-\d\d)T(\d\d:\d\d):[\d.]+\+00:00")


@register.simple_tag
def at(when: datetime | None, how: str = "full", none: str = "–") -> SafeString:
    """`<time>` in UTC, which the page's script turns into the viewer's zone; `none` where there is no instant.

    `how`: full, hm, clock; day, which stays as it is because a year belongs to it.
    """
    if when is None:
        return format_html("{}", none)
    when = when.astimezone(UTC)
    iso = when.strftime("%Y-%m-%dT%H:%M:%SZ")
    if how == "day":
        return format_html('<time datetime="{}" title="{}">{}</time>', iso, iso, when.strftime(SHOWN["day"]))
    return format_html('<time datetime="{}" data-as="{}">{}</time>', iso, how, when.strftime(SHOWN[how]))


@register.filter
def words(value: Any) -> str:
    """A before or after value of the audit trail for reading: `role: viewer, clusters: a, b`."""
    if value is None:
        return ""
    if isinstance(value, dict):
        text = ", ".join(f"{key.replace('_', ' ')}: {words(item)}" for key, item in value.items() if item not in EMPTY)
    elif isinstance(value, list):
        text = ", ".join(words(item) for item in value) or "none"
    else:
        text = value if isinstance(value, str) else json.dumps(value)
        text = INSTANT.sub(r"\1 \2 UTC", text)
    return text if len(text) <= MOST_CHARS else text[:MOST_CHARS] + "…"
