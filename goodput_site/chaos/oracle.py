"""The oracle's books: what each agent process took, kept and was receipted for.

One append-only file per process, a JSON object a line, told before and after the fact: a process that is killed
between the two leaves an outcome that is not known, which may turn up at the server once or not at all. The line goes
through a pipe to the command, which writes the file: the kernel keeps what is in a pipe when its writer dies, and no
fault touches these files.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

SampleId = tuple[str, str, int]  # node, boot_id, ms since that boot: a node takes one sample at an instant


def sample_hash(interval: dict[str, Any]) -> str:
    """What identifies a sample's content, whatever bytes carry it."""
    return hashlib.sha256(json.dumps(interval, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


class Book:
    """One process's end of the pipe; several threads may write, as a line is shorter than PIPE_BUF."""

    def __init__(self, descriptor: int) -> None:
        self._file = descriptor

    def write(self, kind: str, **facts: Any) -> None:
        """One line, in one write."""
        os.write(self._file, (json.dumps({"kind": kind, **facts}, separators=(",", ":")) + "\n").encode())


@dataclass
class Books:
    """What all books say together."""

    taken: dict[SampleId, set[str]] = field(default_factory=dict)  # hashes: a second try at an instant may differ
    kept: set[SampleId] = field(default_factory=set)  # committed to an outbox on disk
    volatile: set[SampleId] = field(default_factory=set)  # kept in memory only: the disk took nothing
    acked: dict[str, str] = field(default_factory=dict)  # batch hash -> node
    when: dict[SampleId, int] = field(default_factory=dict)  # the true instant, ms since 1970
    sims: dict[str, str] = field(default_factory=dict)  # node -> scenario
    orgs: dict[str, str] = field(default_factory=dict)  # node -> org
    damaged: list[dict[str, Any]] = field(default_factory=list)  # outbox files that were set aside
    starts: int = 0
    sightings: dict[str, int] = field(default_factory=dict)  # answers by status, as agents saw them

    @classmethod
    def read(cls, paths: Iterable[Path]) -> Books:
        """All files; a last line that was cut is passed over."""
        books = cls()
        for path in paths:
            for line in path.read_bytes().split(b"\n"):
                if line.endswith(b"}"):
                    books._take(json.loads(line))
        return books

    def _take(self, line: dict[str, Any]) -> None:
        kind = line["kind"]
        if kind in ("taking", "kept", "volatile"):
            sample = (line["node"], line["boot_id"], line["boottime"])
            if kind == "taking":
                self.taken.setdefault(sample, set()).add(line["hash"])
                self.when[sample] = line["boot_at"] + line["boottime"]
            elif kind == "kept":
                self.kept.add(sample)
            else:
                self.volatile.add(sample)
        elif kind == "acked":
            self.acked[line["sha256"]] = line["node"]
        elif kind == "answer":
            key = str(line["status"])
            self.sightings[key] = self.sightings.get(key, 0) + 1
        elif kind == "damaged":
            self.damaged.append(line)
        elif kind == "start":
            self.starts += 1
            for node in line["nodes"]:
                self.sims[node], self.orgs[node] = line["scenarios"][node], line["org"]
