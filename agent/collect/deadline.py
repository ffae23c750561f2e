"""A read with a deadline: files of a sick device can block in the kernel, and no signal ends that."""

from __future__ import annotations

import threading
from typing import Callable, Generic, List, Optional, TypeVar

T = TypeVar("T")

READ_TIMEOUT_S = 5.0


class DeadlineCall(Generic[T]):
    """Runs `call` in a thread. Raises TimeoutError when it takes too long, and at once while an earlier one hangs.

    Never two threads at a time. What comes too late is dropped: a counter is compared with the last value in time.
    """

    def __init__(self, call: Callable[[], T], timeout_s: float = READ_TIMEOUT_S) -> None:
        self._call = call
        self._timeout_s = timeout_s
        self._thread: Optional[threading.Thread] = None

    def __call__(self) -> T:
        """The result of the call; its own exceptions come through."""
        if self._thread is not None and self._thread.is_alive():
            raise TimeoutError("an earlier read still hangs")
        results: List[T] = []
        errors: List[Exception] = []

        def run() -> None:
            try:
                results.append(self._call())
            except Exception as error:
                errors.append(error)

        self._thread = threading.Thread(target=run, daemon=True)
        self._thread.start()
        self._thread.join(self._timeout_s)
        if errors:
            raise errors[0]
        if not results:
            raise TimeoutError("a read hangs")
        self._thread = None
        return results[0]
