"""A second look at MessagePack bytes for what typed decoders pass over silently: duplicate keys, deep nesting, floods.

It reads the structure only and builds no values, so its memory stays flat whatever the bytes claim.
"""

from __future__ import annotations

from fleet.errors import BatchRejected

MAX_ITEMS = 200_000  # more than twice what four full intervals can hold (64 GPUs, 64 ports, 512 events each)

# First byte -> (kind, bytes of the length or of the value that follow). fix* forms are handled by ranges below.
_SIZED = {
    0xC4: ("bin", 1),
    0xC5: ("bin", 2),
    0xC6: ("bin", 4),
    0xC7: ("ext", 1),
    0xC8: ("ext", 2),
    0xC9: ("ext", 4),
    0xD9: ("str", 1),
    0xDA: ("str", 2),
    0xDB: ("str", 4),
    0xDC: ("array", 2),
    0xDD: ("array", 4),
    0xDE: ("map", 2),
    0xDF: ("map", 4),
}
_FIXED = {
    0xC0: 0,
    0xC2: 0,
    0xC3: 0,
    0xCA: 4,
    0xCB: 8,
    0xCC: 1,
    0xCD: 2,
    0xCE: 4,
    0xCF: 8,
    0xD0: 1,
    0xD1: 2,
    0xD2: 4,
    0xD3: 8,
    0xD4: 2,
    0xD5: 3,
    0xD6: 5,
    0xD7: 9,
    0xD8: 17,
}


def _head(raw: bytes, at: int) -> tuple[str, int, int]:
    """(kind, n, next offset) of the element at `at`; n counts elements, or the bytes of a leaf after its head."""
    first = raw[at]
    if first <= 0x7F or first >= 0xE0:
        return "leaf", 0, at + 1
    if first <= 0x8F:
        return "map", first & 0x0F, at + 1
    if first <= 0x9F:
        return "array", first & 0x0F, at + 1
    if first <= 0xBF:
        return "str", first & 0x1F, at + 1
    if first in _FIXED:
        if 0xD4 <= first <= 0xD8:
            _check_extension(raw[at + 1 : at + 2])
        return "leaf", _FIXED[first], at + 1
    if first in _SIZED:
        kind, width = _SIZED[first]
        size = int.from_bytes(raw[at + 1 : at + 1 + width], "big")
        if kind == "ext":
            _check_extension(raw[at + 1 + width : at + 2 + width])
        return kind, size + (kind == "ext"), at + 1 + width
    raise BatchRejected(400, "bad_msgpack", f"Byte {first:#04x} at offset {at} is not MessagePack.")


def _check_extension(code: bytes) -> None:
    """Only the timestamp, type -1, may travel: another reader of the same bytes would make objects of the rest."""
    if code != b"\xff":
        raise BatchRejected(400, "bad_extension", "The only MessagePack extension allowed is the timestamp.")


def scan(raw: bytes, max_depth: int, max_items: int = MAX_ITEMS) -> int:
    """The number of map keys in `raw`, after checking that no map names a key twice and nothing nests too deeply.

    Raises BatchRejected 400: `duplicate_key`, `too_many_items`, `bad_extension` (any but the timestamp),
    `bad_msgpack` (truncated, a key that is not a string, bytes after the end); 422: `too_deep` (more than `max_depth`
    containers within each other).
    """
    at, items, keys = 0, 0, 0
    # One entry per open container: [elements still to come, the set of its keys or None for an array, is a key next].
    stack: list[list[object]] = []
    end = len(raw)
    while True:
        if at >= end:
            raise BatchRejected(400, "bad_msgpack", "The MessagePack data ends too early.")
        kind, n, at_value = _head(raw, at)
        items += 1
        if items > max_items:
            raise BatchRejected(400, "too_many_items", f"The batch holds more than {max_items} elements.")
        top = stack[-1] if stack else None
        if top is not None and top[2]:
            if kind != "str":
                raise BatchRejected(400, "bad_msgpack", "A map has a key that is not a string.")
            name = raw[at_value : at_value + n]
            seen: set[bytes] = top[1]  # type: ignore[assignment]
            if name in seen:
                raise BatchRejected(400, "duplicate_key", "A map names the same key twice.")
            seen.add(name)
            keys += 1
            top[2] = False
            at = at_value + n
            continue
        if kind in ("map", "array"):
            if n > max_items:
                raise BatchRejected(400, "too_many_items", f"The batch holds more than {max_items} elements.")
            at = at_value
            if len(stack) >= max_depth:
                raise BatchRejected(422, "too_deep", f"The batch nests more than {max_depth} levels deep.")
            stack.append([n, set() if kind == "map" else None, kind == "map"])
        else:
            at = at_value + n
            if stack:
                _one_done(stack[-1])
        while stack and stack[-1][0] == 0:
            stack.pop()
            if stack:
                _one_done(stack[-1])
        if not stack:
            break
    if at != end:
        raise BatchRejected(400, "bad_msgpack", "There are bytes after the end of the MessagePack map, or too few.")
    return keys


def _one_done(container: list[object]) -> None:
    """One element (of a map: one value) of `container` is complete."""
    container[0] = container[0] - 1  # type: ignore[operator]
    container[2] = container[1] is not None
