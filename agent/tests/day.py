"""A day in accelerated time: does memory, descriptors or the outbox grow? `python -m agent.tests.day [HOURS]`."""

from __future__ import annotations

import json
import os
import sys
import tempfile
from pathlib import Path

from agent.tests.backend import Backend
from agent.tests.rig import Rig


def figures(directory):
    """(RSS in kB, descriptors, bytes of the outbox with its WAL)."""
    status = Path("/proc/self/smaps_rollup").read_text().splitlines()
    rss = next(int(line.split()[1]) for line in status if line.startswith("Rss:"))
    size = sum(p.stat().st_size for p in Path(directory).glob("outbox.sqlite*"))
    return rss, len(os.listdir("/proc/self/fd")), size


def main(hours):
    backend = Backend()
    with tempfile.TemporaryDirectory(prefix="goodput-day-") as directory:
        rig = Rig(Path(directory), backend.url, "month_mixed")
        rows = []
        for hour in range(1, hours + 1):
            for _ in range(60):
                rig.minute()
                rig.drain()
                backend.batches.clear()
                backend.requests.clear()
            rows.append(figures(directory))
            if hour in (1, 2, hours // 2, hours):
                rss, descriptors, size = rows[-1]
                print(
                    json.dumps({"hour": hour, "rss_kb": rss, "descriptors": descriptors, "outbox_bytes": size}),
                    flush=True,
                )
        rig.close()
    backend.close()


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 24)
