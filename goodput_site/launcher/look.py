"""`status`, `logs` and `down`: looking at a running installation from another terminal, and ending it."""

import os
import signal
import sys
import time
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from .errors import LauncherError
from .processes import http_get, is_same_process, memory_bytes
from .var import Var

DOWN_SECONDS = 40  # the supervisor gives its parts 10 s, twice


def status() -> int:
    """Print the parts and the server's health; returns 0 when all is up and healthy, else 1."""
    var = Var()
    now = var.running()
    if not now:
        print("Goodput is not running.  Start it with ./goodput up")
        return 1
    print(f"{'NAME':<9}{'STATE':<10}{'PID':>8}  {'SINCE':<20}{'RESTARTS':>8}{'MEMORY':>10}")
    for part in now["parts"]:
        print(_row(part))
    print()
    healthy = now["ready"] and all(part["state"] in ("up", "done") for part in now["parts"])
    for path in ("/healthz", "/readyz"):
        code, body = http_get(now["port"], path)
        healthy = healthy and code == 200
        print(f"{path:<10} {code or 'no answer'}  {' '.join(body.split())[:300]}")
    print(f"\n{now['url']}  ({now['expose']})")
    return 0 if healthy else 1


def _row(part: dict[str, Any]) -> str:
    since = datetime.fromtimestamp(part["since"]).strftime("%Y-%m-%d %H:%M:%S") if part["since"] else "-"  # noqa: DTZ006
    memory = f"{memory_bytes(part['pid']) / 1e6:.0f} MB" if part["pid"] else "-"
    line = f"{part['name']:<9}{part['state']:<10}{part['pid'] or '-':>8}  {since:<20}{part['restarts']:>8}{memory:>10}"
    return f"{line}\n         {part['message']}" if part["message"] else line


def down() -> int:
    """Stop everything and wait for its end; returns 0 also when nothing ran."""
    now = Var().running()
    if not now:
        print("Goodput is not running.")
        return 0
    os.kill(now["pid"], signal.SIGTERM)
    for _ in range(DOWN_SECONDS * 10):
        if not is_same_process(now["pid"], now["started"]):
            print("Stopped.")
            return 0
        time.sleep(0.1)
    raise LauncherError(f"The supervisor (pid {now['pid']}) did not end within {DOWN_SECONDS} s.", "See ./goodput logs")


def logs(arguments: Sequence[str]) -> int:
    """Print the last lines of all logs, or of those named; with -f go on printing what is added."""
    var = Var()
    follow = bool({"-f", "--follow"} & set(arguments))
    known = sorted(file.stem for file in var.logs.glob("*.log"))
    names = [word for word in arguments if not word.startswith("-")] or known
    if missing := [name for name in names if name not in known]:
        raise LauncherError(f"There is no log '{missing[0]}'.", f"There are: {', '.join(known) or 'none yet'}")
    width = max(map(len, names), default=0) if len(names) > 1 else 0
    places = dict.fromkeys(names, 0)
    many = 200 if len(names) == 1 else 20
    while True:
        for name in names:
            places[name] = _show(var.log(name), places[name], many, f"{name:<{width}}  " if width else "")
        if not follow:
            return 0
        time.sleep(0.3)


def _show(log: Path, place: int, many: int, prefix: str) -> int:
    """Print what stands after `place` (at the start only the last lines); returns where that ends."""
    with log.open("rb") as file:
        end = file.seek(0, os.SEEK_END)
        if end < place:  # it was rotated
            place = 0
        file.seek(place)
        lines = file.read(end - place).decode(errors="replace").splitlines()
    for line in lines if place else lines[-many:]:
        sys.stdout.write(f"{prefix}{line}\n")
    sys.stdout.flush()
    return end
