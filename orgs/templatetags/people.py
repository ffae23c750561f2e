"""Template tags of the people's pages."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime
from typing import Any

import segno
from django import template
from django.conf import settings
from django.urls import reverse
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


@register.simple_tag
def qr_of(text: str) -> SafeString:
    """`text` as a QR code, drawn as one path: dark squares on a light ground in either colour scheme."""
    code = segno.make(text, error="m")
    border = 3
    rows = enumerate(code.matrix_iter(border=border))
    squares = "".join(f"M{x} {y}h1v1h-1z" for y, row in rows for x, dark in enumerate(row) if dark)
    size = code.symbol_size(border=border)[0]
    return format_html(
        '<svg viewBox="0 0 {0} {0}" role="img" aria-label="QR code for the app" shape-rendering="crispEdges">'
        '<rect width="{0}" height="{0}"/><path d="{1}"/></svg>',
        size,
        squares,
    )


@register.simple_tag(takes_context=True)
def account_tabs(context: dict[str, Any]) -> list[tuple[str, str, bool]]:
    """(label, address, whether it is open) of the sections of a person's own account."""
    places = [
        ("Password", "password_change"),
        ("Address", "new_address"),
        ("Second factor", "mfa_index"),
        ("Sessions", "usersessions_list"),
    ]
    if settings.GOODPUT_OIDC_URL:
        places.append(("Single sign-on", "socialaccount_connections"))
    here = context["request"].path
    return [(label, url := reverse(name), here.startswith(url)) for label, name in places]


BROWSERS = (("Edg/", "Edge"), ("OPR/", "Opera"), ("Firefox/", "Firefox"), ("Chrome/", "Chrome"), ("Safari/", "Safari"))
DEVICES = (
    *(("iPhone", "iPhone"), ("iPad", "iPad"), ("Android", "Android"), ("Windows", "Windows")),
    *(("Mac OS X", "Mac"), ("Linux", "Linux")),
)


@register.filter
def browser(agent: str) -> str:
    """A user agent for reading, such as `Firefox on Linux`; the beginning of what it says where it is none of these."""
    found = [next((name for mark, name in marks if mark in agent), "") for marks in (BROWSERS, DEVICES)]
    return " on ".join(filter(None, found)) or agent[:40] or "unknown"
