"""A boot's samples in the order of its own clock, and what its receipts say of jumps: pauses and steps (fold.md 25)."""

from __future__ import annotations

from typing import NamedTuple

from fleet.domain.clocks import Fit
from fleet.domain.facts import Batch
from fleet.domain.slots import SLOT_MS

JUMP_MS = SLOT_MS // 2
AHEAD_MS = 600_000  # further ahead of its receipt than this is never folded (issue 2: suspect clock)
UPTIME_MS = 100 * 365 * 86_400_000  # no boot is older than this
BEHIND_MS = 400 * 86_400_000  # and so is what claims to be older than this

Pause = tuple[int, tuple[int, int]]
#: A jump of `ts`: the first boottime behind it, its hour (-1 = not placed yet), the first boottime of what decided it
#: (None = nothing has).
Jump = tuple[int, int, int | None]


class ReceivedBatch(NamedTuple):
    """A batch as the inbox holds it: SHA-256 of its MessagePack bytes, first receipt, decoded content."""

    sha256: bytes
    received_at_ms: int
    batch: Batch


class Piece(NamedTuple):
    """Samples `first..end` of a batch that stand next to each other in their boot's order."""

    received: ReceivedBatch
    first: int
    end: int


def pieces_of(batches: list[ReceivedBatch]) -> list[Piece]:
    """The boot's samples in the order of its own clock: whole batches, or sample by sample where two installations'
    batches overlap. What is known of the clock at a sample rests on the samples before it in this order.
    """
    whole = [Piece(received, 0, len(received.batch.intervals)) for received in batches]
    last = -1
    for received in batches:
        for interval in received.batch.intervals:
            bt = interval.boottime
            if bt is None:
                continue
            if bt < last:
                return sorted(
                    (Piece(one.received, at, at + 1) for one in whole for at in range(one.end)), key=_piece_order
                )
            last = bt
    return whole


def _piece_order(piece: Piece) -> tuple[int, str, int, bytes, int]:
    received, position, _ = piece
    interval = received.batch.intervals[position]
    instant = interval.ts if interval.boottime is None else interval.boottime
    return (instant, received.batch.agent_id or "", received.batch.seq or 0, received.sha256, position)


def sync_of(received: ReceivedBatch) -> tuple[int, int] | None:
    """The batch's newest receipt, (server time, boottime); one that cannot be is none."""
    sync = received.batch.sync
    if sync is None or sync.boottime > UPTIME_MS:
        return None
    if not received.received_at_ms - BEHIND_MS <= sync.received_at <= received.received_at_ms + AHEAD_MS:
        return None
    return sync.received_at, sync.boottime


def decide(pieces: list[Piece], fit: Fit) -> tuple[list[Pause], list[Jump], list[int]]:
    """Pauses (boottime at which a new segment begins, the sync that showed it); the jumps of `ts`; the hour of the jump
    that was open before and is decided now.

    A later receipt decides a jump: server time moved along (a pause) or did not (a step of the clock).
    """
    pauses: list[Pause] = []
    jumps: list[Jump] = []
    decided: list[int] = []
    sync, jump, last_bt, last_diff = fit[4], fit[5], fit[7], fit[8]
    pending = jump
    for received, first_at, end in pieces:
        intervals = received.batch.intervals
        first = intervals[first_at].boottime
        new = sync_of(received) if first is None or first > last_bt else None
        if new is not None and (sync is None or new[1] > sync[1]):
            is_pause = sync is not None and abs((new[0] - new[1]) - (sync[0] - sync[1])) > JUMP_MS
            if jump is not None and (is_pause or new[1] >= jump[0]):
                jumps.append((jump[0], jump[1], first))
                if jump == pending:
                    decided.append(jump[1])
                if is_pause:
                    pauses.append((jump[0], new))
                jump = None
            elif is_pause and first is not None:
                pauses.append((first, new))
            sync = new
        for position in range(first_at, end):
            bt = intervals[position].boottime
            if bt is None or bt <= last_bt:
                continue
            diff = intervals[position].ts - bt
            if last_bt >= 0 and abs(diff - last_diff) > JUMP_MS and jump is None:
                jump = (bt, -1)
            last_bt, last_diff = bt, diff
    if jump is not None:
        jumps.append((*jump, None))
    return pauses, jumps, decided
