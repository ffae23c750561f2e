"""The JSON documents, checkpoints and verdict runs of a pack, read once: many checks look at the same ones.

What is kept is kept by the very bytes it came from, so that no pack can leave wrong words behind for another. Readers
don't change what they are given.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from claims.domain.merkle import Checkpoint, read_checkpoint
from claims.domain.month_runs import VerdictRun, decode

Files = Mapping[str, bytes]
MOST_CHECKPOINTS = 1 << 14  # that are remembered: hourly ones of almost two years


def read(files: Files, name: str) -> Any:
    """A JSON document of the pack. Raises KeyError and ValueError."""
    return _loaded(files[name])


def enclosed(files: Files) -> list[str]:
    """The hashes of the batches that the windows name, sorted."""
    return sorted({sha for window in read(files, "windows.json") for sha in window["batches"]})


def checkpoints(files: Files) -> dict[str, Checkpoint]:
    """The log's checkpoints by the names of their notes, the smallest first; a note elsewhere is none of them.

    That the log signed them and that each continues the one before is for the checks of those names to say.
    """
    found = {
        name: _checkpoint(raw)
        for name, raw in files.items()
        if name.startswith("checkpoints/") and name.endswith(".note")
    }
    return dict(sorted(found.items(), key=lambda one: one[1].size))


def last_checkpoint(files: Files) -> Checkpoint | None:
    """The checkpoint of the largest log, against which every proof of the pack is."""
    return next(reversed(checkpoints(files).values()), None)


@lru_cache(maxsize=MOST_CHECKPOINTS)
def _checkpoint(note: bytes) -> Checkpoint:
    return read_checkpoint(note.decode())


@lru_cache(maxsize=8)
def _loaded(raw: bytes) -> Any:
    return json.loads(raw)


@lru_cache(maxsize=4)
def runs(raw: bytes) -> Mapping[str, list[VerdictRun]]:
    """The runs of a node's month, by subject."""
    return decode(raw)
