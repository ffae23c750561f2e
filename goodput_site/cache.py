"""The cache: Redis while it answers, else this process's own memory. No page and no login fails with it.

Limits that are counted in it (codes of a second factor, passkeys, mails) hold per process then, instead of nowhere.
Tries at passwords are counted in PostgreSQL (orgs/attempts.py) and do not depend on it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from django.core.cache.backends.locmem import LocMemCache
from django.core.cache.backends.redis import RedisCache
from redis.exceptions import RedisError

log = logging.getLogger(__name__)


def _patiently(name: str) -> Callable[..., Any]:
    def call(self: PatientRedisCache, *args: Any, **kwargs: Any) -> Any:
        try:
            return getattr(RedisCache, name)(self, *args, **kwargs)
        except RedisError as error:
            log.warning("the cache does not answer (%s); this process remembers for itself", type(error).__name__)
            return getattr(self.own, name)(*args, **kwargs)

    call.__name__ = name
    call.__doc__ = f"As Django's RedisCache.{name}, from this process's memory where Redis does not answer."
    return call


class PatientRedisCache(RedisCache):
    """Django's Redis cache with a stand-in for the time without Redis. Keys are made alike in both."""

    def __init__(self, server: Any, params: dict[str, Any]):
        super().__init__(server, params)
        own = {key: value for key, value in params.items() if key != "OPTIONS"}
        self.own = LocMemCache("goodput-without-redis", own)

    add = _patiently("add")
    get = _patiently("get")
    set = _patiently("set")
    touch = _patiently("touch")
    delete = _patiently("delete")
    get_many = _patiently("get_many")
    has_key = _patiently("has_key")
    incr = _patiently("incr")
    set_many = _patiently("set_many")
    delete_many = _patiently("delete_many")
