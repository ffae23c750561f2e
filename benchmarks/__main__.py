"""`./goodput bench NAME [--rounds N] [--json FILE]`: run one benchmark or `all`, with a database where needed."""

from __future__ import annotations

import argparse
import importlib
import json
import os
import subprocess
import sys
from pathlib import Path

BENCHMARKS = ("ingest", "fold", "read", "report", "pack", "agent", "peers")
NEEDS_SERVICES = {"ingest", "read", "pack", "peers"}


def main() -> int:
    """Run the benchmark named on the command line; the exit status."""
    parser = argparse.ArgumentParser(prog="goodput bench", description=__doc__)
    parser.add_argument("name", choices=[*BENCHMARKS, "all"])
    parser.add_argument("--rounds", type=int, default=7, help="the first is thrown away")
    parser.add_argument("--json", type=Path, help="also write the figures here")
    options = parser.parse_args()
    names = BENCHMARKS if options.name == "all" else (options.name,)
    if NEEDS_SERVICES.intersection(names) and "GOODPUT_BENCH" not in os.environ:
        command = [
            sys.executable,
            "-m",
            "goodput_site.launcher",
            "with-services",
            "--",
            sys.executable,
            "-m",
            "benchmarks",
        ]
        return subprocess.call([*command, *sys.argv[1:]], env={**os.environ, "GOODPUT_BENCH": "1"})
    results = {}
    for name in names:
        results[name] = importlib.import_module(f"benchmarks.{name}").run(options.rounds)
    if options.json:
        options.json.write_text(json.dumps(results, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
