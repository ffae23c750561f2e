"""MessagePack with the standard library alone: a batch as objects with the attributes that the fold reads.

Used where `msgspec` is absent. The bytes were checked when they were received; here they only have to be read the same
way: an absent optional is None, an absent array is ().
"""

from __future__ import annotations

import struct
from types import SimpleNamespace
from typing import Any

from agent import wire
from claims.errors import PackError

MAX_DEPTH = 16
_FIXED = {
    0xCA: ">f", 0xCB: ">d", 0xCC: ">B", 0xCD: ">H", 0xCE: ">I", 0xCF: ">Q", 0xD0: ">b", 0xD1: ">h", 0xD2: ">i",
    0xD3: ">q",
}  # fmt: skip
_SIZES = {
    0xC4: (">B", "bin"), 0xC5: (">H", "bin"), 0xC6: (">I", "bin"), 0xD9: (">B", "str"), 0xDA: (">H", "str"),
    0xDB: (">I", "str"), 0xDC: (">H", "array"), 0xDD: (">I", "array"), 0xDE: (">H", "map"), 0xDF: (">I", "map"),
    0xC7: (">B", "ext"), 0xC8: (">H", "ext"), 0xC9: (">I", "ext"),
}  # fmt: skip
_FIXEXT = {0xD4: 1, 0xD5: 2, 0xD6: 4, 0xD7: 8, 0xD8: 16}


class _Reader:
    def __init__(self, raw: bytes) -> None:
        self.raw, self.at = raw, 0

    def take(self, size: int) -> bytes:
        if self.at + size > len(self.raw):
            raise PackError("A batch ends too early.")
        part = self.raw[self.at : self.at + size]
        self.at += size
        return part

    def number(self, form: str) -> Any:
        return struct.unpack(form, self.take(struct.calcsize(form)))[0]

    def value(self, depth: int = 0) -> Any:
        if depth > MAX_DEPTH:
            raise PackError("A batch nests too deeply.")
        mark = self.take(1)[0]
        if mark < 0x80:
            return mark
        if mark >= 0xE0:
            return mark - 256
        if mark < 0x90:
            return self.sized("map", mark & 15, depth)
        if mark < 0xA0:
            return self.sized("array", mark & 15, depth)
        if mark < 0xC0:
            return self.sized("str", mark & 31, depth)
        if mark in (0xC0, 0xC2, 0xC3):
            return {0xC0: None, 0xC2: False, 0xC3: True}[mark]
        if mark in _FIXED:
            return self.number(_FIXED[mark])
        if mark in _SIZES:
            form, kind = _SIZES[mark]
            return self.sized(kind, self.number(form), depth)
        if mark in _FIXEXT:
            return self.sized("ext", _FIXEXT[mark], depth)
        raise PackError("A batch is no MessagePack.")

    def sized(self, kind: str, size: int, depth: int) -> Any:
        if kind == "str":
            return self.take(size).decode()
        if kind == "bin":
            return self.take(size)
        if kind == "array":
            return [self.value(depth + 1) for _ in range(size)]
        if kind == "map":
            return {self.value(depth + 1): self.value(depth + 1) for _ in range(size)}
        code = self.number(">b")
        return _milliseconds(code, self.take(size))


def _milliseconds(code: int, data: bytes) -> int:
    if code != -1 or len(data) not in (4, 8, 12):
        raise PackError("A batch has an extension that is no timestamp.")
    if len(data) == 8:
        nanoseconds, seconds = divmod(int.from_bytes(data, "big"), 1 << 34)
    else:
        nanoseconds = int.from_bytes(data[:-8], "big")
        seconds = int.from_bytes(data[-8:], "big", signed=len(data) == 12)
    return seconds * 1000 + nanoseconds // 1_000_000


def decode(raw: bytes) -> Any:
    """The batch in these bytes. Raises PackError."""
    reader = _Reader(raw)
    try:
        document = reader.value()
    except (UnicodeDecodeError, struct.error, TypeError) as error:
        raise PackError(f"A batch can't be read: {error}") from error
    if reader.at != len(raw) or not isinstance(document, dict):
        raise PackError("A batch is not one MessagePack map.")
    return _object("BATCH", document)


def _object(table: str, document: Any) -> Any:
    if not isinstance(document, dict):
        raise PackError(f"A batch has no map where {table} should be.")
    out = {}
    for field in wire.TABLES[table]:
        value: Any = document.get(field.key)
        if field.key not in document:
            if field.required:
                raise PackError(f"A batch lacks {field.key}.")
            value = () if field.type in ("array", "strs") else None
        elif field.type == "map":
            value = _object(field.of, value)
        elif field.type == "array":
            value = tuple(_object(field.of, one) for one in value)
        elif field.type == "strs":
            value = tuple(value)
        out[field.key] = value
    return SimpleNamespace(**out)
