"""What a request asks for, read strictly: a value that means nothing is a 422 that names its parameter."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import NoReturn

from rest_framework import exceptions

from fleet.domain.slots import HOUR_MS, SLOT_MS
from fleet.fleet_json import when
from fleet.selectors_api import Span

ALWAYS = frozenset({"org", "format"})  # who is asked (session) and in which form (as Accept)
RFC3339 = re.compile(r"\d{4}-\d\d-\d\d[Tt]\d\d:\d\d:\d\d(\.\d{1,9})?([Zz]|[+-]\d\d:\d\d)")
LOST_PLUS = re.compile(r" (?=\d\d:\d\d$)")  # `+02:00` in a query that was not escaped
MAX_ID = 2**63 - 1
MOST_SLOT = 2**31  # a column of slots holds less
MAX_TEXT = 256
PAGE, MAX_PAGE = 100, 1000
DAY_HOURS = 24


class Unprocessable(exceptions.ValidationError):
    """A parameter with a value that means nothing; the field is named."""

    status_code = 422


def refuse(name: str, sentence: str) -> NoReturn:
    """Raises Unprocessable → 422 for one parameter."""
    raise Unprocessable({name: [sentence]})


def allow(params: Mapping[str, str], names: Iterable[str]) -> None:
    """Refuse a parameter that this resource does not have: a misspelt filter must not answer with everything."""
    known = ALWAYS | set(names)
    for name in params:
        if name not in known:
            refuse(name[:64], f"There is no such parameter here. Known: {', '.join(sorted(known))}.")


def instant(params: Mapping[str, str], name: str) -> int | None:
    """ms since 1970 UTC of an RFC 3339 instant with its offset; None when the parameter is absent."""
    text = params.get(name)
    if text is None:
        return None
    text = LOST_PLUS.sub("+", text)
    if not RFC3339.fullmatch(text):
        refuse(name, "An instant in RFC 3339 with its offset, such as 2026-11-30T12:00:00Z.")
    try:
        at = datetime.fromisoformat(text.upper())
        ms = int(at.astimezone(UTC).timestamp() * 1000)
    except (ValueError, OverflowError):
        refuse(name, "There is no such instant.")
    if ms < 0:
        refuse(name, "An instant after 1970.")
    return ms


def span(
    params: Mapping[str, str],
    now_ms: int,
    *,
    limit_hours: int,
    default_hours: int = DAY_HOURS,
    grid_ms: int = SLOT_MS,
    names: tuple[str, str] = ("from", "to"),
) -> Span:
    """The range `[from, to)` widened to whole steps of `grid_ms`. `to` is now, `from` so many hours before, if absent.

    Raises Unprocessable → 422 for a range that is empty or longer than `limit_hours`, with the way to page through it.
    """
    begin, end = instant(params, names[0]), instant(params, names[1])
    if end is None:
        end = now_ms
    if begin is None:
        begin = max(0, end - default_hours * HOUR_MS)
    _in_order(begin, end, names)
    first, last = begin // grid_ms * grid_ms, -(-end // grid_ms) * grid_ms
    if last - first > limit_hours * HOUR_MS:
        much = f"{limit_hours // 24} days" if limit_hours >= 48 else f"{limit_hours} hours"
        stop = when(first + limit_hours * HOUR_MS)
        refuse(
            names[1],
            f"A range holds at most {much}. Page through it: ask for {names[0]}={when(first)}&{names[1]}={stop},"
            f" then go on with {names[0]}={stop}.",
        )
    return Span(first // SLOT_MS, last // SLOT_MS)


def slots(params: Mapping[str, str], names: tuple[str, str] = ("since", "until")) -> tuple[int | None, int | None]:
    """The slots `[first, end)` that a range meets, either end None when absent. Raises Unprocessable → 422."""
    begin, end = instant(params, names[0]), instant(params, names[1])
    if begin is not None and end is not None:
        _in_order(begin, end, names)
    return _slot(names[0], begin), _slot(names[1], None if end is None else end + SLOT_MS - 1)


def _in_order(begin: int, end: int, names: tuple[str, str]) -> None:
    if begin >= end:
        refuse(names[0], f"`{names[0]}` must lie before `{names[1]}`: the range is half-open.")


def _slot(name: str, ms: int | None) -> int | None:
    if ms is None:
        return None
    if ms // SLOT_MS >= MOST_SLOT:
        refuse(name, "An instant within this millennium.")
    return ms // SLOT_MS


def text(params: Mapping[str, str], name: str) -> str:
    """A name to filter by; empty when absent."""
    value = params.get(name, "")
    if "\x00" in value or len(value) > MAX_TEXT:
        refuse(name, f"At most {MAX_TEXT} characters, without NUL.")
    return value


def choice(params: Mapping[str, str], name: str, values: Iterable[str], default: str = "") -> str:
    """One of `values`; `default` when absent."""
    value = params.get(name, default)
    known = list(values)
    if value != default and value not in known:
        refuse(name, f"One of {', '.join(known)}.")
    return value


def flag(params: Mapping[str, str], name: str) -> bool | None:
    """true or false; None when absent."""
    value = choice(params, name, ("true", "false"))
    return None if not value else value == "true"


def number(params: Mapping[str, str], name: str, least: int = 0, most: int = MAX_ID) -> int | None:
    """A whole number within bounds; None when absent."""
    value = params.get(name)
    if value is None:
        return None
    if not re.fullmatch(r"[0-9]{1,19}", value) or not least <= int(value) <= most:
        refuse(name, f"A whole number, {least} to {most}.")
    return int(value)


def page_size(params: Mapping[str, str]) -> int:
    """How many results a page holds."""
    return number(params, "page_size", 1, MAX_PAGE) or PAGE


def cursor(params: Mapping[str, str], parts: int) -> tuple[int, ...] | None:
    """The place at which the page before ended, `parts` integers; None for the first page."""
    value = params.get("cursor")
    if not value:
        return None
    try:
        raw = base64.urlsafe_b64decode(value.encode() + b"=" * (-len(value) % 4)).decode()
    except (ValueError, binascii.Error):
        refuse("cursor", "Take the cursor out of `next`, as it is.")
    if not re.fullmatch(r"-?[0-9]{1,18}(\.-?[0-9]{1,18})*", raw) or raw.count(".") != parts - 1:
        refuse("cursor", "Take the cursor out of `next`, as it is.")
    return tuple(int(part) for part in raw.split("."))


def cursor_for(*place: int) -> str:
    """The cursor of a place."""
    return base64.urlsafe_b64encode(".".join(map(str, place)).encode()).decode().rstrip("=")
