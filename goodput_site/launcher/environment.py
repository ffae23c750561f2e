"""Makes .venv from a lock file with hashes. Run by ./goodput with the machine's own Python: stdlib only.

A stamp file in .venv says that an installation is complete, and from which lock. It is removed before anything is
touched, so whatever interrupts an installation, the next run sees no stamp and starts over.
"""

import fcntl
import os
import platform
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
VENV = ROOT / ".venv"
PYTHON = "{}.{}".format(*sys.version_info)
STAMP = VENV / "goodput-stamp"
ROOM_NEEDED_BYTES = {"base": 600 << 20, "dev": 1000 << 20}
PIP = (
    *("-m", "pip", "--disable-pip-version-check", "--no-input", "--retries", "2", "--timeout", "20"),
    *("install", "--require-hashes", "--only-binary=:all:"),
)

# The first pattern that is found in pip's output explains the failure.
REASONS = (
    (
        r"No space left on device|Errno 28",
        "The disk is full.",
        "Free about 1 GB on the disk of {root}, then run this again.",
    ),
    (
        r"DO NOT MATCH THE HASHES",
        "A downloaded package is not the one that the lock file names.",
        "Run this again; if it stays so, the package index or a proxy on the way serves other files.",
    ),
    (
        r"NewConnectionError|NameResolutionError|ConnectTimeoutError|ReadTimeoutError|ProxyError|SSLError"
        r"|Failed to establish|name resolution|timed out|Connection refused|IncompleteRead|ProtocolError",
        "The package index can't be reached.",
        "Check the network (or PIP_INDEX_URL, HTTPS_PROXY), then run this again.",
    ),
    (
        r"No matching distribution found for (?P<what>\S+)",
        "There is no ready-made {what} for this machine ({machine}, Python {python}).",
        "Goodput's server runs on Linux (glibc 2.28 or newer) and macOS; on x86-64 and arm64.",
    ),
    (
        r"Permission denied|Errno 13|Read-only file system|Errno 30",
        "{root}/.venv can't be written.",
        "Run this as the owner of the folder, or clone to a folder of yours.",
    ),
)


class InstallError(Exception):
    """What went wrong in a sentence, then what to do."""


def main(kind: str, lock_name: str, lock_sum: str) -> None:
    """Bring .venv to the state of the lock file. Raises InstallError; a concurrent run waits for its turn."""
    stamp = f"{kind} {PYTHON} {lock_sum}"
    with (ROOT / "requirements.lock").open() as lock:  # one queue for both kinds
        wait_for_turn(lock.fileno())
        if read_stamp() == stamp:
            return  # the run before us has just done it
        if shutil.disk_usage(ROOT).free < ROOM_NEEDED_BYTES[kind]:
            raise explain("No space left on device")
        usable = read_stamp() and venv_is_of_this_python()
        STAMP.unlink(missing_ok=True)
        if not usable:
            say(f"Making a virtual environment in .venv with Python {PYTHON} ...")
            shutil.rmtree(VENV, ignore_errors=True)
            run([sys.executable, "-m", "venv", VENV])
        install(lock_name)
        draft = STAMP.with_suffix(".new")
        draft.write_text(stamp)
        draft.replace(STAMP)


def wait_for_turn(lock: int) -> None:
    """Take the lock file's flock. Our children inherit it, so that it lasts as long as any of them works."""
    os.set_inheritable(lock, True)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        say("Another run is installing; waiting for it ...")
        fcntl.flock(lock, fcntl.LOCK_EX)


def read_stamp() -> str:
    """What .venv holds completely; empty when there is none or an installation was cut short."""
    try:
        return STAMP.read_text()
    except OSError:
        return ""


def venv_is_of_this_python() -> bool:
    test = f"import sys, pip; sys.exit('%d.%d' % sys.version_info[:2] != '{PYTHON}')"
    return (VENV / "bin/python").exists() and subprocess.run([VENV / "bin/python", "-Ic", test]).returncode == 0


def install(lock_name: str) -> None:
    """Run pip, with a line of progress now and then."""
    total = len(re.findall(r"^[a-z0-9].*==", (ROOT / lock_name).read_text(), re.MULTILINE))
    say(f"Installing up to {total} packages from {lock_name}, each checked against its hash ...")
    seen = 0

    def progress(line: str) -> None:
        nonlocal seen
        if line.startswith(("Collecting ", "Requirement already satisfied: ")):
            seen += 1
            if seen % 10 == 0:
                say(f"  {seen} packages")
        elif line.startswith("Installing collected packages"):
            say("  all fetched; unpacking them, which takes the longest ...")

    run([VENV / "bin/python", "-I", *PIP, "-r", ROOT / lock_name], progress)


def run(argv: Sequence[str | Path], on_line: Callable[[str], None] = lambda line: None) -> None:
    """Run a step; raises InstallError with the reason that its output gives."""
    said = []
    with subprocess.Popen(
        argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, close_fds=False
    ) as step:
        try:
            for line in step.stdout or ():
                said.append(line)
                on_line(line)
        except KeyboardInterrupt:
            step.terminate()
            raise
    if step.returncode:
        raise explain("".join(said))


def explain(output: str) -> InstallError:
    """The error for a person, from what pip or venv printed."""
    facts = {"root": ROOT, "python": PYTHON, "machine": f"{platform.system()} {platform.machine()}"}
    for pattern, sentence, remedy in REASONS:
        if found := re.search(pattern, output):
            facts |= found.groupdict()
            return InstallError(sentence.format(**facts), remedy.format(**facts))
    last = [line for line in output.splitlines() if line.strip()][-3:]
    return InstallError("The packages could not be installed.", *last)


def say(line: str) -> None:
    print(line, flush=True)


def interrupted(*_: object) -> None:
    raise KeyboardInterrupt


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, interrupted)
    try:
        main(*sys.argv[1:])
    except KeyboardInterrupt:
        say("\nStopped before the installation was complete; the next run starts it over.")
        sys.exit(130)
    except (InstallError, OSError) as error:
        sentence, *remedy = (error if isinstance(error, InstallError) else explain(str(error))).args
        sys.exit("\n  ".join([f"goodput: {sentence}", *remedy]))
