"""What a scenario may hold: every key, its type and its bounds. What is refused is named by the way to it.

An unknown word of an enum (a state, a kind, a source's status) is allowed: agents send such too, and the fold has an
answer. A key that would change nothing is not: a misspelt fault is no healthy node.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from fleet.domain.scenario import made
from fleet.domain.slots import SLOT_MS
from fleet.domain.verdicts import State

Json = dict[str, Any]

MOST_DEVICES = 64  # GPUs and ports of a node (docs of the wire)
MOST_SLOTS = 178_560  # of a sample entry: 31 days
FAR_SLOTS = 2_102_400  # from the scenario's first slot to any other: a year

_WORDS = ("title", "note", "notes", "why", "derivation", "comment", "source", "rulings", "pitfall", "tags")
_TOP = ("id", "inputs", "context", "expected", "incidents", "until", "absent_subjects", "slot_zero", *_WORDS)
_INPUTS = ("gpus", "ports", "boottime", "deliveries", "names", "near")
_DELIVERY = (
    *("agent_id", "boot_id", "boot_at", "last_shutdown", "last_alive", "seq", "samples", "received_at"),
    *("hw_id", "driver_version", *_WORDS),
)
_SAMPLE = (
    *("slots", "ms", "every", "gone", "gpu", "port", "sources", "pci", "events", "clock", "nvml_error", "net"),
    *("ts_off", "stood_still", "sync_slot", "sync_stood_still", "xids", *_WORDS),
)
_CONTEXT = (
    *("gpus", "ports", "records", "probe_failed", "peers_alive", "assigned", "entitled"),
    *("owns_driver", "owns_fabric", *_WORDS),
)
_RECORD = ("kind", "from", "to", "names", *_WORDS)
#: The maps that a GPU's map holds.
_INNER: tuple[tuple[str, type], ...] = (("row_remap", made.RowRemap), ("fabric", made.Fabric))
_SUBJECT = re.compile(r"n|g\d+|p.+")
#: Per type, as the fields of `made` are annotated: what it is and which values are of it.
_TYPES: dict[str, tuple[str, type | tuple[type, ...]]] = {
    "int": ("a number", int),
    "float": ("a number", (int, float)),
    "str": ("a text", str),
    "bool": ("true or false", bool),
    "dict[str, int]": ("a map of numbers", dict),
    "dict[str, str]": ("a map of texts", dict),
    "tuple[str, ...]": ("an array of texts", list),
}


class ScenarioError(ValueError):
    """A scenario that the language does not allow; the message names the way to what is wrong."""


def check(scenario: Json) -> None:
    """Refuse what the language does not know. Raises ScenarioError."""
    name = f"scenario {scenario.get('id', '?')}"
    as_map(scenario, name, _TOP)
    typed(scenario, "slot_zero", "int", name)
    inputs = as_map(scenario.get("inputs"), f"{name}.inputs", _INPUTS)
    for key in ("gpus", "ports"):
        typed(inputs, key, "int", f"{name}.inputs")
        if not 0 <= (inputs.get(key) or 0) <= MOST_DEVICES:
            raise ScenarioError(f"{name}.inputs.{key}: must be from 0 to {MOST_DEVICES}")
    typed(inputs, "boottime", "bool", f"{name}.inputs")
    typed(inputs, "names", "str", f"{name}.inputs")
    for port, near in _map(inputs, "near", f"{name}.inputs").items():
        _indexes(near, f"{name}.inputs.near.{port}")
    for i, delivery in enumerate(as_list(inputs.get("deliveries"), f"{name}.inputs.deliveries")):
        _check_delivery(delivery, f"{name}.inputs.deliveries[{i}]", inputs)
    _check_context(_map(scenario, "context", name, _CONTEXT), f"{name}.context")
    as_time(scenario.get("until"), f"{name}.until")
    for subject, rows in _map(scenario, "expected", name).items():
        if not _SUBJECT.fullmatch(subject):
            raise ScenarioError(f"{name}.expected: {subject!r} is no subject; those are n, g0.., pG0..")
        for i, row in enumerate(as_list(rows, f"{name}.expected.{subject}")):
            _check_row(row, f"{name}.expected.{subject}[{i}]")
    for i, pair in enumerate(_list(scenario, "incidents", name)):
        if not isinstance(pair, list) or len(pair) != 2 or not all(isinstance(one, str) for one in pair):
            raise ScenarioError(f"{name}.incidents[{i}]: must be [subject, code]")
    typed(scenario, "absent_subjects", "tuple[str, ...]", name)


def _check_delivery(delivery: Any, path: str, inputs: Json) -> None:
    as_map(delivery, path, _DELIVERY)
    for key in ("boot_at", "last_alive", "received_at"):
        as_time(delivery.get(key), f"{path}.{key}")
    for key in ("agent_id", "boot_id", "last_shutdown", "hw_id", "driver_version"):
        typed(delivery, key, "str", path)
    typed(delivery, "seq", "int", path)
    for j, entry in enumerate(as_list(delivery.get("samples"), f"{path}.samples")):
        _check_sample(entry, f"{path}.samples[{j}]", inputs)


def _check_sample(entry: Any, path: str, inputs: Json) -> None:
    as_map(entry, path, _SAMPLE)
    slots = entry.get("slots")
    if not isinstance(slots, list) or len(slots) != 2 or not all(type(s) is int for s in slots):
        raise ScenarioError(f"{path}.slots: must be [first, last]")
    if any(abs(slot) > FAR_SLOTS for slot in slots):
        raise ScenarioError(f"{path}.slots: more than {FAR_SLOTS} slots away")
    if not 0 <= slots[1] - slots[0] < MOST_SLOTS:
        raise ScenarioError(f"{path}.slots: the last comes before the first, or more than {MOST_SLOTS} after it")
    every = entry.get("every")
    if every is not None:
        if not isinstance(every, list) or len(every) != 2 or type(every[0]) is not int or every[0] < 1:
            raise ScenarioError(f"{path}.every: must be [n, [k, ...]]")
        _indexes(every[1], f"{path}.every")
    typed(entry, "ms", "int", path)
    if not 0 <= (entry.get("ms") or 0) < SLOT_MS:
        raise ScenarioError(f"{path}.ms: must be from 0 to {SLOT_MS - 1}")
    for key in ("nvml_error", "ts_off", "stood_still", "sync_stood_still"):
        typed(entry, key, "int", path)
    if type(entry.get("sync_slot")) is not int:
        as_time(entry.get("sync_slot"), f"{path}.sync_slot")
    for key in ("sources", "net"):
        typed(entry, key, "dict[str, str]", path)
    _indexes([] if entry.get("gone") is None else entry["gone"], f"{path}.gone")
    for key, kind, most in (("gpu", made.Gpu, MOST_DEVICES), ("port", made.Port, inputs.get("ports") or 0)):
        for index, keys in _map(entry, key, path).items():
            if not str(index).isdigit():
                raise ScenarioError(f"{path}.{key}: {index!r} is no index")
            if int(index) >= most:
                raise ScenarioError(f"{path}.{key}: the node has no {key} {index}")
            _fields(keys, kind, f"{path}.{key}.{index}")
            for name, inner in _INNER:
                if keys.get(name) is not None:
                    _fields(keys[name], inner, f"{path}.{key}.{index}.{name}")
            for name in ("uuid", "device"):
                if name in keys and keys[name] is None:
                    raise ScenarioError(f"{path}.{key}.{index}.{name}: must be a text")
    for i, event in enumerate(_list(entry, "events", path)):
        as_time(as_map(event, f"{path}.events[{i}]").get("at"), f"{path}.events[{i}].at")
        _fields({k: v for k, v in event.items() if k != "at"}, made.Event, f"{path}.events[{i}]", _WORDS)
    for i, event in enumerate(_list(entry, "xids", path)):
        _fields(event, made.Xid, f"{path}.xids[{i}]", must=("code",))
    clock = _map(entry, "clock", path, ("status", "error_ms"))
    typed(clock, "status", "str", f"{path}.clock")
    typed(clock, "error_ms", "int", f"{path}.clock")
    for index, said in _map(entry, "pci", path).items():
        if index != "*" and not str(index).isdigit():
            raise ScenarioError(f"{path}.pci: {index!r} is neither an index nor *")
        typed({index: said}, index, "str", f"{path}.pci")


def _check_context(context: Json, path: str) -> None:
    typed(context, "gpus", "int", path)
    for key in ("owns_driver", "owns_fabric"):
        typed(context, key, "bool", path)
    for guid, place in _map(context, "ports", path).items():
        if place is not None:
            _place(place, f"{path}.ports.{guid}")
    for key in ("probe_failed", "peers_alive"):
        for i, span in enumerate(_list(context, key, path)):
            if not isinstance(span, list) or len(span) != 2:
                raise ScenarioError(f"{path}.{key}[{i}]: must be [from, to]")
            for at in span:
                as_time(at, f"{path}.{key}[{i}]", must=True)
    for i, one in enumerate(_list(context, "assigned", path)):
        as_map(one, f"{path}.assigned[{i}]", ("place", "at"))
        _place(one.get("place"), f"{path}.assigned[{i}].place")
        as_time(one.get("at"), f"{path}.assigned[{i}].at", must=True)
    for i, one in enumerate(_list(context, "records", path)):
        as_map(one, f"{path}.records[{i}]", _RECORD)
        for key in ("from", "to"):
            as_time(one.get(key), f"{path}.records[{i}].{key}")
        typed(one, "kind", "str", f"{path}.records[{i}]")
        typed(one, "names", "str" if isinstance(one.get("names"), str) else "tuple[str, ...]", f"{path}.records[{i}]")
    for key, at in _map(context, "entitled", path, ("from", "to")).items():
        as_time(at, f"{path}.entitled.{key}")


def _check_row(row: Any, path: str) -> None:
    if not isinstance(row, list) or len(row) != 8:
        raise ScenarioError(f"{path}: must be [from, to, state, nominal, lower, upper, certain, possible]")
    first, last, state, nominal, *bounds, certain, possible = row
    if not all(type(n) is int for n in (first, last, *bounds)) or not (nominal is None or type(nominal) is int):
        raise ScenarioError(f"{path}: slots and weights are numbers, an unknown nominal weight is null")
    if first > last:
        raise ScenarioError(f"{path}: slot {first} comes after {last}")
    if state not in list(State):
        raise ScenarioError(f"{path}: {state!r} is no state; those are {', '.join(State)}")
    for codes in (certain, possible):
        typed({"": codes}, "", "tuple[str, ...]", path)


def _fields(keys: Any, kind: type, path: str, words: tuple[str, ...] = (), must: tuple[str, ...] = ()) -> None:
    """Check a map of the keys of one of the facts in `made`."""
    known: Mapping[str, str] = {field.name: str(field.type) for field in fields(kind)}
    as_map(keys, path, (*known, *words))
    for key in must:
        if key not in keys:
            raise ScenarioError(f"{path}: {key!r} is missing")
    for key, value in keys.items():
        typed(keys, key, known.get(key, "Any"), path)
        if type(value) is int and value < 0:
            raise ScenarioError(f"{path}.{key}: must not be negative")


def typed(values: Mapping[str, Any], key: str, annotation: str, path: str) -> None:
    """Refuse a value that is not of this type; null and a missing one are. Raises ScenarioError."""
    value = values.get(key)
    name = annotation.removesuffix(" | None")
    if value is None or name not in _TYPES:
        return
    words, kind = _TYPES[name]
    fits = isinstance(value, kind) and (kind is bool or not isinstance(value, bool))
    if fits and isinstance(value, dict):
        fits = all(type(one) is (int if name.endswith("int]") else str) for one in value.values())
    elif fits and isinstance(value, list):
        fits = all(isinstance(one, str) for one in value)
    if not fits:
        raise ScenarioError(f"{path}{'.' if key else ''}{key}: must be {words}")


def as_map(value: Any, path: str, known: tuple[str, ...] = ()) -> Json:
    """The value, a map of these keys. Raises ScenarioError."""
    if not isinstance(value, dict):
        raise ScenarioError(f"{path}: must be a map")
    for key in value:
        if known and key not in known:
            raise ScenarioError(f"{path}: unknown key {key!r}; known are {', '.join(known)}")
    return value


def _map(values: Json, key: str, path: str, known: tuple[str, ...] = ()) -> Json:
    """The map at this key; null and a missing one are empty. Raises ScenarioError."""
    return {} if values.get(key) is None else as_map(values[key], f"{path}.{key}", known)


def _list(values: Json, key: str, path: str) -> list[Any]:
    """The array at this key; null and a missing one are empty. Raises ScenarioError."""
    return [] if values.get(key) is None else as_list(values[key], f"{path}.{key}")


def as_list(value: Any, path: str) -> list[Any]:
    """The value, an array. Raises ScenarioError."""
    if not isinstance(value, list):
        raise ScenarioError(f"{path}: must be an array")
    return value


def as_time(value: Any, path: str, must: bool = False) -> None:
    """Refuse what is no `[slot, ms]`; null is where it need not be there. Raises ScenarioError."""
    if value is None and not must:
        return
    if not isinstance(value, list) or len(value) != 2 or not all(type(v) is int for v in value):
        raise ScenarioError(f"{path}: a time is [slot, ms]")
    if abs(value[0]) > FAR_SLOTS:
        raise ScenarioError(f"{path}: more than {FAR_SLOTS} slots away")


def _indexes(value: Any, path: str) -> None:
    if not isinstance(value, list) or not all(type(one) is int for one in value):
        raise ScenarioError(f"{path}: must be an array of numbers")


def _place(value: Any, path: str) -> None:
    if type(value) is not int and not (isinstance(value, str) and re.fullmatch(r"g?\d+", value)):
        raise ScenarioError(f"{path}: a place is a number or g0..")
