"""An installation with the real launcher, databases and web server around a stand-in for the application."""

import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from goodput_site.launcher.processes import ROOT, free_port

STAND_INS = {
    "manage.py": """
import os, sys
if os.environ.get("PREPARE_FAILS"):
    sys.exit("no room on the table")
if sys.argv[1] == "prepare":
    open(sys.argv[3], "w").write("key")
elif sys.argv[1] == "offer_release":
    sys.exit(os.environ.get("RELEASE_FAILS"))
elif sys.argv[1] == "create_user":
    print("link: " + sys.argv[sys.argv.index("--base-url") + 1] + "/link/secret")
else:
    import psycopg
    print(sys.argv[1:], psycopg.connect(os.environ["DATABASE_URL"]).execute("SELECT 40 + 2").fetchone()[0])
""",
    "goodput_site/wsgi.py": """
def application(environ, start_response):
    start_response("200 OK", [("Content-Type", "text/plain")])
    return [b"ok"]
""",
    "celery/__init__.py": "",
    "celery/__main__.py": """
import sys, time
print("[tasks] Configuration -> ", sys.argv, flush=True)
while True:
    time.sleep(1)
""",
    "agent/__init__.py": "",
    "agent/__main__.py": """
import os, sys, time
if os.environ.get("AGENT_FAILS"):
    sys.exit("no driver today")
print("agent", sys.argv[1:], flush=True)
while True:
    time.sleep(1)
""",
}


class Installation:
    """A `var/` of its own, and stand-ins around a copy of the launcher, or the product itself.

    `up()` starts it and waits until it says that all is up.
    """

    def __init__(self, name: str, real: bool = False) -> None:
        # pytest's own folders can't be entered by the database's account
        self.folder = Path(tempfile.mkdtemp(prefix=f"goodput-test-{name}-"))
        self.folder.chmod(0o755)
        self.code = ROOT if real else self.folder
        self.port = free_port()
        self.output = self.folder / "output"
        unset = ("DATABASE_URL", "REDIS_URL", "DJANGO_SETTINGS_MODULE")
        self.env = {name: value for name, value in os.environ.items() if name not in unset}
        self.env["GOODPUT_VAR"] = str(self.folder / "var")
        if real:
            return
        for file, text in STAND_INS.items():
            (self.folder / file).parent.mkdir(parents=True, exist_ok=True)
            (self.folder / file).write_text(text)
        unneeded = shutil.ignore_patterns("tests", "__pycache__")
        shutil.copytree(ROOT / "goodput_site/launcher", self.folder / "goodput_site/launcher", ignore=unneeded)

    def command(self, *words: str) -> list[str]:
        return [sys.executable, "-m", "goodput_site.launcher", *words]

    def run(self, *words: str, **variables: str) -> subprocess.CompletedProcess[str]:
        """One command to its end; stdout and stderr together in `stdout`."""
        return subprocess.run(
            self.command(*words),
            cwd=self.code,
            env={**self.env, **variables},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=90,
        )

    def start(self, *flags: str, **variables: str) -> subprocess.Popen[bytes]:
        with self.output.open("wb") as output:
            self.supervisor = subprocess.Popen(
                self.command("up", "--port", str(self.port), "--source", "sim", *flags),
                cwd=self.code,
                env={**self.env, **variables},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
            )
        return self.supervisor

    def up(self, *flags: str, **variables: str) -> "Installation":
        self.start(*flags, **variables)
        pid = self.supervisor.pid
        eventually(lambda: self.status().get("pid") == pid and self.status()["ready"], self.output.read_text)
        return self

    def status(self) -> dict:
        try:
            return json.loads((self.folder / "var/run/status.json").read_text())
        except FileNotFoundError:
            return {}

    def part(self, name: str) -> dict:
        return next((part for part in self.status()["parts"] if part["name"] == name), {})

    def processes(self) -> list[psutil.Process]:
        """Every live process that was started for this installation, found by its environment."""
        found = []
        for process in psutil.process_iter():
            try:
                if process.environ().get("GOODPUT_VAR") == self.env["GOODPUT_VAR"]:
                    found.append(process)
            except psutil.Error:
                continue
        return [process for process in found if process.status() != psutil.STATUS_ZOMBIE]

    def close(self) -> None:
        while left := self.processes():
            for process in left:
                with contextlib.suppress(psutil.NoSuchProcess):
                    process.kill()
            psutil.wait_procs(left, timeout=5)
        shutil.rmtree(self.folder, ignore_errors=True)


def eventually(check: Callable[[], object], why: Callable[[], str] = str, seconds: float = 60) -> None:
    """Wait until `check` is true; fails with what `why` says."""
    deadline = time.monotonic() + seconds
    while not check():
        assert time.monotonic() < deadline, why()
        time.sleep(0.05)


@pytest.fixture
def installation() -> Iterator[Installation]:
    """One that the test starts."""
    with contextlib.closing(Installation("one")) as made:
        yield made


@pytest.fixture(scope="module")
def running() -> Iterator[Installation]:
    """One that runs through all tests of a module."""
    with contextlib.closing(Installation("all")) as made:
        yield made.up()
