"""Waits until database and broker answer (`services`), or until the migrations are done as well (`migrations`).

Compose and Kubernetes order starts, but not everywhere and not after a restart of the machine; so each container waits.
Gives up after GOODPUT_WAIT_SECONDS (300) with exit status 1; what restarts the container tries again.
"""

import os
import sys
import time
from pathlib import Path

PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 0.5, 4.0

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))


def services() -> tuple[str, int]:
    """(what is not there yet, in words, empty when all is; how many migrations are noted in the shared schema)."""
    import psycopg
    import redis

    try:
        with psycopg.connect(os.environ["DATABASE_URL"], connect_timeout=3) as session:
            done = 0
            if session.execute(
                "select 1 from pg_tables where schemaname || '.' || tablename = 'public.django_migrations'"
            ).fetchone():
                done = len(session.execute("select id from public.django_migrations").fetchall())
    except psycopg.Error as error:
        return f"database: {str(error).splitlines()[0]}", 0
    try:
        with redis.Redis.from_url(os.environ["REDIS_URL"], socket_connect_timeout=3, socket_timeout=3) as broker:
            broker.ping()
    except redis.RedisError as error:
        return f"broker: {error}", done
    return "", done


def migrations() -> str:
    """Whether the shared tables and those of each org are up to date, as /readyz says it. Costs a second of CPU."""
    import django

    django.setup()
    from goodput_site import health

    answer = health._asked(health._migrations)
    return "" if answer == "ok" else f"migrations: {answer}"


def main() -> int:
    """Wait, telling each new reason once.

    Four containers wait beside the one that migrates, so nothing costly is asked while the number of migrations grows,
    and ever less often afterwards.
    """
    told, deadline = "", time.monotonic() + float(os.environ.get("GOODPUT_WAIT_SECONDS", "300"))
    before, pause = -1, PAUSE_SECONDS
    while True:
        reason, done = services()
        if not reason and "migrations" in sys.argv[1:]:
            reason = "migrations: pending"
            if done and done == before:
                reason = migrations()
                pause = min(2 * pause, LONGEST_PAUSE_SECONDS)
            before = done
        if not reason:
            return 0
        if reason != told:
            print(f"waiting for {reason}", file=sys.stderr, flush=True)
            told = reason
        if time.monotonic() > deadline:
            print(f"gave up waiting for {reason}", file=sys.stderr)
            return 1
        time.sleep(pause)


if __name__ == "__main__":
    sys.exit(main())
