"""The cache: Redis, and for the limits of the way in this process's own memory while Redis does not answer.

Then codes of a second factor, passkeys and mails are limited per process instead of nowhere, and nobody's login fails.
Whatever else asks the cache is told that it is away. Tries at passwords are counted in PostgreSQL (orgs/attempts.py).
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from django.core.cache.backends.locmem import LocMemCache
from django.core.cache.backends.redis import RedisCache
from redis.exceptions import RedisError

log = logging.getLogger(__name__)
LIMITS = "allauth:"  # what the names of django-allauth's counters begin with


def _patiently(name: str) -> Callable[..., Any]:
    def call(self: PatientRedisCache, key: str, *args: Any, **kwargs: Any) -> Any:
        try:
            return getattr(RedisCache, name)(self, key, *args, **kwargs)
        except RedisError as error:
            if not key.startswith(LIMITS):
                raise
            log.warning("the cache does not answer (%s); this process counts for itself", type(error).__name__)
            return getattr(self.own, name)(key, *args, **kwargs)

    call.__name__ = name
    call.__doc__ = f"As Django's RedisCache.{name}; limits come from this process's memory where Redis does not answer."
    return call


class PatientRedisCache(RedisCache):
    """Django's Redis cache with a stand-in for limits for the time without Redis. Keys are made alike in both."""

    def __init__(self, server: Any, params: dict[str, Any]):
        super().__init__(server, params)
        own = {key: value for key, value in params.items() if key != "OPTIONS"}
        self.own = LocMemCache("goodput-without-redis", own)

    add = _patiently("add")
    get = _patiently("get")
    set = _patiently("set")
    delete = _patiently("delete")
