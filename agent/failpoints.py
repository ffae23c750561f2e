"""Named points at which a test may kill the process. They do nothing unless GOODPUT_FAILPOINT names one.

The process ends with `os._exit`: no `finally`, no flush, as close to a power cut as a process can come.
"""

from __future__ import annotations

import os

EXIT_CODE = 86
NAMES = (
    "before_sample_commit",
    "after_sample_commit",
    "before_batch_commit",
    "after_batch_commit",
    "before_send",
    "after_send",
    "before_receipt_commit",
    "after_receipt_commit",
)

_wanted = os.environ.get("GOODPUT_FAILPOINT", "")


def reach(name: str) -> None:
    """Ends the process at once if GOODPUT_FAILPOINT is `name` (or `name:N`: at the N-th time)."""
    global _wanted
    if not _wanted:
        return
    point, _, times = _wanted.partition(":")
    if point != name:
        return
    left = int(times or "1") - 1
    if left <= 0:
        os._exit(EXIT_CODE)
    _wanted = f"{point}:{left}"
