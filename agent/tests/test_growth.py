"""A17: hours of sampling and sending leave memory, descriptors and the outbox as they were (agent/tests/day.py)."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

HOURS = 4
ROOT = Path(__file__).resolve().parents[2]


def test_a17_hours_of_work_leave_memory_descriptors_and_outbox_flat():
    """In a process of its own, as its memory is what counts. The first hour fills what is filled once."""
    done = subprocess.run(
        [sys.executable, "-m", "agent.tests.day", str(HOURS)], cwd=ROOT, capture_output=True, text=True, check=True
    )
    rows = {row["hour"]: row for row in map(json.loads, done.stdout.splitlines())}
    first, last = rows[1], rows[HOURS]
    assert last["descriptors"] == first["descriptors"]
    assert last["rss_kb"] - first["rss_kb"] < 3 * 1024, rows
    assert last["outbox_bytes"] < 16 << 20
    assert last["outbox_bytes"] <= rows[2]["outbox_bytes"] * 2 + (1 << 20), rows
