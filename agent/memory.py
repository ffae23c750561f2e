"""Keeps the agent small: one heap for all threads, and freed memory goes back to the system.

Importing from the single file compiles sources and leaves 13 MB of heap.
"""

from __future__ import annotations

import ctypes
import gc

_M_ARENA_MAX = -8  # mallopt(3)


def one_heap() -> None:
    """Lets all threads share one malloc heap; to be called before the first of them. Only glibc knows it."""
    try:
        ctypes.CDLL(None).mallopt(_M_ARENA_MAX, 1)
    except (OSError, AttributeError):
        return


def give_back() -> None:
    """Returns free heap pages (glibc's malloc_trim); does nothing where there is no such call."""
    gc.collect()
    try:
        ctypes.CDLL(None).malloc_trim(0)
    except (OSError, AttributeError):
        return
