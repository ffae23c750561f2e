"""The costly work of a check, in this process or spread over others: folding windows, checking signatures.

Results come in the order of the pack whatever process finished first. What a worker can't do is raised here, and a
worker that was killed or asked for more memory than its share breaks the whole: the check that waits for it fails.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ProcessPoolExecutor
from typing import Any

from claims.verify.agents import AgentKey, judge_some
from claims.verify.batches import keep_facts
from claims.verify.documents import enclosed, read
from claims.verify.folding import Folded, fold_one
from claims.verify.rule_sets import rules_of

Files = Mapping[str, bytes]
Judged = tuple[str, AgentKey | None]
#: Bytes that a worker may ask for beyond what it begins with; where the system can't limit it, nothing does.
MEMORY = 2 << 30
LEAST = 200  # signatures a task


A_PROCESS = 700  # batches for which another process is worth its start


def default_jobs(files: Files) -> int:
    """How many processes check a pack soonest: one for small packs, at most one for each processor we may use."""
    most = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min(most, sum(name.startswith("batches/") for name in files) // A_PROCESS))


class Work:
    """A pack's work in `jobs` processes; 1: in this one, each part when it is asked for."""

    def __init__(
        self,
        files: Files,
        jobs: int = 1,
        progress: Callable[[int, int], None] = lambda done, of: None,
        memory: int = MEMORY,
    ) -> None:
        self._files, self._jobs, self._progress, self._memory = files, jobs, progress, memory
        self._pool: ProcessPoolExecutor | None = None
        self._folds: list[Future[Folded]] | None = None
        self._judged: list[Future[list[Judged]]] | None = None

    def begin(self) -> None:
        """Hand everything out, where there is somebody to hand it to. A pack that can't be read is left to the checks
        to tell.
        """
        if self._jobs < 2:
            return
        with contextlib.suppress(Exception):
            rules_of(self._files)  # before the workers begin, which inherit it
            windows, batches = len(read(self._files, "windows.json")), len(enclosed(self._files))
            size = max(LEAST, -(-batches // (4 * self._jobs)))
            method = "fork" if sys.platform == "linux" else "spawn"
            self._pool = ProcessPoolExecutor(
                self._jobs, multiprocessing.get_context(method), _begin, (self._files, self._memory)
            )
            self._folds = [self._pool.submit(_fold, number) for number in range(windows)]
            self._judged = [self._pool.submit(_judge, at, at + size) for at in range(0, batches, size)]

    def folded(self) -> Iterator[Folded]:
        """What each window folds to, in the order of `windows.json`."""
        of = len(read(self._files, "windows.json"))
        for number in range(of):
            if self._folds is None:
                found = fold_one(self._files, number)
            else:
                found = self._folds[number].result()
                keep_facts(self._files, found.facts)
            yield found
            self._progress(number + 1, of)

    def judged(self) -> list[Judged]:
        """What each enclosed batch's signature says and the key that made it, in the order of the batches' hashes."""
        if self._judged is None:
            return judge_some(self._files, 0, len(enclosed(self._files)))
        return [one for part in self._judged for one in part.result()]

    def end(self) -> None:
        """Let the workers go; what they have not begun is dropped."""
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)


# In a worker

_mine: dict[str, Any] = {}


def _begin(files: Files, memory: int) -> None:
    _mine["files"] = files
    try:
        import resource
    except ImportError:
        return
    with contextlib.suppress(OSError, ValueError):
        most = _size() + memory
        resource.setrlimit(resource.RLIMIT_AS, (most, resource.getrlimit(resource.RLIMIT_AS)[1]))


def _size() -> int:
    """The address space of this process in bytes; 0 where the system does not say."""
    try:
        with open("/proc/self/statm", "rb") as file:
            return int(file.read().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0


def _fold(number: int) -> Folded:
    return fold_one(_mine["files"], number)


def _judge(first: int, end: int) -> list[Judged]:
    return judge_some(_mine["files"], first, end)
