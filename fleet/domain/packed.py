"""Identities in few bytes: hexadecimal ones leave the JSON for a tail of raw bytes behind it.

In the JSON such a text is an integer: 0 a UUID, 1 a UUID behind `GPU-` (16 raw bytes each), n >= 2 lower-case hex of
n raw bytes. Any other text stays a text. What many subjects have in common is written once, as a column.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

_UUID = re.compile(r"(GPU-)?([0-9a-f]{8})-([0-9a-f]{4})-([0-9a-f]{4})-([0-9a-f]{4})-([0-9a-f]{12})")
_HEX = re.compile(r"(?:[0-9a-f]{2}){4,64}")


@lru_cache(maxsize=65536)
def pack(text: str) -> tuple[int | str, bytes]:
    """(what stands in the JSON, raw bytes of the tail)."""
    match = _UUID.fullmatch(text)
    if match is not None:
        return (1 if match[1] else 0), bytes.fromhex("".join(match.groups()[1:]))
    if _HEX.fullmatch(text):
        return len(text) // 2, bytes.fromhex(text)
    return text, b""


def column(values: Sequence[Any]) -> list[Any]:
    """The values of one field over all subjects; one of them where all are equal.

    >>> column([7, 7, 7])
    [7]
    """
    if len(values) > 1 and all(value == values[0] for value in values):
        return [values[0]]
    return list(values)


def spread(values: list[Any], count: int) -> list[Any]:
    """The `count` values of a column."""
    return values * count if len(values) == 1 else values


class Reader:
    """Gives the texts back in the order in which they were packed."""

    def __init__(self, tail: bytes) -> None:
        self._tail, self._at = tail, 0

    def text(self, code: int | str) -> str:
        """The text of a JSON value."""
        if isinstance(code, str):
            return code
        size = 16 if code < 2 else code
        raw = self._tail[self._at : self._at + size].hex()
        self._at += size
        if code >= 2:
            return raw
        plain = f"{raw[:8]}-{raw[8:12]}-{raw[12:16]}-{raw[16:20]}-{raw[20:]}"
        return f"GPU-{plain}" if code else plain


class Writer:
    """Collects the tail; the same text twice in a row of calls is written twice."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []

    def code(self, text: str) -> int | str:
        """What stands in the JSON for this text."""
        code, raw = pack(text)
        if raw:
            self._parts.append(raw)
        return code

    def tail(self) -> bytes:
        """The raw bytes."""
        return b"".join(self._parts)
