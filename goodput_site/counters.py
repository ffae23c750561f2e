"""What this server counts about itself: cheap in the process that counts, added up in the broker by all of them.

`count` costs a lock and an addition. A thread adds what came together to one Redis hash every few seconds; a broker
that is away costs nothing, as figures are kept until it is back. Counters begin at 0 when the broker forgets, which
Prometheus expects of counters.
"""

from __future__ import annotations

import logging
import os
import threading
from collections import defaultdict

import redis
from django.conf import settings

KEY = "goodput:counters"
FLUSH_SECONDS = 3.0
MOST_LABELS = 200  # of one process: a label is a status or a code, never what somebody sent

log = logging.getLogger(__name__)


class _Counts:
    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.waiting: dict[str, float] = defaultdict(float)
        self.pid = 0

    def add(self, name: str, label: str, amount: float) -> None:
        with self.lock:
            key = f"{name}|{label}"
            if key in self.waiting or len(self.waiting) < MOST_LABELS:
                self.waiting[key] += amount
            if self.pid != os.getpid():  # first use, or a fork: threads are not inherited
                self.pid = os.getpid()
                threading.Thread(target=self._run, name="counters", daemon=True).start()

    def _run(self) -> None:
        pause = threading.Event()
        while not pause.wait(FLUSH_SECONDS):
            try:
                self.flush()
            except redis.RedisError as error:
                log.debug("counters wait: %s", type(error).__name__)

    def flush(self) -> None:
        """Add what waits to the broker's figures. Raises RedisError; it waits on then."""
        with self.lock:
            taken, self.waiting = self.waiting, defaultdict(float)
        if not taken:
            return
        try:
            with _broker().pipeline(transaction=True) as pipe:
                for key, amount in taken.items():
                    pipe.hincrbyfloat(KEY, key, amount)
                pipe.execute()
        except redis.RedisError:
            with self.lock:
                for key, amount in taken.items():
                    self.waiting[key] += amount
            raise


_counts = _Counts()
_client: list[redis.Redis] = []


def _broker() -> redis.Redis:
    if not _client:
        _client.append(redis.Redis.from_url(settings.REDIS_URL, socket_timeout=2, socket_connect_timeout=2))
    return _client[0]


def count(name: str, label: str = "", amount: float = 1.0) -> None:
    """Count something of this server. `label` is one of a few words of ours."""
    _counts.add(name, label, amount)


def flush() -> None:
    """Add what this process counted to the whole now. Raises RedisError."""
    _counts.flush()


def read() -> dict[tuple[str, str], float]:
    """(name, label) -> what all processes have counted. Raises RedisError."""
    found: dict[bytes, bytes] = _broker().hgetall(KEY)  # type: ignore[assignment]
    out: dict[tuple[str, str], float] = {}
    for key, amount in found.items():
        name, _, label = key.decode().partition("|")
        out[name, label] = float(amount)
    return out
