"""Waits until database and broker answer (`services`), or until the migrations are done as well (`migrations`).

Compose and Kubernetes order starts, but not everywhere and not after a restart of the machine; so each container waits.
Gives up after GOODPUT_WAIT_SECONDS (300) with exit status 1; what restarts the container tries again.
"""

import os
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))


def problem(wants_migrations: bool) -> str:
    """What is not there yet, in words; empty when all is."""
    import psycopg
    import redis

    try:
        psycopg.connect(os.environ["DATABASE_URL"], connect_timeout=3).close()
    except psycopg.Error as error:
        return f"database: {str(error).splitlines()[0]}"
    try:
        with redis.Redis.from_url(os.environ["REDIS_URL"], socket_connect_timeout=3, socket_timeout=3) as broker:
            broker.ping()
    except redis.RedisError as error:
        return f"broker: {error}"
    if wants_migrations:
        return migrations()
    return ""


def migrations() -> str:
    """Whether the shared tables and those of each org are up to date, as /readyz says it."""
    import django

    django.setup()
    from goodput_site import health

    answer = health._asked(health._migrations)
    return "" if answer == "ok" else f"migrations: {answer}"


def main() -> int:
    """Wait, telling each new reason once."""
    told, deadline = "", time.monotonic() + float(os.environ.get("GOODPUT_WAIT_SECONDS", "300"))
    while reason := problem("migrations" in sys.argv[1:]):
        if reason != told:
            print(f"waiting for {reason}", file=sys.stderr, flush=True)
            told = reason
        if time.monotonic() > deadline:
            print(f"gave up waiting for {reason}", file=sys.stderr)
            return 1
        time.sleep(1)
    return 0


if __name__ == "__main__":
    sys.exit(main())
