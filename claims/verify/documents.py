"""The JSON documents and verdict runs of a pack, read once: many checks look at the same ones.

What is kept is kept by the very bytes it came from, so that no pack can leave wrong words behind for another. Readers
don't change what they are given.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from claims.domain.month_runs import VerdictRun, decode

Files = Mapping[str, bytes]


def read(files: Files, name: str) -> Any:
    """A JSON document of the pack. Raises KeyError and ValueError."""
    return _loaded(files[name])


def enclosed(files: Files) -> list[str]:
    """The hashes of the batches that the windows name, sorted."""
    return sorted({sha for window in read(files, "windows.json") for sha in window["batches"]})


@lru_cache(maxsize=8)
def _loaded(raw: bytes) -> Any:
    return json.loads(raw)


@lru_cache(maxsize=4)
def runs(raw: bytes) -> Mapping[str, list[VerdictRun]]:
    """The runs of a node's month, by subject."""
    return decode(raw)
