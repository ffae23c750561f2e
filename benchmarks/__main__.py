"""`./goodput bench NAME [--rounds N] [--minutes M] [--quick] [--json FILE] [--markdown FILE]`: one benchmark or `all`.

Each benchmark runs in a process and on databases of its own, so that none measures what another left behind.
`--minutes` is the time for all of them: each gets its share of what is left and begins no round after it, so fewer
rounds may be kept than asked for, which the table says. One that does not end long after its share is stopped and told
as failed, and the others go on. `-` for a file is standard output.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from benchmarks import common

BENCHMARKS = (
    *(
        "payload",
        "ingest",
        "sustained",
        "storm",
        "fold",
        "refold",
        "store",
        "read",
        "pages",
        "growth",
        "report",
        "pack",
    ),
    *("agent", "peers"),
)
NEEDS_SERVICES = set(BENCHMARKS) - {"payload", "fold", "report", "agent"}
ALL_MINUTES, QUICK_MINUTES = 25, 12
LEAST_S = 20.0  # of a benchmark's share
GRACE, GRACE_S = 2, 240  # a round that was begun in time, and what must be made before the first, may take so much more
INSIDE = "GOODPUT_BENCH"  # set in the process that measures


def main() -> int:
    """Run the benchmarks named on the command line; the exit status."""
    parser = argparse.ArgumentParser(prog="goodput bench", description=__doc__)
    parser.add_argument("name", choices=[*BENCHMARKS, "all"])
    parser.add_argument("--rounds", type=int, default=7, help="the first is thrown away")
    parser.add_argument("--minutes", type=float, default=ALL_MINUTES, help="for all of `all` (default: %(default)s)")
    parser.add_argument("--quick", action="store_true", help=f"the same as --rounds 3 --minutes {QUICK_MINUTES}")
    parser.add_argument("--json", type=Path, help="also write the figures here")
    parser.add_argument("--markdown", type=Path, help="also write the tables here")
    options = parser.parse_args()
    if options.rounds < 2:
        parser.error("--rounds: 2 at least, for the first is thrown away")
    if INSIDE in os.environ:
        return _measure(options.name, options.rounds, Path(os.environ[INSIDE]))
    if options.quick:
        options.rounds, options.minutes = 3, QUICK_MINUTES
    found: dict[str, Any] = {"machine": machine(), "figures": {}, "seconds": {}, "failed": []}
    tables = []
    names = BENCHMARKS if options.name == "all" else (options.name,)
    end = time.time() + options.minutes * 60
    for number, name in enumerate(names):
        share = max(LEAST_S, (end - time.time()) / (len(names) - number)) if len(names) > 1 or options.quick else None
        with tempfile.TemporaryDirectory(prefix="goodput-bench-") as folder:
            out, began = Path(folder) / "out.json", time.time()
            status = _apart(name, options.rounds, out, share)
            found["seconds"][name] = round(time.time() - began, 1)
            if status:
                found["failed"].append(name)
            if len(names) > 1:
                print(
                    f"{number + 1} of {len(names)}: {name}, {found['seconds'][name]:.0f} s, status {status}", flush=True
                )
            if out.exists():
                answer = json.loads(out.read_text())
                found["figures"][name] = answer["figures"]
                tables += answer["markdown"]
    if options.json:
        _write(options.json, json.dumps(found, indent=1) + "\n")
    if options.markdown:
        head = f"Measured on {found['machine']['at']}, {found['machine']['cores']} cores, {found['machine']['what']}.\n"
        _write(options.markdown, "\n".join([head, *tables]))
    if found["failed"]:
        print(f"failed: {', '.join(found['failed'])}")
    return 1 if found["failed"] else 0


def machine() -> dict[str, Any]:
    """What the figures were made on."""
    what = f"{platform.system()} {platform.machine()}, Python {platform.python_version()}"
    return {"at": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"), "cores": os.cpu_count(), "what": what}


def _apart(name: str, rounds: int, out: Path, share_s: float | None) -> int:
    """Run one benchmark in a process of its own; its exit status, 124 where it had to be stopped."""
    command = [sys.executable, "-m", "benchmarks", name, "--rounds", str(rounds)]
    if name in NEEDS_SERVICES:
        command = [sys.executable, "-m", "goodput_site.launcher", "with-services", "--", *command]
    env = {**os.environ, INSIDE: str(out)}
    if share_s is not None:
        env["GOODPUT_BENCH_UNTIL"] = str(time.time() + share_s)
    process = subprocess.Popen(command, env=env)
    try:
        return process.wait(None if share_s is None else share_s * GRACE + GRACE_S)
    except subprocess.TimeoutExpired:
        print(f"{name} does not come to an end and is stopped", flush=True)
        return 124
    finally:
        if process.poll() is None:
            process.terminate()
            process.wait(60)


def _measure(name: str, rounds: int, out: Path) -> int:
    figures = importlib.import_module(f"benchmarks.{name}").run(rounds)
    out.write_text(json.dumps({"figures": figures, "markdown": [table.markdown() for table in common.shown]}))
    return 0


def _write(path: Path, text: str) -> None:
    if str(path) == "-":
        sys.stdout.write(text)
    else:
        path.write_text(text)


if __name__ == "__main__":
    sys.exit(main())
