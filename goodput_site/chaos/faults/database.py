"""F06, F07: PostgreSQL dies, is out of connections, holds locks."""

from __future__ import annotations

import contextlib
import signal
import time

import psycopg

from goodput_site.chaos.faults.scene import Fault, Scene, Strike

LOCKED_S = 4.0


def kill_database(scene: Scene) -> Strike:
    """kill -9 of the postmaster and everything it started."""
    began = time.monotonic()
    pid = scene.product.pid("pg")
    children = [child.pid for child in scene.product.children("pg")]
    scene.product.kill(pid)
    for child in children:
        scene.product.kill(child)
    scene.killed("pg")
    scene.product.wait(lambda: scene.product._is_up_again("pg", pid), 90, "the database does not come back")
    return Strike(True, f"{1 + len(children)} processes", {"pg": time.monotonic() - began})


def kill_backend(scene: Scene) -> Strike:
    """kill -9 of one connection's process: the postmaster ends all of them and recovers."""
    with scene.product.database() as database:
        row = database.execute(
            "SELECT pid FROM pg_stat_activity WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()"
            " ORDER BY random() LIMIT 1"
        ).fetchone()
    hit = row is not None and scene.product.kill(row[0])
    if hit:
        scene.killed("pg backend")
    began = time.monotonic()
    scene.product.wait(lambda: _answers(scene), 60, "the database does not recover")
    return Strike(hit, "recovered", {"pg backend": time.monotonic() - began})


def stop_at_once(scene: Scene) -> Strike:
    """An `immediate` stop (SIGQUIT): no checkpoint, recovery at the next start."""
    seconds = scene.product.kill_part("pg", signal.SIGQUIT)
    scene.killed("pg")
    return Strike(True, "SIGQUIT", {"pg": seconds})


def hold_lock(scene: Scene) -> Strike:
    """Somebody holds the local org's inbox locked for some seconds."""
    with scene.product.database() as database:
        (schema,) = database.execute("SELECT schema_name FROM orgs_org WHERE slug = 'local'").fetchone() or ("",)
        with database.transaction():
            database.execute(f'LOCK TABLE "{schema}".fleet_inbox IN ACCESS EXCLUSIVE MODE')
            scene.pause(LOCKED_S)
    return Strike(bool(schema), f"{LOCKED_S:.0f} s")


def no_connections(scene: Scene) -> Strike:
    """All of PostgreSQL's connections are taken and those in use are cut, so that new ones are refused."""
    taken: list[psycopg.Connection] = []
    refused = False
    with contextlib.ExitStack() as stack:
        for _ in range(300):
            try:
                taken.append(stack.enter_context(contextlib.closing(scene.product.database())))
            except psycopg.OperationalError:
                refused = True
                break
        if taken:
            with contextlib.suppress(psycopg.Error):
                mine = [connection.info.backend_pid for connection in taken]
                taken[0].execute(
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                    " WHERE backend_type = 'client backend' AND NOT pid = ANY(%s)",
                    (mine,),
                )
        scene.pause(3)
    return Strike(refused, f"{len(taken)} taken")


def _answers(scene: Scene) -> bool:
    try:
        with scene.product.database() as database:
            return database.execute("SELECT 1").fetchone() == (1,)
    except psycopg.Error:
        return False


FAULTS = (
    Fault("F06", "kill -9 of PostgreSQL", kill_database),
    Fault("F06", "kill -9 of a connection's process", kill_backend),
    Fault("F06", "an immediate stop of PostgreSQL", stop_at_once),
    Fault("F07", "the inbox is locked", hold_lock),
    Fault("F07", "no connection is left", no_connections),
)
