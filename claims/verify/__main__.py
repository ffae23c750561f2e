"""`goodput-verify PACK [--key KEY] [--json] [--jobs N]`: four answers about a claim's pack, offline.

Exit status: 0 arithmetic and integrity hold, 1 one of them does not, 2 this is no pack.
"""

from __future__ import annotations

import argparse
import gc
import json
import sys
from pathlib import Path

from claims.errors import ClaimsError
from claims.verify.checks import FAIL, answers, check_pack, lines
from claims.verify.pack_file import read_pack
from claims.verify.work import Work, default_jobs


def main(arguments: list[str] | None = None) -> int:
    """Check one pack and print what was found."""
    parser = argparse.ArgumentParser(prog="goodput-verify", description="Four answers about a claim's pack, offline.")
    parser.add_argument("pack", type=Path)
    parser.add_argument("--key", default="", help="the log's key as you know it from elsewhere")
    parser.add_argument("--json", action="store_true", help="print findings and answers as JSON")
    parser.add_argument("--jobs", type=int, help="processes that fold; 1: this one alone; not said: by the pack's size")
    options = parser.parse_args(arguments)
    if options.jobs is not None and options.jobs < 1:
        parser.error("--jobs is at least 1.")
    try:
        files = read_pack(options.pack)
    except ClaimsError as error:
        print(f"FAIL: {error}", file=sys.stderr)
        return 2
    gc.disable()  # nothing here makes cycles; looking for them among a pack's objects took a fifth of the time
    work = Work(files, options.jobs or default_jobs(files), _progress)
    work.begin()
    try:
        findings = check_pack(files, options.key, work=work)
    finally:
        work.end()
    found = answers(findings)
    if options.json:
        print(json.dumps({"answers": found, "findings": [vars(one) for one in findings]}, indent=1))
    else:
        print("\n".join(lines(findings)))
    return 1 if FAIL in (found["arithmetic"], found["integrity"]) else 0


def _progress(done: int, of: int) -> None:
    if sys.stderr.isatty():
        print(f"\rfolding again: window {done} of {of}", end="" if done < of else "\n", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
