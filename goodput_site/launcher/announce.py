"""What a person is told when everything is up: where to go, what data this is, and for `lan` how to get in."""

import os
import socket
import subprocess
import sys
from collections.abc import Mapping

import psutil
import segno

from .processes import ROOT

OWNER = "owner@localhost"
SOURCES = {
    "nvml": "this machine's GPUs (cluster local-dev)",
    "sim": "SIMULATED: cluster `demo` is made up, and says so everywhere (no NVIDIA GPU was found or asked for)",
    "none": "no agent here (--no-agent)",
}


def announce(expose: str, url: str, port: int, source: str, env: Mapping[str, str]) -> None:
    """Print the addresses, the source of the data, and for others than `local` the owner's one-time login link."""
    say(f"\nGoodput is up:  {url}")
    say(f"  data    {SOURCES[source]}")
    if expose != "local":
        urls = [f"http://{address}:{port}/" for address in addresses()] if expose == "lan" else [url]
        for each in urls if expose == "lan" else ():
            say(f"  network {each}")
        _owner_link((urls or [url])[0], env)
    say("  stop    Ctrl-C, or ./goodput down")


def addresses() -> list[str]:
    """The IPv4 addresses of this machine's interfaces that are up, loopback left out."""
    up = {name for name, stats in psutil.net_if_stats().items() if stats.isup}
    return [
        entry.address
        for name, entries in psutil.net_if_addrs().items()
        for entry in entries
        if name in up and entry.family == socket.AF_INET and not entry.address.startswith("127.")
    ]


def _owner_link(base_url: str, env: Mapping[str, str]) -> None:
    command = [sys.executable, "manage.py", "create_user", "--email", OWNER, "--owner-of", "local"]
    made = subprocess.run(
        [*command, "--base-url", base_url.rstrip("/")], env=dict(env), cwd=ROOT, capture_output=True, text=True
    )
    links = [line.removeprefix("link: ") for line in made.stdout.splitlines() if line.startswith("link: ")]
    if not links:
        said = (made.stderr or made.stdout).strip().splitlines()[-1:] or ["it printed nothing"]
        say(f"  login   the link could not be made: {said[0]}")
        say(f"          try ./goodput manage create_user --email {OWNER} --owner-of local --base-url {base_url}")
        return
    say(f"  login   {links[0]}")
    say(f"          one-time, for the owner ({OWNER}); whoever opens it first sets the password")
    if sys.stdout.isatty() or os.environ.get("GOODPUT_QR"):
        segno.make(links[0], error="l").terminal(compact=True, border=2)


def say(line: str) -> None:
    """Print at once, also into a pipe; a closed terminal is no reason to stop."""
    try:
        print(line, flush=True)
    except OSError:
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115 - for the rest of this process
