"""Token buckets in this process: so much a second, and what a few quiet seconds saved up.

Who comes too early is told when to come again, and each one a little later than the one before: a crowd that is turned
away returns at the rate at which it can be served, not all at once.
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass

MOST_WAIT_S = 60.0
MAX_BUCKETS = 50_000  # beyond this those are forgotten that were not asked for longest


@dataclass(frozen=True)
class Rate:
    """`per_s` tokens a second, at most `burst` of them saved up; who takes by this rate leaves `kept` of those."""

    per_s: float
    burst: float
    kept: float = 0.0

    def needed(self, tokens: float) -> float:
        """What must be in the bucket for so many to be taken. More than it ever holds is taken when it is full."""
        return min(tokens + self.kept, self.burst)


@dataclass(slots=True)
class _Bucket:
    tokens: float
    at: float  # monotonic instant to which `tokens` is true
    turn: float = 0.0  # monotonic instant that the last one who was turned away was told


class Buckets:
    """Buckets by name. Safe among threads; a take costs a lock and a few additions."""

    def __init__(self) -> None:
        self._buckets: dict[tuple[str, object], _Bucket] = {}
        self._lock = threading.Lock()

    def take(self, *wanted: tuple[tuple[str, object], Rate, float]) -> float:
        """Takes (name, rate, tokens) of each bucket, or of none. 0.0, or the seconds to wait, at least 1."""
        now = time.monotonic()
        with self._lock:
            found = [(self._filled(name, rate, now), rate, tokens) for name, rate, tokens in wanted]
            short = [
                (bucket, rate, tokens)
                for bucket, rate, tokens in found
                if bucket.tokens < rate.needed(tokens) - 1e-9  # filled by additions of floats
            ]
            if not short:
                for bucket, _, tokens in found:
                    bucket.tokens -= tokens
                return 0.0
            return max(self._turn(bucket, rate, tokens, now) for bucket, rate, tokens in short)

    def has(self, name: tuple[str, object], rate: Rate, tokens: float = 1.0) -> bool:
        """Whether the bucket holds so much now; nothing is taken."""
        with self._lock:
            return self._filled(name, rate, time.monotonic()).tokens >= tokens

    def clear(self) -> None:
        """Forget all: every bucket is full again."""
        with self._lock:
            self._buckets.clear()

    def __len__(self) -> int:
        return len(self._buckets)

    def _filled(self, name: tuple[str, object], rate: Rate, now: float) -> _Bucket:
        bucket = self._buckets.get(name)
        if bucket is None:
            if len(self._buckets) >= MAX_BUCKETS:
                self._forget()
            bucket = self._buckets[name] = _Bucket(rate.burst, now)
        bucket.tokens = min(rate.burst, bucket.tokens + (now - bucket.at) * rate.per_s)
        bucket.at = now
        return bucket

    def _forget(self) -> None:
        """Drop what was not asked for longest: half of all, so that this is rare."""
        oldest = sorted(self._buckets, key=lambda name: self._buckets[name].at)
        for name in oldest[: MAX_BUCKETS // 2]:
            del self._buckets[name]

    @staticmethod
    def _turn(bucket: _Bucket, rate: Rate, tokens: float, now: float) -> float:
        first = now + (rate.needed(tokens) - bucket.tokens) / rate.per_s
        bucket.turn = min(max(first, bucket.turn + tokens / rate.per_s), now + MOST_WAIT_S)
        return max(1.0, bucket.turn - now)
