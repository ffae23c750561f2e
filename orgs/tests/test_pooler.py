"""The start-up check of pooling against PgBouncer itself: per transaction it is refused, per session it passes."""

from __future__ import annotations

import os
import pwd
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import pytest

pytestmark = [pytest.mark.full, pytest.mark.django_db(transaction=True)]
ROOT = Path(__file__).resolve().parents[2]
PGBOUNCER = shutil.which("pgbouncer", path=os.environ["PATH"] + ":/usr/sbin")


@contextmanager
def pooler(database_url: str, mode: str) -> Iterator[str]:
    """The URL of a PgBouncer in this mode before the database. It refuses to run as root, so `nobody` runs it then."""
    assert PGBOUNCER is not None
    there = urlsplit(database_url)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "users").write_text(f'"{there.username}" "{there.password or ""}"\n')
        (folder / "ini").write_text(
            f"[databases]\n* = host={there.hostname} port={there.port}\n"
            f"[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {port}\nunix_socket_dir =\nauth_type = plain\n"
            f"auth_file = {folder / 'users'}\npool_mode = {mode}\n"
            f"ignore_startup_parameters = extra_float_digits,options\n"
        )
        user = []
        if os.geteuid() == 0:
            user = ["-u", "nobody"]
            for path in (folder, *folder.iterdir()):
                os.chown(path, pwd.getpwnam("nobody").pw_uid, -1)
        running = subprocess.Popen([PGBOUNCER, "-q", *user, str(folder / "ini")], stderr=subprocess.PIPE)
        try:
            until = time.monotonic() + 20
            while socket.socket().connect_ex(("127.0.0.1", port)):
                assert running.poll() is None, running.stderr and running.stderr.read()
                assert time.monotonic() < until
                time.sleep(0.1)
            netloc = there.netloc.rpartition("@")[0] + f"@127.0.0.1:{port}"
            yield urlunsplit(there._replace(netloc=netloc))
        finally:
            running.terminate()
            running.communicate(timeout=20)


@pytest.mark.skipif(PGBOUNCER is None, reason="no pgbouncer here: apt-get install pgbouncer")
@pytest.mark.parametrize(("mode", "is_refused"), [("transaction", True), ("statement", True), ("session", False)])
def test_only_pooling_per_session_may_start(mode: str, is_refused: bool, database_url: str) -> None:
    with pooler(database_url, mode) as url:
        environ = {**os.environ, "DATABASE_URL": url, "DJANGO_SETTINGS_MODULE": "goodput_site.settings"}
        command = [sys.executable, "manage.py", "check", "--database", "default", "--tag", "database"]
        done = subprocess.run(command, env=environ, capture_output=True, text=True, cwd=ROOT)
    assert ("orgs.E001" in done.stderr) is is_refused, done.stderr
    assert (done.returncode != 0) is is_refused
