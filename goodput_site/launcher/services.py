"""PostgreSQL and Valkey for one command: a throw-away pair (a test run), or this installation's own while it is down.

Durability stays switched on for the throw-away pair too (the settings assert it); its data lies in memory where the
machine has a roomy /dev/shm, which makes it cheap.
"""

import contextlib
import fcntl
import os
import secrets
import shutil
import signal
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from .errors import LauncherError
from .postgres import Postgres
from .processes import free_port, spawn, stop, tail, wait_until
from .valkey import Valkey
from .var import Var

PREFIX = "goodput-services-"
ROOM_NEEDED_BYTES = 2 << 30  # of /dev/shm, before it is used


@contextlib.contextmanager
def throwaway() -> Iterator[dict[str, str]]:
    """A fresh pair on free ports; yields what a command needs to use it."""
    with _folder() as home:
        postgres = Postgres(home, free_port(), secrets.token_urlsafe(24), options=("max_wal_size=256MB",))
        valkey = Valkey(home, free_port(), secrets.token_urlsafe(24))
        postgres.prepare(initdb_options=("--no-sync",))
        valkey.prepare()
        with running(postgres, home / "pg.log"), running(valkey, home / "valkey.log"):
            yield {"DATABASE_URL": postgres.url, "REDIS_URL": valkey.url}


@contextlib.contextmanager
def of_installation(var: Var) -> Iterator[dict[str, str]]:
    """What a command needs to use this installation's databases; they are started for it when nothing runs."""
    if var.running():
        yield var.read_env()
        return
    var.make()
    with var.locked(), contextlib.ExitStack() as stack:
        postgres, valkey = databases(var)
        for server in (postgres, valkey):
            if server:
                server.prepare()
                stack.enter_context(running(server, var.log(server.name)))
        yield var.environment("local", 8080, *urls(postgres, valkey))


def databases(var: Var) -> tuple[Postgres | None, Valkey | None]:
    """The installation's own servers on free ports; None for one that DATABASE_URL or REDIS_URL replaces."""
    postgres = valkey = None
    if not os.environ.get("DATABASE_URL"):
        postgres = Postgres(var.path, free_port(), var.secret("database_password"))
    if not os.environ.get("REDIS_URL"):
        valkey = Valkey(var.path, free_port(), var.secret("valkey_password"))
    return postgres, valkey


def urls(postgres: Postgres | None, valkey: Valkey | None) -> tuple[str, str]:
    """DATABASE_URL and REDIS_URL, ours or the caller's."""
    return (
        postgres.url if postgres else os.environ["DATABASE_URL"],
        valkey.url if valkey else os.environ["REDIS_URL"],
    )


@contextlib.contextmanager
def running(server: Postgres | Valkey, log: Path) -> Iterator[None]:
    """Run one server until the block ends. Raises LauncherError when it does not answer within 30 s."""
    child = spawn(server.command, env=server.env, log=log, death_signal=server.stop_signal, account=server.account)
    try:
        if not wait_until(server.is_ready, lambda: child.poll() is None, timeout_seconds=30):
            raise LauncherError(f"{server.name} did not start: {' / '.join(tail(log, 3))}")
        yield
    finally:
        stop(child, server.stop_signal)


def run(argv: Sequence[str], env: Mapping[str, str]) -> int:
    """Run a command in the foreground with `env` added; returns its exit status as a shell would give it."""
    child = spawn(argv, env={**os.environ, **env}, own_group=False)
    # A terminal sends SIGINT to the command as well, and the command decides; the others are sent to us alone.
    before = {signal.SIGINT: signal.signal(signal.SIGINT, lambda *_: None)}
    for number in (signal.SIGTERM, signal.SIGHUP):
        before[number] = signal.signal(number, lambda number, _frame: child.send_signal(number))
    try:
        status = child.wait()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
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
