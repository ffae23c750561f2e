"""What the contract's types and limits allow of a map: one absurd reading must not make a server refuse a whole batch.

A driver answers 2^64-1 for "not available", a file holds a control character: such a value is left out, as one that is
not supported is. Keys are not judged here; `wire.ordered` refuses those that are not listed.
"""

from __future__ import annotations

import math
from typing import Any, Mapping, Optional

from agent import wire

_NUMBER_MOST = 1e9


def bounded(value: Mapping[str, Any], table: str, dropped: Optional[list[str]] = None) -> dict[str, Any]:
    """The map without values that the contract does not allow; `dropped` takes the names of those keys."""
    fields = {field.key: field for field in wire.TABLES[table]}
    lost = [] if dropped is None else dropped
    out: dict[str, Any] = {}
    for key, item in value.items():
        field = fields.get(key)
        kept = item if field is None else _fit(item, field, lost)
        if kept is None and item is not None:
            lost.append(f"{table}.{key}")
        elif kept is not None:
            out[key] = kept
    return out


def _fit(item: Any, field: wire.Field, lost: list[str]) -> Any:
    """The value as far as the field allows it, None if it does not at all."""
    kind = field.type
    if kind in ("uint", "time"):
        return item if _is_whole(item, wire.MAX_INT) else None
    if kind == "mask":
        return item if _is_whole(item, wire.MAX_MASK) else None
    if kind == "number":
        fine = isinstance(item, (int, float)) and not isinstance(item, bool) and math.isfinite(item)
        return item + 0 if fine and 0 <= item <= _NUMBER_MOST else None
    if kind == "bool":
        return item if isinstance(item, bool) else None
    if kind == "str":
        return item if _is_text(item) else None
    if kind == "map":
        return _map(item, field.of, lost) if isinstance(item, Mapping) else None
    if kind in ("counts", "words"):
        return _words(item, field, lost) if isinstance(item, Mapping) else None
    if not isinstance(item, (list, tuple)):
        return None
    if kind == "strs":
        kept = [text for text in item if _is_text(text)]
    else:
        kept = [found for found in (_map(element, field.of, lost) for element in item) if found is not None]
    if len(kept) != len(item) or len(kept) > field.most:
        lost.append(field.key)
    return kept[: field.most]


def _map(item: Any, table: str, lost: list[str]) -> Optional[dict[str, Any]]:
    """An inner map; None where a required key of it is not there."""
    if not isinstance(item, Mapping):
        return None
    kept = bounded(item, table, lost)
    return kept if all(field.key in kept for field in wire.TABLES[table] if field.required) else None


def _words(item: Mapping[Any, Any], field: wire.Field, lost: list[str]) -> dict[str, Any]:
    def fine(value: Any) -> bool:
        return _is_whole(value, wire.MAX_INT) if field.type == "counts" else _is_text(value)

    kept = {name: value for name, value in item.items() if _is_text(name) and fine(value)}
    if len(kept) != len(item) or len(kept) > field.most:
        lost.append(field.key)
    return dict(list(kept.items())[: field.most])


def _is_whole(value: Any, most: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= most


def _is_text(value: Any) -> bool:
    """Printable, and at most 256 bytes of UTF-8 (which half a surrogate pair is not)."""
    return (
        isinstance(value, str)
        and value.isprintable()
        and len(value.encode("utf-8", "replace")) <= (wire.MAX_STRING_BYTES)
    )
