"""When things happen: samples at slot centres, uploads at a phase of their own, retries with full jitter.

Samples are taken 7.5 s after each multiple of 15 s of UTC, so that a slot holds exactly one. Only the upload has a
phase per node, so that a fleet does not knock at the full minute.
"""

from __future__ import annotations

import hashlib
import random

SLOT_MS = 15_000
CENTRE_MS = 7_500
UPLOAD_MS = 60_000
SLOTS_PER_UPLOAD = UPLOAD_MS // SLOT_MS

RETRY_BASE_S = 2.0
RETRY_CAP_S = 300.0
SLOW_RETRY_S = 900.0  # refused key or wrong address: facts/reliability 1.4
RETRY_AFTER_LEAST_S = 1.0
RETRY_AFTER_MOST_S = 900.0


def slot_of(ts_ms: int) -> int:
    """Number of the 15-second slot that holds the instant."""
    return ts_ms // SLOT_MS


def next_centre(ts_ms: int) -> int:
    """The first slot centre after `ts_ms`, in ms since 1970."""
    return slot_of(ts_ms - CENTRE_MS) * SLOT_MS + SLOT_MS + CENTRE_MS


def upload_phase(identity: str) -> tuple[int, int]:
    """(slot of the minute 0..3, ms after its sample 0..11999) at which a node uploads; fixed by its identity."""
    digest = hashlib.sha256(b"goodput phase v1\n" + identity.encode()).digest()
    return digest[0] % SLOTS_PER_UPLOAD, int.from_bytes(digest[1:5], "big") % 12_000


def retry_delay(attempts: int, rng: random.Random) -> float:
    """Seconds to wait after the `attempts`-th failure in a row: full jitter, random(0, min(cap, base * 2^n))."""
    return rng.uniform(0.0, min(RETRY_CAP_S, RETRY_BASE_S * 2.0 ** min(attempts, 16)))


def clamp_retry_after(seconds: float) -> float:
    """What a server asked for, within 1 s and 15 min."""
    return min(RETRY_AFTER_MOST_S, max(RETRY_AFTER_LEAST_S, seconds))
