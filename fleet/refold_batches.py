"""A node's batches for a re-fold: read some hours ahead, each decoded once, from the inbox or from packs alike.

A batch that can't be decoded is set aside with its error, as in the fold; the others go on.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import replace

from fleet.domain.node_hours import ReceivedBatch
from fleet.errors import BatchRejected
from fleet.evidence import Batch, batches_of
from fleet.folding import decoded
from fleet.packs import PackError
from fleet.waiting import Mark

log = logging.getLogger(__name__)
AHEAD_HOURS = 6


class NodeBatches:
    """Gives the batches that touch an hour or its neighbours; hours are asked for in order."""

    def __init__(self, node_id: int) -> None:
        self.node_id = node_id
        self.said: dict[bytes, Batch] = {}  # every batch given so far, without its bytes
        self.failed: list[Mark] = []
        self._decoded: dict[bytes, tuple[int, int, ReceivedBatch]] = {}
        self._from, self._through = 1, 0  # hours read: none

    def between(self, first_hour: int, last_hour: int) -> list[ReceivedBatch]:
        """Every batch of the node whose hours meet `[first_hour, last_hour]`, in order of receipt; nothing is kept."""
        self._decoded, self._from, self._through = {}, 1, 0
        self._read(first_hour, last_hour)
        found = [one for _, _, one in self._decoded.values()]
        self._decoded = {}
        return found

    def load(self, hour: int) -> Iterable[ReceivedBatch]:
        """Every batch of the node whose hours meet `[hour - 1, hour + 1]`."""
        if not self._from <= hour - 1 <= hour + 1 <= self._through:
            fresh = self._through < hour - 1 or hour - 1 < self._from
            self._read(hour - 1 if fresh else self._through + 1, hour + 1 + AHEAD_HOURS)
            self._from, self._through = (hour - 1 if fresh else self._from), hour + 1 + AHEAD_HOURS
        self._decoded = {sha: one for sha, one in self._decoded.items() if one[1] >= hour - 1}
        self._from = max(self._from, hour - 1)
        return [one for first, last, one in self._decoded.values() if last >= hour - 1 and first <= hour + 1]

    def _read(self, first_hour: int, last_hour: int) -> None:
        for one in batches_of([self.node_id], first_hour, last_hour):
            if one.sha256 in self._decoded or not one.has_bytes:
                continue
            try:
                received = decoded(one)
            except (BatchRejected, PackError) as error:
                log.error("batch %s of node %s can't be read: %s", one.sha256.hex(), self.node_id, error)
                told = f"{type(error).__name__}: {error}"[:500]
                self.failed.append(
                    (one.sample_day, one.sha256, "failed", self.node_id, one.first_hour, one.last_hour, told)
                )
                continue
            self._decoded[one.sha256] = (one.first_hour, one.last_hour, received)
            self.said[one.sha256] = replace(one, row=one.row._replace(body=b""), entry=None, part=None)
