"""`manage.py replay_trace FILE`: a published trace of server faults through the fold, and its availability."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from fleet.domain.verdicts import State
from fleet.replay import Totals, Trace, TraceError, read_trace, replay

BAR = 40
MOST_BYTES = 256 * 2**20


class Command(BaseCommand):
    """Replay a trace."""

    help = "Fold a trace of server faults slot by slot and print its availability. Needs no database."
    requires_system_checks = ()

    def add_arguments(self, parser: CommandParser) -> None:
        """FILE, --nodes, --json."""
        parser.add_argument("file", type=Path, help="JSON: fault_start and fault_end events in the order of time")
        parser.add_argument("--nodes", type=int, default=400, help="servers of the fleet, faulty or not (default 400)")
        parser.add_argument("--json", action="store_true", help="print JSON instead of the table")

    def handle(self, *args: Any, **options: Any) -> None:
        """Print what came out."""
        if options["nodes"] < 1:
            raise CommandError("--nodes must be positive.")
        begin = time.monotonic()
        try:
            if options["file"].stat().st_size > MOST_BYTES:
                raise CommandError(f"{options['file']} is larger than 256 MiB.")
            trace = read_trace(options["file"].read_text())
            totals = Totals()
            for done, now in enumerate(replay(trace, options["nodes"]), 1):
                totals = now
                self.show(done, options["nodes"])
        except (OSError, UnicodeDecodeError) as error:
            raise CommandError(f"{options['file']} cannot be read: {error}") from error
        except TraceError as error:
            raise CommandError(f"{options['file']}: {error}.") from error
        seconds = time.monotonic() - begin
        if options["json"]:
            self.stdout.write(json.dumps(as_json(trace, totals, seconds)))
            return
        for label, value in table(trace, totals, options["nodes"], seconds):
            self.stdout.write(f"{label:<34}{value:>18}")

    def show(self, done: int, total: int) -> None:
        """A bar on a terminal, nothing elsewhere."""
        if sys.stderr.isatty():
            full = BAR * done // total
            end = "\n" if done == total else ""
            self.stderr.write(f"\r{'█' * full}{'░' * (BAR - full)} {done} of {total} servers", ending=end)
            self.stderr.flush()


def as_json(trace: Trace, totals: Totals, seconds: float) -> dict[str, Any]:
    """What `--json` prints; `seconds` is the time that the replay took."""
    return {
        "availability": round(totals.availability, 7),
        "downtime_node_days": round(totals.down_s / 86_400, 4),
        "zero_length": trace.zero_length,
        "seconds": round(seconds, 3),
    }


def table(trace: Trace, totals: Totals, nodes: int, seconds: float) -> list[tuple[str, str]]:
    """The lines of the table."""
    all_s = sum(totals.seconds.values())
    return [
        ("servers", f"{nodes}"),
        ("of these with a fault", f"{len(trace.outages)}"),
        ("days", f"{trace.end_ms / 86_400_000:.4f}"),
        ("faults", f"{trace.faults}"),
        ("of these without length", f"{trace.zero_length}"),
        ("of these inside another", f"{trace.overlapping}"),
        ("incidents", f"{totals.incidents}"),
        ("downtime, node-days", f"{totals.down_s / 86_400:.4f}"),
        ("downtime by the events, node-days", f"{trace.downtime_ms / 86_400_000:.4f}"),
        ("unknown, node-days", f"{totals.seconds[State.UNKNOWN] / 86_400:.4f}"),
        ("all, node-days", f"{all_s / 86_400:.4f}"),
        ("availability", f"{totals.availability:.5f}"),
        ("took, seconds", f"{seconds:.1f}"),
    ]
