"""A PostgreSQL and a Valkey for one command (a test run), gone when it ends.

Durability stays switched on as in production (the settings assert it); the data lies in memory where the machine
has a roomy /dev/shm, which makes it cheap.
"""

import contextlib
import fcntl
import os
import secrets
import shutil
import signal
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from .errors import LauncherError
from .postgres import Postgres
from .processes import free_port, spawn, stop, tail, wait_until
from .valkey import Valkey

PREFIX = "goodput-services-"
ROOM_NEEDED_BYTES = 2 << 30  # of /dev/shm, before it is used


@contextlib.contextmanager
def services() -> Iterator[dict[str, str]]:
    """Run both on free ports; yields the environment for a command that uses them."""
    with _folder() as home:
        postgres = Postgres(home, free_port(), secrets.token_urlsafe(24), options=("max_wal_size=256MB",))
        valkey = Valkey(home, free_port(), secrets.token_urlsafe(24))
        postgres.prepare(initdb_options=("--no-sync",))
        valkey.prepare()
        with running(postgres, home / "pg.log"), running(valkey, home / "valkey.log"):
            yield {**os.environ, "DATABASE_URL": postgres.url, "REDIS_URL": valkey.url}


@contextlib.contextmanager
def running(server: Postgres | Valkey, log: Path) -> Iterator[None]:
    """Run one server until the block ends. Raises LauncherError when it does not answer within 30 s."""
    account = getattr(server, "account", None)
    child = spawn(server.command, env=dict(os.environ), log=log, death_signal=server.death_signal, account=account)
    try:
        if not wait_until(server.is_ready, lambda: child.poll() is None, timeout_seconds=30):
            raise LauncherError(
                f"{type(server).__name__} did not start: {' / '.join(tail(log, 3))}", "See the log above and try again."
            )
        yield
    finally:
        stop(child, server.death_signal)


def run(argv: Sequence[str]) -> int:
    """Run a command with a throw-away pair; returns its exit status as a shell would give it."""
    with services() as env:
        child = spawn(argv, env=env, own_group=False)
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal sends it to the command as well, which decides
        for forwarded in (signal.SIGTERM, signal.SIGHUP):
            signal.signal(forwarded, lambda number, _frame: child.send_signal(number))
        status = child.wait()
    return status if status >= 0 else 128 - status


@contextlib.contextmanager
def _folder() -> Iterator[Path]:
    """A fresh folder that the database's account may enter; folders of killed runs are removed on the way."""
    base = Path(tempfile.gettempdir())
    memory = Path("/dev/shm")  # noqa: S108 - only a folder that mkdtemp makes there is used
    if os.access(memory, os.W_OK) and shutil.disk_usage(memory).free > ROOM_NEEDED_BYTES:
        base = memory
    for old in base.glob(f"{PREFIX}*"):
        if not _is_in_use(old):
            shutil.rmtree(old, ignore_errors=True)
    home = Path(tempfile.mkdtemp(prefix=PREFIX, dir=base))
    with (home / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        home.chmod(0o711)
        try:
            yield home
        finally:
            shutil.rmtree(home, ignore_errors=True)


def _is_in_use(home: Path) -> bool:
    if time.time() - home.stat().st_mtime < 10:
        return True  # perhaps just being made
    try:
        with (home / "lock").open() as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return True  # locked by a live run, or not ours, or not yet made
    return False
