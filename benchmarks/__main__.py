"""`./goodput bench NAME [--rounds N] [--json FILE] [--markdown FILE]`: one benchmark or `all`, databases included.

Each benchmark runs in a process and on databases of its own, so that none measures what another left behind. `-` for a
file is standard output.
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
INSIDE = "GOODPUT_BENCH"  # set in the process that measures


def main() -> int:
    """Run the benchmarks named on the command line; the exit status."""
    parser = argparse.ArgumentParser(prog="goodput bench", description=__doc__)
    parser.add_argument("name", choices=[*BENCHMARKS, "all"])
    parser.add_argument("--rounds", type=int, default=7, help="the first is thrown away")
    parser.add_argument("--json", type=Path, help="also write the figures here")
    parser.add_argument("--markdown", type=Path, help="also write the tables here")
    options = parser.parse_args()
    if INSIDE in os.environ:
        return _measure(options.name, options.rounds, Path(os.environ[INSIDE]))
    found: dict[str, Any] = {"machine": machine(), "figures": {}}
    tables = []
    failed = 0
    for name in BENCHMARKS if options.name == "all" else (options.name,):
        with tempfile.TemporaryDirectory(prefix="goodput-bench-") as folder:
            out = Path(folder) / "out.json"
            failed |= _apart(name, options.rounds, out)
            if out.exists():
                answer = json.loads(out.read_text())
                found["figures"][name] = answer["figures"]
                tables += answer["markdown"]
    if options.json:
        _write(options.json, json.dumps(found, indent=1) + "\n")
    if options.markdown:
        head = f"Measured on {found['machine']['at']}, {found['machine']['cores']} cores, {found['machine']['what']}.\n"
        _write(options.markdown, "\n".join([head, *tables]))
    return failed


def machine() -> dict[str, Any]:
    """What the figures were made on."""
    what = f"{platform.system()} {platform.machine()}, Python {platform.python_version()}"
    return {"at": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"), "cores": os.cpu_count(), "what": what}


def _apart(name: str, rounds: int, out: Path) -> int:
    """Run one benchmark in a process of its own; its exit status."""
    command = [sys.executable, "-m", "benchmarks", name, "--rounds", str(rounds)]
    if name in NEEDS_SERVICES:
        command = [sys.executable, "-m", "goodput_site.launcher", "with-services", "--", *command]
    return subprocess.call(command, env={**os.environ, INSIDE: str(out)})


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
