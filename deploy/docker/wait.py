"""Waits until database and broker answer (`services`), or until the migrations are done as well (`migrations`).

Compose and Kubernetes order starts, but not everywhere and not after a restart of the machine; so each container waits.
Gives up after GOODPUT_WAIT_SECONDS (300) with exit status 1; what restarts the container tries again. `names` prints
the newest migrations of this code as JSON; the image keeps them, so that a waiting container need not load Django.
"""

import json
import os
import sys
import time
from pathlib import Path

PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 0.5, 4.0
ROOT = Path(__file__).resolve().parents[2]
NAMES = ROOT / "image-migrations.json"
IS_THERE = "select 1 from pg_tables where schemaname || '.' || tablename = 'public.django_migrations'"
IS_PREPARED = "select pg_try_advisory_xact_lock_shared(hashtext('goodput-prepare'))"  # `manage.py prepare` holds it

sys.path.insert(0, str(ROOT))


def services() -> str:
    """What is not there yet, in words; empty when database and broker answer."""
    import psycopg
    import redis

    try:
        with psycopg.connect(os.environ["DATABASE_URL"], connect_timeout=3, client_encoding="UTF8"):
            pass
    except psycopg.Error as error:
        return f"database: {str(error).splitlines()[0]}"
    try:
        with redis.Redis.from_url(os.environ["REDIS_URL"], socket_connect_timeout=3, socket_timeout=3) as broker:
            broker.ping()
    except redis.RedisError as error:
        return f"broker: {error}"
    return ""


def migrations() -> str:
    """What is not there yet; empty when all is, no `prepare` runs, and every table is up to date.

    Until `prepare` has ended there may be no org and no key, and an agent that is refused asks again much later.
    """
    import psycopg

    if reason := services():
        return reason
    try:
        with psycopg.connect(os.environ["DATABASE_URL"], connect_timeout=3, client_encoding="UTF8") as session:
            if not session.execute(IS_THERE).fetchone():
                return "migrations: pending"
            if session.execute(IS_PREPARED).fetchone() != (True,):
                return "migrations: under way"
            if NAMES.exists():
                return "" if up_to_date(session, **json.loads(NAMES.read_text())) else "migrations: pending"
    except psycopg.Error as error:
        return f"database: {str(error).splitlines()[0]}"
    return asked()


def up_to_date(session, shared: list[list[str]], orgs: dict[str, str]) -> bool:  # type: ignore[no-untyped-def]
    """Whether the shared schema has these migrations, and each active org's these or newer ones."""
    from psycopg import sql

    done = set(session.execute("select app, name from public.django_migrations").fetchall())
    if not done.issuperset((app, name) for app, name in shared):
        return False
    for (schema,) in session.execute("select schema_name from public.orgs_org where status = 'active'").fetchall():
        newest = sql.SQL("select app, max(name) from {} group by app").format(
            sql.Identifier(schema, "django_migrations")
        )
        found = dict(session.execute(newest).fetchall())
        if any(found.get(app, "") < name for app, name in orgs.items()):
            return False
    return True


def asked() -> str:
    """Whether the tables are up to date, as /readyz says it. Costs a second of CPU."""
    import django

    django.setup()
    from goodput_site import health

    answer = health._asked(health._migrations)
    return "" if answer == "ok" else f"migrations: {answer}"


def names() -> dict[str, object]:
    """The newest migrations of this code: `shared` of all apps, `orgs` of those whose tables are an org's."""
    import django

    django.setup()
    from django.db.migrations.loader import MigrationLoader

    from orgs.schemas import code_version

    return {"shared": sorted(MigrationLoader(None).graph.leaf_nodes()), "orgs": code_version()}


def main() -> int:
    """Wait, telling each new reason once, and asking ever less often once Django has to be asked."""
    word = sys.argv[1]
    if word == "names":
        print(json.dumps(names()))
        return 0
    told, pause, deadline = "", PAUSE_SECONDS, time.monotonic() + float(os.environ.get("GOODPUT_WAIT_SECONDS", "300"))
    while reason := migrations() if word == "migrations" else services():
        if reason != told:
            print(f"waiting for {reason}", file=sys.stderr, flush=True)
            told = reason
        if time.monotonic() > deadline:
            print(f"gave up waiting for {reason}", file=sys.stderr)
            return 1
        if reason == "migrations: pending" and not NAMES.exists():
            pause = min(2 * pause, LONGEST_PAUSE_SECONDS)
        time.sleep(pause)
    return 0


if __name__ == "__main__":
    sys.exit(main())
