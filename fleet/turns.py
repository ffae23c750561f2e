"""Which uploads a web process works on: one org never holds all of its threads.

A web process has a few threads, and whoever is served holds one until its answer is written. Without a rule a crowd of
one org's agents, or one agent whose body trickles in, keeps everybody else waiting. So one thread is always left:

- Another org was heard lately: an org that holds its share is refused at once (503 `busy`, the agent keeps the batch),
  which costs next to nothing. The crowd's queue shrinks to nothing, and the other org's upload is served. What an agent
  calls backlog leaves one thread of the share, too, so that what is live finds one. To call a backlog live gains
  nothing over another org.
- No other org was heard: nobody is harmed by waiting, so the upload waits for a thread of its own org. Not behind
  uploads that have all been standing for a second, since their bodies may never come.

Counted in this process, like the quotas: each web process keeps one thread free of each org.
"""

from __future__ import annotations

import random
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager

from django.conf import settings

from fleet.errors import Busy

OTHERS_S = 90.0  # an agent sends once a minute, so an org that was not heard for longer sends nothing now
STALLED_S = 1.0  # an upload takes milliseconds; one that stands for longer waits for its sender
RETRY_S = (1, 3)  # a crowd that was turned away comes back spread over this


class Turns:
    """The threads that each org's uploads hold."""

    def __init__(self) -> None:
        self._held: dict[int, list[float]] = defaultdict(list)  # org -> since when (monotonic), oldest first
        self._freed = threading.Condition()
        self._newest, self._newest_at = 0, float("-inf")  # the org that was heard last
        self._before_at = float("-inf")  # when any other org than that one was heard last

    @contextmanager
    def turn(self, org: int, is_backlog: bool = False) -> Iterator[None]:
        """Hold a thread for an upload of `org`. Raises Busy → 503 when the org has its share already."""
        since = self._take(org, is_backlog)
        try:
            yield
        finally:
            with self._freed:
                mine = self._held[org]
                mine.remove(since)
                if not mine:
                    del self._held[org]
                self._freed.notify_all()

    def _take(self, org: int, is_backlog: bool) -> float:
        share = max(1, settings.GOODPUT_WEB_THREADS - 1)
        with self._freed:
            now = time.monotonic()
            is_alone = now - self._hear(org, now) >= OTHERS_S
            if is_backlog and not is_alone:
                share = max(1, share - 1)
            until = now + STALLED_S
            while len(self._held.get(org, ())) >= share:
                now = time.monotonic()
                if not is_alone or now - self._held[org][-1] > STALLED_S or now >= until:
                    raise Busy("Other uploads of this org are being taken. Send this batch again.", _wait_s())
                self._freed.wait(until - now)
            now = time.monotonic()
            self._held[org].append(now)
            return now

    def _hear(self, org: int, now: float) -> float:
        """Note that the org sends; when any other one was heard last."""
        if org != self._newest:
            self._newest, self._before_at = org, self._newest_at
        self._newest_at = now
        return self._before_at


def _wait_s() -> int:
    return random.randint(*RETRY_S)


turns = Turns()
