"""A real granian on a free loopback port, and raw sockets to talk to it."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from fleet.tests.ingest.uploads import Answer

ROOT = Path(__file__).resolve().parents[3]
APPLICATION = "goodput_site.wsgi:application"
# As the launcher starts it (goodput_site/launcher/up.py).
OPTIONS = ["--interface", "wsgi", "--host", "127.0.0.1", "--no-ws", "--workers", "1", "--blocking-threads", "4"]


def free_port() -> int:
    """A port of 127.0.0.1 that nothing listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Server:
    """granian with an application of ours, in a process group of its own."""

    def __init__(self, log: Path, application: str = APPLICATION, **env: str) -> None:
        self.log = log
        self.port = free_port()
        self._argv = [sys.executable, "-m", "granian", *OPTIONS, "--port", str(self.port), application]
        self._env = {
            **os.environ,
            "DJANGO_SETTINGS_MODULE": "goodput_site.settings",
            "GOODPUT_SECRET_KEY": "a-secret-of-this-test-run-and-no-other",
            "GOODPUT_KEY_CACHE_SECONDS": "1",
            "GOODPUT_PORT": str(self.port),
            **env,
        }
        self.process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Server:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        """Start it and wait until it answers."""
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                self._argv, cwd=ROOT, env=self._env, stdout=log, stderr=log, start_new_session=True
            )
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline:
            assert self.process.poll() is None, self.log.read_text()
            with contextlib.suppress(OSError):
                if self.talk(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")[0].status == 200:
                    return
            time.sleep(0.05)
        raise AssertionError(f"the server did not start: {self.log.read_text()}")

    def stop(self) -> None:
        """End the whole group, as granian's worker outlives a killed main process."""
        if self.process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
            self.process = None

    def connect(self, timeout: float = 10) -> socket.socket:
        """A new connection."""
        return socket.create_connection(("127.0.0.1", self.port), timeout=timeout)

    def talk(self, data: bytes, linger: float = 0.0) -> list[Answer]:
        """Send bytes on a fresh connection; every response that comes until it closes or `linger` s after the first."""
        with self.connect() as connection:
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                connection.sendall(data)
            return answers(connection, linger)


def answers(connection: socket.socket, linger: float = 0.0) -> list[Answer]:
    """The responses on a connection: the first within its timeout, more only within `linger` seconds after it."""
    buffer, found = b"", []
    while True:
        answer, buffer = _first(buffer)
        if answer is not None:
            found.append(answer)
            if not linger:
                return found
            connection.settimeout(linger)
            continue
        try:
            data = connection.recv(65536)
        except (TimeoutError, ConnectionResetError):
            return found
        if not data:
            return found
        buffer += data


def _first(buffer: bytes) -> tuple[Answer | None, bytes]:
    """(the first complete response, what follows it)."""
    head, end, rest = buffer.partition(b"\r\n\r\n")
    if not end:
        return None, buffer
    status, *lines = head.decode("latin-1").split("\r\n")
    headers = {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    if headers.get("transfer-encoding") == "chunked":
        body, rest = _unchunked(rest)
    else:
        length = int(headers.get("content-length", "0"))
        body, rest = (rest[:length], rest[length:]) if len(rest) >= length else (None, rest)
    if body is None:
        return None, buffer
    return Answer(int(status.split()[1]), headers, body), rest


def _unchunked(rest: bytes) -> tuple[bytes | None, bytes]:
    """(the body, what follows it), or (None, …) while chunks are missing."""
    body = b""
    while True:
        size, end, after = rest.partition(b"\r\n")
        if not end or len(after) < int(size, 16) + 2:
            return None, rest
        body, rest = body + after[: int(size, 16)], after[int(size, 16) + 2 :]
        if int(size, 16) == 0:
            return body, rest


def request(body: bytes, token: str | None = None, path: str = "/v1/batches", **headers: Any) -> bytes:
    """The bytes of an upload as an agent sends it; `Name_With_Underscores=None` leaves a header out."""
    lines: dict[str, Any] = {
        "Host": "localhost",
        "Content-Type": "application/msgpack",
        "Content-Encoding": "gzip",
        "Content-Length": len(body),
    }
    if token:
        lines["Authorization"] = f"Bearer {token}"
    lines.update({name.replace("_", "-"): value for name, value in headers.items()})
    head = [f"POST {path} HTTP/1.1", *(f"{name}: {value}" for name, value in lines.items() if value is not None)]
    return "\r\n".join(head).encode("latin-1") + b"\r\n\r\n" + body
