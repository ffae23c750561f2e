"""What a worked example must hold before it can be computed; the message names the way to what is wrong.

Keys that the arithmetic does not read are allowed: the examples explain themselves in such. A state or a party that it
does not know is refused, as it would count or not by chance.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from claims.errors import InputsError

STATES = ("down", "degraded", "edge", "pending", "contested", "held", "unknown", "observed", "healthy", "up")
PARTIES = ("infrastructure", "ambiguous", "customer", "none")
_WEIGHT = re.compile(r"weight (\d{1,3})")


def check(example: Any, path: str = "example") -> None:
    """Refuse an example that can't be read. Raises InputsError."""
    as_map(example, path)
    name = f"{path} {example.get('id', '?')}"
    _text(example, "id", name)
    period = as_map(example.get("period"), f"{name}.period")
    for key in ("zone", "start_utc", "end_utc"):
        _text(period, key, f"{name}.period")
    _contract(as_map(example.get("contract", {}), f"{name}.contract"), f"{name}.contract")
    _contract(example, name)
    for i, entry in enumerate(_list(example.get("timeline", []), f"{name}.timeline")):
        _line(entry, f"{name}.timeline[{i}]")
    for i, row in enumerate(_list(example.get("overlays", []), f"{name}.overlays")):
        _overlay(row, f"{name}.overlays[{i}]")
    for i, variant in enumerate(_list(example.get("variants", []), f"{name}.variants")):
        _text(as_map(variant, f"{name}.variants[{i}]"), "name", f"{name}.variants[{i}]")


def variants_of(example: Any) -> list[Mapping[str, Any]]:
    """The variants of an example; one without overrides where it has none or can't be read."""
    found = example.get("variants") if isinstance(example, dict) else None
    whole = isinstance(found, list) and found and all(isinstance(one, dict) for one in found)
    return found if whole and found else [{"name": ""}]


def _contract(fields: Mapping[str, Any], path: str) -> None:
    """What stands in the contract or in the example itself."""
    for key in ("entitlement", "witnesses"):
        for i, one in enumerate(_list(fields.get(key, []), f"{path}.{key}")):
            _text(as_map(one, f"{path}.{key}[{i}]"), "resource", f"{path}.{key}[{i}]")
            _span(one, f"{path}.{key}[{i}]")
    for i, unit in enumerate(_list(fields.get("units", []), f"{path}.units")):
        _text(as_map(unit, f"{path}.units[{i}]"), "name", f"{path}.units[{i}]")
        _list(unit.get("members", []), f"{path}.units[{i}].members")
        _amount(unit, "fee", f"{path}.units[{i}]")
    for name in as_map(fields.get("fees", {}), f"{path}.fees"):
        _amount(fields["fees"], name, f"{path}.fees")
    for i, one in enumerate(_list(fields.get("automatic_credits") or [], f"{path}.automatic_credits")):
        _text(as_map(one, f"{path}.automatic_credits[{i}]"), "unit", f"{path}.automatic_credits[{i}]")
        _amount(one, "amount", f"{path}.automatic_credits[{i}]", must=True)
    for key in ("cap_previous_month_spend", "previous_month_spend"):
        _amount(fields, key, path)
    if "gpus_per_node" in fields:
        _number(fields, "gpus_per_node", path)
    events = as_map(fields.get("events", {}), f"{path}.events")
    for key in ("fault", "replaced") if events else ():
        _text(events, key, f"{path}.events")


def _line(entry: Any, path: str) -> None:
    if "state" not in as_map(entry, path):
        raise InputsError("A line of a timeline has a state; samples go through the fold first.", f"{path}.state")
    _text(entry, "resource", path)
    _span(entry, path)
    state = str(entry["state"])
    weight = _WEIGHT.fullmatch(state)
    if state not in STATES and (weight is None or int(weight[1]) > 100):
        raise _wrong(f"{path}.state", f"{state!r} is none of {', '.join(STATES)} or 'weight 0' to 'weight 100'")
    for i, reason in enumerate(_list(entry.get("reasons", []), f"{path}.reasons")):
        where = f"{path}.reasons[{i}]"
        for key in ("code", "category", "party"):
            _text(as_map(reason, where), key, where)
        if not 0 <= _number(reason, "weight", where) <= 100:
            raise _wrong(f"{where}.weight", "must be from 0 to 100")
        if reason["party"] not in PARTIES:
            raise _wrong(f"{where}.party", f"{reason['party']!r} is none of {', '.join(PARTIES)}")


def _overlay(row: Any, path: str) -> None:
    for key in ("kind", "resource"):
        _text(as_map(row, path), key, path)
    for key in ("opened_slot", "from_slot", "closed_slot", "to_slot", "acknowledged_slot", "notice_hours_before_start"):
        if row.get(key) is not None:
            _number(row, key, path)
    for i, pause in enumerate(_list(row.get("pauses", []), f"{path}.pauses")):
        if not isinstance(pause, Sequence) or isinstance(pause, str) or len(pause) != 2:
            raise _wrong(f"{path}.pauses[{i}]", "must be [from, to]")
        for end in pause:
            _number({"": end}, "", f"{path}.pauses[{i}]")


def _span(entry: Mapping[str, Any], path: str) -> None:
    if _number(entry, "from_slot", path) > _number(entry, "to_slot", path):
        raise _wrong(path, f"from_slot {entry['from_slot']} comes after to_slot {entry['to_slot']}")


def _number(entry: Mapping[str, Any], key: str, path: str) -> int:
    value = entry.get(key)
    if isinstance(value, bool) or not re.fullmatch(r"-?\d{1,12}", str(value)):
        raise _wrong(f"{path}.{key}", f"{value!r} is no whole number" if key in entry else "is missing")
    return int(str(value))


def _amount(entry: Mapping[str, Any], key: str, path: str, must: bool = False) -> None:
    value = entry.get(key)
    if value is None and not must:
        return
    if isinstance(value, bool) or not re.fullmatch(r"\d{1,15}(\.\d{1,9})?", str(value)):
        raise _wrong(f"{path}.{key}", f"{value!r} is no amount")


def _text(entry: Mapping[str, Any], key: str, path: str) -> None:
    if not isinstance(entry.get(key), str):
        raise _wrong(f"{path}.{key}", "must be a text" if key in entry else "is missing")


def as_map(value: Any, path: str) -> Mapping[str, Any]:
    """The value, a map. Raises InputsError."""
    if not isinstance(value, Mapping):
        raise _wrong(path, "must be a map")
    return value


def _list(value: Any, path: str) -> list[Any]:
    if not isinstance(value, list):
        raise _wrong(path, "must be an array")
    return value


def _wrong(path: str, why: str) -> InputsError:
    return InputsError(f"{path}: {why}.", path)
