"""The child process that alone talks to the driver: one JSON line in, one JSON line out, until its input closes."""

from __future__ import annotations

import json
import signal
import sys

from agent.memory import give_back


def serve() -> int:
    """Answers requests `{"id": n}` with `{"id": n, "raw": …}`; ends when the parent is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's business
    try:
        from agent.collect.nvml_read import Library
    except ImportError:
        library = None
    else:
        library = Library()
    give_back()
    for line in sys.stdin:
        request = json.loads(line)
        raw = {"init": 12} if library is None else library.read()
        sys.stdout.write(json.dumps({"id": request["id"], "raw": raw}) + "\n")
        sys.stdout.flush()
        if request["id"] == 1:
            give_back()  # what the first reading loaded and compiled
    if library is not None:
        library.close()
    return 0
