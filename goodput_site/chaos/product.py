"""An installation of its own to be broken: the launcher with everything but an agent, in a folder that is removed."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import psycopg

from goodput_site.launcher.processes import ROOT, free_port, http_get, memory_bytes

PARTS = ("web", "worker", "beat", "valkey", "pg")
SECOND_ORG = "second"
NODE_QUOTA = "300,30000000"  # the default, thirty times as fast, as the agents' clock is


class ChaosError(Exception):
    """The run itself went wrong: nothing can be said of the product. The message says what and where to look."""


class Product:
    """The product under test. `start()` returns when everything is up."""

    def __init__(self, extra_env: dict[str, str] | None = None) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="goodput-chaos-"))
        self.folder.chmod(0o711)  # the database's account passes through
        self.port = free_port()
        self.var = self.folder / "var"
        unset = ("DATABASE_URL", "REDIS_URL", "DJANGO_SETTINGS_MODULE", "GOODPUT_FAILPOINT")
        self.env = {name: value for name, value in os.environ.items() if name not in unset}
        self.env |= {"GOODPUT_VAR": str(self.var), "GOODPUT_QUOTA_NODE": NODE_QUOTA, **(extra_env or {})}
        self._supervisor: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Starts it and makes the second org with its key."""
        command = [sys.executable, "-m", "goodput_site.launcher", "up", "--no-agent", "--port", str(self.port)]
        with (self.folder / "up.log").open("wb") as log:
            self._supervisor = subprocess.Popen(
                command, cwd=ROOT, env=self.env, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT
            )
        self.wait(lambda: self.status().get("ready", False), 120, "it does not start: see up.log")
        self.manage("create_org", SECOND_ORG, "--name", "The second customer")
        self.key()

    def key(self) -> None:
        """A new ingest key of the second org, in place of the one before."""
        name = f"chaos {time.time():.3f}"
        said = self.manage("create_key", "--org", SECOND_ORG, "--name", name, "--scope", "ingest")
        token = next(line.split()[1] for line in said.splitlines() if line.startswith("key:"))
        draft = self.token_file.with_suffix(".new")
        with open(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as out:
            out.write(token)
        draft.replace(self.token_file)

    @property
    def token_file(self) -> Path:
        """Where the second org's key stands."""
        return self.folder / "second.token"

    def manage(self, *words: str, seconds: float = 120) -> str:
        """What a management command printed. Raises ChaosError when it fails."""
        done = subprocess.run(
            [sys.executable, "manage.py", *words],
            cwd=ROOT, env={**self.env, **self.contract()}, stdin=subprocess.DEVNULL,
            capture_output=True, text=True, timeout=seconds,
        )  # fmt: skip
        if done.returncode:
            raise ChaosError(f"manage.py {words[0]} failed: {done.stderr.strip().splitlines()[-1:]}")
        return done.stdout

    def agent_once(self, node: str) -> None:
        """One sample of a node that was never seen before, by the agent's own command."""
        home = self.folder / "once"
        home.mkdir(mode=0o700, exist_ok=True)
        command = [sys.executable, "-m", "agent", "once", "--source", "sim", "--cluster", "fresh", "--node-id", node]
        command += ["--endpoint", f"http://127.0.0.1:{self.port}/v1/batches", "--state-dir", str(home)]
        done = subprocess.run(command, cwd=ROOT, env=self.env, capture_output=True, text=True, timeout=60)
        if done.returncode:
            raise ChaosError(f"a fresh agent cannot report: {done.stderr[-300:]}")

    def contract(self) -> dict[str, str]:
        """What the launcher tells its parts: DATABASE_URL and the rest."""
        found: dict[str, str] = json.loads((self.var / "run" / "env.json").read_text())
        return found

    def status(self) -> dict[str, Any]:
        """status.json of the supervisor; empty while there is none."""
        with contextlib.suppress(OSError, ValueError):
            found: dict[str, Any] = json.loads((self.var / "run" / "status.json").read_text())
            return found
        return {}

    def part(self, name: str) -> dict[str, Any]:
        """One part's line of status.json."""
        return next((part for part in self.status().get("parts", []) if part["name"] == name), {})

    def pid(self, name: str) -> int:
        """The pid of a part, waited for while it is being restarted."""
        self.wait(lambda: self.part(name).get("pid"), 60, f"{name} has no process")
        return int(self.part(name)["pid"])

    def children(self, name: str) -> list[psutil.Process]:
        """The processes that a part has started."""
        with contextlib.suppress(psutil.Error):
            return list(psutil.Process(self.pid(name)).children(recursive=True))
        return []

    def kill(self, pid: int, with_signal: signal.Signals = signal.SIGKILL) -> bool:
        """Whether the signal found its process."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, with_signal)
            return True
        return False

    def kill_part(self, name: str, with_signal: signal.Signals = signal.SIGKILL) -> float:
        """Ends a part's main process; seconds until it is up again."""
        pid, began = self.pid(name), time.monotonic()
        self.kill(pid, with_signal)
        self.wait(lambda: self._is_up_again(name, pid), 180, f"{name} does not come back")
        return time.monotonic() - began

    def _is_up_again(self, name: str, pid: int) -> bool:
        now = self.part(name)
        return now.get("state") == "up" and now.get("pid") not in (None, pid)

    def is_well(self) -> bool:
        """Whether /readyz says that everything works."""
        return http_get(self.port, "/readyz")[0] == 200

    def database(self) -> psycopg.Connection[Any]:
        """A connection of its own, autocommit. Raises psycopg.OperationalError while there is no database."""
        return psycopg.connect(self.contract()["DATABASE_URL"], autocommit=True, connect_timeout=5)

    def memory(self) -> dict[str, int]:
        """Bytes that each part and its children hold."""
        return {part["name"]: memory_bytes(part["pid"]) for part in self.status().get("parts", []) if part["pid"]}

    def wait(self, check: Callable[[], object], seconds: float, why: str) -> None:
        """Until `check` is true. Raises ChaosError with `why` when it stays false."""
        deadline = time.monotonic() + seconds
        while not check():
            if self._supervisor is not None and self._supervisor.poll() is not None:
                said = (self.folder / "up.log").read_text()[-600:]
                raise ChaosError(f"the launcher ended with {self._supervisor.returncode}: {said}")
            if time.monotonic() > deadline:
                raise ChaosError(why)
            time.sleep(0.05)

    def close(self, keep: bool = False) -> None:
        """Takes everything down and, unless `keep`, away."""
        if self._supervisor is not None and self._supervisor.poll() is None:
            self._supervisor.send_signal(signal.SIGINT)
            try:
                self._supervisor.wait(40)
            except subprocess.TimeoutExpired:
                self._supervisor.kill()
                self._supervisor.wait()
        if not keep:
            shutil.rmtree(self.folder, ignore_errors=True)
