"""Filters of the pages of contracts, reports and claims: figures of result.json as people read them."""

from __future__ import annotations

from typing import Any

from django import template
from django.utils import timezone

from claims import selectors, words
from fleet.domain.rules import load_rules

register = template.Library()


@register.filter
def pct(share: Any, digits: int = 2) -> str:
    """A share of result.json as a floored percentage, without its sign."""
    return words.percent(share, digits)


@register.inclusion_tag("claims/_next.html", takes_context=True)
def next_deadline(context: Any) -> dict[str, Any]:
    """What can be filed next, for the Fleet page; nothing where no window is open."""
    request = context["request"]
    found = selectors.next_deadline(timezone.now(), request.access.clusters)
    return {"one": found, "org": request.org}


@register.filter
def duration(seconds: Any) -> str:
    """`3 h 12 min`."""
    return words.span(seconds)


@register.filter
def cash(amount: Any, currency: str = "") -> str:
    """`€ 4,318.00`."""
    return words.money(None if amount is None else f"{amount:.2f}" if hasattr(amount, "as_tuple") else amount, currency)


@register.filter
def month(label: str) -> str:
    """`October 2026`."""
    return selectors.month_words(label)


@register.filter
def clock(utc: str) -> str:
    """`10-04 02:11:07` of an ISO instant in UTC."""
    return utc[5:10] + " " + utc[11:19]


@register.filter
def gpu_hours_lost(hundredths: str) -> str:
    """Weight-seconds in hundredths as GPU-hours."""
    hours = int(hundredths) / 100 / 3600
    return f"{hours:,.1f}" if hours < 1000 else f"{hours:,.0f}"


@register.filter
def sentence(code: str) -> str:
    """`hardware_failure` → `hardware failure`."""
    return code.replace("_", " ")


@register.filter
def missing(field: str) -> str:
    """What a contract does not say, in words."""
    return words.missing_words(field)


@register.filter
def short_month(label: str) -> str:
    """`Oct` of `2026-10`; with its year in January."""
    words_of = selectors.month_words(label)
    return words_of[:3] + (f" {label[:4]}" if label.endswith("-01") else "")


@register.filter
def reason(code: str) -> str:
    """`GPU fell off the bus (XID_79)`: a reason of the rule set in words."""
    rule = load_rules().reasons.get(code)
    return code if rule is None else f"{rule.title} ({code})"


@register.filter
def figures(difference: dict[str, list[str | None]]) -> list[tuple[str, str, str]]:
    """(figure, before, after) of a difference, for people: seconds as hours and minutes."""
    return [(_figure(name), _shown(name, before), _shown(name, after)) for name, (before, after) in difference.items()]


def _figure(name: str) -> str:
    unit, found, reading = name.partition(": counted seconds, ")
    return f"{unit} counted, {reading} reading" if found else name


def _shown(name: str, value: str | None) -> str:
    if value is None:
        return "–"
    return str(duration(value)) if ": counted seconds, " in name else value
