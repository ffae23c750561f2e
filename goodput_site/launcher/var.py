"""`var/`: where one installation keeps its data, its logs, its secrets, and what runs now.

pg valkey   the databases          agent beat   their state
log         NAME.log, NAME.log.1   secrets      one file each, readable by the owner only
run         lock (held while a supervisor lives), status.json (what runs), env.json (what the children were given)
"""

import contextlib
import fcntl
import json
import os
import secrets
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from .errors import LauncherError
from .processes import ROOT, is_same_process

FOLDERS = ("log", "run", "secrets", "agent", "beat")
ROOM_NEEDED_BYTES = 300 << 20
LOG_LIMIT_BYTES = 8 << 20  # of one file; the one before it is kept


class AlreadyRunning(LauncherError):
    """Another supervisor, or a command that uses the database, holds the lock of this `var/`."""


class Var:
    """The folders of one installation; `make()` creates what is missing."""

    def __init__(self) -> None:
        self.path = Path(os.environ.get("GOODPUT_VAR") or ROOT / "var").resolve()  # an installed release links to it
        self.logs = self.path / "log"
        self.status_file = self.path / "run" / "status.json"
        self.env_file = self.path / "run" / "env.json"

    def make(self) -> None:
        """Create the folders. Raises OSError (the command line turns it into a sentence)."""
        if not self.path.exists():
            self.path.mkdir(mode=0o711, parents=True)  # the database's account passes through
        for name in FOLDERS:
            (self.path / name).mkdir(mode=0o700, exist_ok=True)
        free = shutil.disk_usage(self.path).free
        if free < ROOM_NEEDED_BYTES:
            raise LauncherError(
                f"The disk of {self.path} is full: {free >> 20} MB are free, {ROOM_NEEDED_BYTES >> 20} are needed.",
                "Free some space, or set GOODPUT_VAR to a folder on a larger disk.",
            )

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the lock for the block; raises AlreadyRunning. The kernel frees it however the holder ends."""
        with (self.path / "run" / "lock").open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise AlreadyRunning(
                    "Goodput is starting, stopping, or in use by another command in this folder.",
                    "./goodput status tells which; try again when it is done.",
                ) from None
            yield

    def secret(self, name: str) -> str:
        """A random secret of this installation, made at its first use and kept."""
        file = self.path / "secrets" / name
        if not file.exists():
            write_private(file, secrets.token_urlsafe(36))
        return file.read_text()

    def environment(self, expose: str, port: int, database_url: str, redis_url: str) -> dict[str, str]:
        """What the parts are told, on top of the environment that we were started with."""
        return {
            "DATABASE_URL": database_url,
            "REDIS_URL": redis_url,
            "GOODPUT_EXPOSE": expose,
            "GOODPUT_PORT": str(port),
            "GOODPUT_SECRET_KEY": os.environ.get("GOODPUT_SECRET_KEY") or self.secret("secret_key"),
            "GOODPUT_VAR": str(self.path),
            "PYTHONUNBUFFERED": "1",
        }

    def log(self, name: str) -> Path:
        return self.logs / f"{name}.log"

    def rotate_logs(self) -> None:
        """Move what a long log holds to NAME.log.1. The writers append, so emptying the file under them is safe."""
        for log in self.logs.glob("*.log"):
            if log.stat().st_size > LOG_LIMIT_BYTES:
                shutil.copyfile(log, log.with_suffix(".log.1"))
                os.truncate(log, 0)

    def write_status(self, status: dict[str, Any]) -> None:
        write_private(self.status_file, json.dumps(status, indent=1))

    def read_status(self) -> dict[str, Any]:
        """What the last supervisor wrote; empty when there was none or it ended well."""
        return _read_json(self.status_file)

    def running(self) -> dict[str, Any]:
        """The status of a supervisor that lives; empty when none does."""
        status = self.read_status()
        return status if status and is_same_process(status["pid"], status["started"]) else {}

    def read_env(self) -> dict[str, str]:
        """What the parts of the last supervisor were given."""
        return _read_json(self.env_file)


def _read_json(file: Path) -> dict[str, Any]:
    with contextlib.suppress(OSError, ValueError):
        found: dict[str, Any] = json.loads(file.read_text())
        return found
    return {}


def write_private(file: Path, text: str) -> None:
    """Replace a file in one step; only its owner may read it."""
    draft = file.with_name(f"{file.name}.new")
    with open(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as out:
        out.write(text)
    draft.replace(file)
