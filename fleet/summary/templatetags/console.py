"""Template tags of the provider's console."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from django import template
from django.urls import NoReverseMatch, reverse

register = template.Library()
# The SLA catalogue and the rule sets have their places here: a tab appears with the route of its name.
ENTRIES = (
    ("overview", "Orgs", "provider"),
    ("jobs", "Jobs", "provider_jobs"),
    ("claims", "Claims", "provider_claims"),
    ("audit", "Audit trail", "provider_audit"),
    ("catalog", "SLA catalogue", "provider_catalog"),
    ("rules", "Rule sets", "provider_rules"),
)


@register.simple_tag
def console_tabs() -> list[tuple[str, str, str]]:
    """(section, label, address) of the console's pages that exist."""
    found = []
    for section, label, name in ENTRIES:
        try:
            found.append((section, label, reverse(name)))
        except NoReverseMatch:
            continue
    return found


@register.filter
def ago(when: datetime | None, now: datetime) -> str:
    """How long ago, in words: `12 s`, `8 min`, `3 h`, `2 d`."""
    return "never" if when is None else span((now - when).total_seconds())


@register.filter
def span(seconds: Any) -> str:
    """A span of seconds in words; empty for what is no number."""
    if not isinstance(seconds, int | float):
        return ""
    whole = max(0, int(seconds))
    for size, unit in ((86_400, "d"), (3600, "h"), (60, "min")):
        if whole >= 2 * size or (size == 60 and whole >= size):
            return f"{whole // size} {unit}"
    return f"{whole} s"
