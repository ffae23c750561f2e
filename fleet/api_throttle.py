"""How many reads a key may make a minute, counted in the cache; a lost cache lets all through, with a log line."""

from __future__ import annotations

import logging
import time
from typing import Any, NamedTuple

from django.core.cache import cache
from redis.exceptions import RedisError
from rest_framework.request import Request
from rest_framework.throttling import BaseThrottle

from orgs.addresses import client_address

READS_PER_MINUTE = 600
WINDOW_S = 60
TELL_EVERY_S = 60.0

log = logging.getLogger(__name__)
_told_at = [-TELL_EVERY_S]


class Rate(NamedTuple):
    """What is left of a caller's minute."""

    limit: int
    remaining: int
    reset_s: int


class ReadRate(BaseThrottle):
    """Fixed windows of a minute per key; per person under a session, per address where no key is needed."""

    def allow_request(self, request: Request, view: Any) -> bool:
        """Count this read and say whether it may go on; leaves the Rate on the view for the headers."""
        now = time.time()
        self.reset_s = WINDOW_S - int(now) % WINDOW_S
        limit = READS_PER_MINUTE
        try:
            count = _count(f"reads:{_who(request)}:{int(now) // WINDOW_S}")
        except (RedisError, OSError) as error:
            if time.monotonic() - _told_at[0] >= TELL_EVERY_S:
                _told_at[0] = time.monotonic()
                log.warning("reads are not being counted, the cache does not answer: %s", type(error).__name__)
            return True
        view.rate = Rate(limit, max(0, limit - count), self.reset_s)
        return count <= limit

    def wait(self) -> float:
        """Seconds until the next window."""
        return self.reset_s


def _count(name: str) -> int:
    """This read's number within its window."""
    if cache.add(name, 1, 2 * WINDOW_S):
        return 1
    try:
        return int(cache.incr(name))
    except ValueError:  # it ran out between the two
        return 1


def _who(request: Request) -> str:
    key: Any = request.auth
    if key.id:
        return f"key-{key.id}"
    if key.prefix == "session":
        return f"user-{request.user.pk}"
    return f"address-{client_address(request.META)}"
