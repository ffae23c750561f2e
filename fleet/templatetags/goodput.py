"""Tags and filters of the pages: floored figures, ages, times, links that keep the URL's state."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, NamedTuple
from urllib.parse import urlencode

from django import template
from django.http import HttpRequest
from django.urls import NoReverseMatch, reverse
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

from fleet.fleet_json import floored, when
from fleet.selectors_live import throttle_words, title_of
from fleet.strip_drawing import HALF, WIDTH, Strip
from orgs.access import list_orgs
from orgs.models import Org

register = template.Library()

KEPT = (
    "period",
    "state",
    "cluster",
    "q",
    "page",
    "open",
    "only",
    "party",
    "node",
    "code",
    "day",
)  # what of a page's state lives in its URL
LONG = "%-d %b %H:%M:%S UTC"
THEMES = ("light", "dark")
ENTRIES = (
    ("Fleet", "fleet"),
    ("Incidents", "incidents"),
    ("SLA", "sla"),
    ("Reports", "reports"),
    ("Claims", "claims"),
    ("Settings", "settings"),
)


class Entry(NamedTuple):
    """One entry of the navigation."""

    label: str
    url: str
    is_current: bool


@register.simple_tag(takes_context=True)
def navigation(context: template.Context) -> list[Entry]:
    """The pages of the org that exist: an entry appears with the route of its name."""
    org, request = context.get("org"), context.get("request")
    entries: list[Entry] = []
    if org is None:
        return entries
    for label, name in ENTRIES:
        try:
            url = reverse(name, kwargs={"org_slug": org.slug})
        except NoReverseMatch:
            continue
        path = request.path if request else ""
        below = tuple(f"{url}{part}/" for part in ("nodes", "domains"))
        is_current = path.startswith(url) if name != "fleet" else path == url or path.startswith(below)
        entries.append(Entry(label, url, is_current))
    return entries


@register.simple_tag(takes_context=True)
def org_switch(context: template.Context) -> list[Org]:
    """The other orgs that this person may enter."""
    request, org = context.get("request"), context.get("org")
    if not request or not org or not request.user.is_authenticated:
        return []
    return [other for other in list_orgs(request.user) if other.pk != org.pk]


@register.simple_tag(takes_context=True)
def theme_attribute(context: template.Context) -> SafeString:
    """` data-theme="dark"` when this browser remembers a choice, else nothing: the system decides."""
    request = context.get("request")
    theme = request.COOKIES.get("theme") if request else None
    return format_html(' data-theme="{}"', theme) if theme in THEMES else SafeString("")


@register.simple_tag(takes_context=True)
def link(context: template.Context, _name: str = "", **changes: Any) -> str:
    """This page (or the org's page `_name`) with its state, changed as said; an empty value removes a key."""
    request: HttpRequest = context["request"]
    state = {key: request.GET[key] for key in KEPT if request.GET.get(key)}
    state.update({key: str(value) for key, value in changes.items()})
    query = urlencode([(key, state[key]) for key in KEPT if state.get(key)])
    path = reverse(_name, kwargs={"org_slug": context["org"].slug}) if _name else request.path
    return f"{path}?{query}" if query else path


@register.simple_tag(takes_context=True)
def part_link(context: template.Context, part: str) -> str:
    """This page with its state, and the part of it that comes later: with scripts alone, without them with the rest."""
    whole = link(context)
    return f"{whole}{'&' if '?' in whole else '?'}part={part}"


@register.filter
def grouped(number: int) -> str:
    """A count for reading: `12,500`."""
    return f"{number:,}"


@register.filter
def age(seconds: float | None) -> str:
    """A span in words: `12 s`, `8 min`, `2 h 20 min`, `3 d 4 h`."""
    if seconds is None:
        return "–"
    seconds = max(0, int(seconds))
    if seconds < 60:
        return f"{seconds} s"
    if seconds < 3600:
        return f"{seconds // 60} min"
    if seconds < 172_800:
        return f"{seconds // 3600} h {seconds % 3600 // 60} min"
    return f"{seconds // 86_400} d {seconds % 86_400 // 3600} h"


@register.filter
def stamp(ms: int | None) -> datetime | None:
    """An instant in ms as an aware datetime, UTC."""
    return None if ms is None else datetime.fromtimestamp(ms / 1000, UTC)


@register.simple_tag
def time_tag(ms: int | None, how: str = "clock") -> SafeString:
    """`<time>` in UTC; the page's script turns it into the viewer's zone. `how`: clock, hm, day, full, long."""
    at = stamp(ms)
    if at is None:
        return SafeString("–")
    shown = {"clock": "%H:%M:%S UTC", "hm": "%H:%M UTC", "day": "%-d %b", "full": "%-d %b %H:%M UTC", "long": LONG}[how]
    return format_html(
        '<time datetime="{}" data-as="{}">{}</time>', at.strftime("%Y-%m-%dT%H:%M:%SZ"), how, at.strftime(shown)
    )


@register.simple_tag
def percent(part: int, whole: int, digits: int = 2) -> str:
    """A floored percentage without its sign; `–` where nothing counts."""
    return floored(part, whole, digits) or "–"


@register.simple_tag
def share(part: int, whole: int, digits: int = 2) -> SafeString:
    """A floored percentage with its sign for a figure; a dash alone where nothing counts."""
    cut = floored(part, whole, digits)
    return format_html('{}<span class="unit"> %</span>', cut) if cut else SafeString("–")


@register.filter
def gpu_hours(weight_seconds: int) -> str:
    """Weight × seconds as GPU-hours: `0`, `0.04`, `5.9`, `41.1`, `1,204`; a loss is never shown as 0."""
    hours = weight_seconds / 100 / 3600
    if weight_seconds <= 0:
        return "0"
    if hours < 0.01:
        return "<0.01"
    return f"{hours:.2f}" if hours < 1 else f"{hours:.1f}" if hours < 1000 else f"{hours:,.0f}"


@register.simple_tag
def strip_svg(strip: Strip, label: str, css: str = "") -> SafeString:
    """A strip as SVG with its text alternative; presentation attributes only, so that a strict policy holds."""
    paths = "".join(
        f'<path class="s-{layer.css}" stroke-width="{layer.stroke}" d="{layer.d}"/>' for layer in strip.layers
    )
    return format_html(
        '<svg class="strip{}" viewBox="0 0 {} {}" preserveAspectRatio="none" role="img" aria-label="{}: {}">{}</svg>',
        css,
        WIDTH,
        2 * HALF,
        label,
        strip.words,
        SafeString(paths),
    )


@register.simple_tag
def tiles(row: Any) -> SafeString:
    """A tile per GPU of a node's row; what it says is for the pointer, the row's tip says it to a reader."""
    return format_html_join(
        "",
        '<span class="tile {}{}" title="{} · GPU {}&#10;{}&#10;{}{}" aria-hidden="true">{}</span>',
        (
            (
                gpu.word,
                " marked" if gpu.marks else "",
                row.name,
                gpu.place,
                gpu.uuid or "UUID not known",
                gpu.word,
                f": {gpu.reason}" if gpu.reason else "",
                gpu.glyph,
            )
            for gpu in row.now.gpus
        ),
    )


@register.filter
def ms_age(ms: int | None) -> str:
    """A span in ms, in words."""
    return age(None if ms is None else ms / 1000)


@register.filter
def rfc(ms: int) -> str:
    """An instant in ms as RFC 3339, UTC, for a URL."""
    return when(ms) or ""


@register.filter
def to_ms(at: datetime | None) -> int | None:
    """An aware datetime as ms since 1970 UTC."""
    return None if at is None else int(at.timestamp() * 1000)


@register.filter
def gib(size: int | None) -> str:
    """Bytes as GiB with one digit; `–` for what is absent."""
    return "–" if size is None else f"{size / (1 << 30):.1f}"


@register.filter
def short(uuid: str) -> str:
    """The first eight characters of a GPU's UUID proper."""
    return uuid.removeprefix("GPU-").removeprefix("MIG-")[:8]


@register.filter
def of(values: dict[str, Any] | None, name: str) -> Any:
    """An entry of a mapping; None where there is none."""
    return (values or {}).get(name)


@register.filter
def audit_words(name: str) -> str:
    """An audited action or field in words: `incident.ticket_set` → `ticket set`."""
    return name.rpartition(".")[2].replace("_", " ")


register.filter("title_of", title_of)


@register.filter
def listed(value: Any) -> str:
    """A rule's value in words: lists with commas, `none` for an empty one."""
    return (", ".join(map(str, value)) or "none") if isinstance(value, list) else str(value)


@register.filter
def watts(milliwatts: int) -> str:
    """Whole watts."""
    return f"{milliwatts / 1000:.0f}"


register.filter("throttle_words", throttle_words)


@register.filter
def since_age(ms: int | None, as_of_ms: int) -> str:
    """How long ago an instant was, in words."""
    return "" if ms is None else age((as_of_ms - ms) / 1000)
