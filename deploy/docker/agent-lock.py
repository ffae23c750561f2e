"""Prints of a lock file the packages that go into the agent's archive. `agent-lock.py requirements.lock`."""

import re
import sys

BUNDLED = ("msgpack", "nvidia-ml-py")


def only(text: str, names: tuple[str, ...]) -> str:
    """The lock file's lines of these packages, hashes included."""
    kept, keep = [], False
    for line in text.splitlines():
        if match := re.match(r"([A-Za-z0-9._-]+)(\[[^]]*\])?==", line):
            keep = match[1].lower() in names
        if keep and not line.lstrip().startswith("#"):
            kept.append(line)
    return "\n".join(kept) + "\n"


if __name__ == "__main__":
    with open(sys.argv[1]) as lock:
        sys.stdout.write(only(lock.read(), BUNDLED))
