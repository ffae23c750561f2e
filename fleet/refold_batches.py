"""A node's batches for a re-fold: read some hours ahead, each decoded once, from the inbox or from packs alike.

A batch that can't be decoded is set aside with its error, as in the fold; the others go on.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from datetime import date
from typing import NamedTuple

from fleet.domain.node_hours import ReceivedBatch
from fleet.errors import BatchRejected
from fleet.evidence import Batch, batches_of
from fleet.folding import decoded
from fleet.packs import PackError
from fleet.waiting import Mark

log = logging.getLogger(__name__)
AHEAD_HOURS = 6  # decoded
AHEAD_BYTES_HOURS = 24  # compressed, as they are stored


class Said(NamedTuple):
    """Where a batch says that it lies, and where it was found to (hours since 1970 UTC, first and last); its mark."""

    sample_day: date
    said: tuple[int, int]
    first_hour: int
    last_hour: int
    reason: str


class NodeBatches:
    """Gives the batches that touch an hour or its neighbours; hours are asked for in order."""

    def __init__(self, node_id: int) -> None:
        self.node_id = node_id
        self.said: dict[bytes, Said] = {}  # every batch given so far
        self.failed: list[Mark] = []
        self._decoded: dict[bytes, tuple[int, int, ReceivedBatch]] = {}
        self._from, self._through = 1, 0  # hours read: none

    def hourly(self, first_hour: int, last_hour: int) -> Iterator[tuple[int, list[ReceivedBatch]]]:
        """Hour by hour, every batch of the node that meets `[first_hour, last_hour]`, each once, in order of receipt.

        One that reaches into the next hour comes with that. Bytes are read some hours ahead; they are unpacked and
        decoded an hour at a time: a few hours at once cost more in memory than in the work itself.
        """
        done: set[bytes] = set()
        waiting: list[Batch] = []
        for hour in range(first_hour, last_hour + 1):
            if (hour - first_hour) % AHEAD_BYTES_HOURS == 0:
                until = min(hour + AHEAD_BYTES_HOURS - 1, last_hour)
                fresh = batches_of([self.node_id], hour, until)
                waiting += [one for one in fresh if one.has_bytes and one.sha256 not in done]
                done.update(one.sha256 for one in fresh)
            now: list[Batch] = []
            later: list[Batch] = []
            for one in waiting:
                is_next = one.first_hour > hour or (one.first_hour == hour and one.last_hour == hour + 1)
                (later if is_next and hour < last_hour else now).append(one)
            waiting = later
            yield hour, [received for one in now if (received := self._decode(one)) is not None]

    def load(self, hour: int) -> Iterable[ReceivedBatch]:
        """Every batch of the node whose hours meet `[hour - 1, hour + 1]`."""
        if not self._from <= hour - 1 <= hour + 1 <= self._through:
            fresh = self._through < hour - 1 or hour - 1 < self._from
            self._read(hour - 1 if fresh else self._through + 1, hour + 1 + AHEAD_HOURS)
            self._from, self._through = (hour - 1 if fresh else self._from), hour + 1 + AHEAD_HOURS
        self._decoded = {sha: one for sha, one in self._decoded.items() if one[1] >= hour - 1}
        self._from = max(self._from, hour - 1)
        return [one for first, last, one in self._decoded.values() if last >= hour - 1 and first <= hour + 1]

    def stands(self, sha256: bytes) -> tuple[int, int] | None:
        """The hours in which a batch that was given was folded so far, or which it made dirty."""
        one = self.said.get(sha256)
        return (one.first_hour, one.last_hour) if one is not None else None

    def _read(self, first_hour: int, last_hour: int) -> None:
        for one in batches_of([self.node_id], first_hour, last_hour):
            if one.sha256 in self._decoded or not one.has_bytes:
                continue
            received = self._decode(one)
            if received is not None:
                self._decoded[one.sha256] = (one.first_hour, one.last_hour, received)

    def _decode(self, one: Batch) -> ReceivedBatch | None:
        """Its content; None, and noted down, where its bytes can't be read."""
        try:
            received = decoded(one)
        except (BatchRejected, PackError) as error:
            log.error("batch %s of node %s can't be read: %s", one.sha256.hex(), self.node_id, error)
            told = f"{type(error).__name__}: {error}"[:500]
            if all(mark[1] != one.sha256 for mark in self.failed):  # it may be read again
                self.failed.append(
                    (one.sample_day, one.sha256, "failed", self.node_id, one.first_hour, one.last_hour, told)
                )
            return None
        self.said[one.sha256] = Said(one.sample_day, one.said, one.first_hour, one.last_hour, one.reason)
        return received
