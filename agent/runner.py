"""`run`: samples at slot centres until a signal ends it, whatever the network does."""

from __future__ import annotations

import contextlib
import logging
import math
import os
import select
import signal
import socket
import time
from typing import Callable, Optional, Sequence

from agent.clock import Clock, machine_is_stopping
from agent.memory import give_back
from agent.node import Node
from agent.schedule import next_centre

log = logging.getLogger("goodput.run")

_LONGEST_WAIT_S = 2.0  # a stepped wall clock, a release request and the watchdog are seen within this
_LATE_MS = 7_000  # still in the slot whose centre this was
RELEASE_S = 120.0
_TIDY_AFTER = (1, 3)  # samples: all modules are loaded then
_TIDY_EVERY = 240  # samples: an hour


def notify(message: str) -> None:
    """Tells systemd (sd_notify) if it listens; silent otherwise."""
    address = os.environ.get("NOTIFY_SOCKET")
    if not address:
        return
    if address.startswith("@"):
        address = "\0" + address[1:]
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as channel:
            channel.connect(address)
            channel.send(message.encode())
    except OSError as error:
        log.debug("systemd could not be told: %s", type(error).__name__)


class SignalEvent:
    """A flag that a signal handler may set, and a wait for it: a plain attribute and a pipe.

    Not a threading.Event, whose lock is not re-entrant: a signal that comes while the handler of the one before is in
    `set()` would wait for itself for ever, and two come at once where a whole process group is told to end.
    """

    def __init__(self) -> None:
        self._flag = False
        self._woken, self._waker = os.pipe()
        os.set_blocking(self._waker, False)
        # not select(), which takes no descriptor from 1024 on: 512 simulated nodes have them
        self._poll = select.poll()
        self._poll.register(self._woken, select.POLLIN)

    def set(self) -> None:
        """Sets the flag for good and ends every wait."""
        self._flag = True
        with contextlib.suppress(BlockingIOError):  # full of earlier calls
            os.write(self._waker, b"x")

    def is_set(self) -> bool:
        """Whether `set` was called."""
        return self._flag

    def wait(self, seconds: float) -> bool:
        """Waits at most this long; whether it is set."""
        self._poll.poll(max(0, math.ceil(seconds * 1000)))
        return self._flag

    def __del__(self) -> None:
        os.close(self._woken)
        os.close(self._waker)


class Runner:
    """Drives the nodes of this process."""

    def __init__(self, nodes: Sequence[Node], clock: Clock, each_turn: Callable[[], None] = lambda: None) -> None:
        self._nodes = list(nodes)
        self._clock = clock
        self._each_turn = each_turn
        self._stop = SignalEvent()
        self._release_asked = False
        self._sampled = 0

    def install_signals(self) -> None:
        """SIGTERM and SIGINT stop; SIGUSR1 opens a release window of two minutes."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: self._stop.set())
        signal.signal(signal.SIGUSR1, self._ask_for_release)

    def stop(self) -> None:
        """Ends `run` at its next turn."""
        self._stop.set()

    def _ask_for_release(self, *_: object) -> None:
        self._release_asked = True

    def run(self) -> None:
        """Samples until stopped; then lets every node close what it holds."""
        for node in self._nodes:
            node.start()
        notify("READY=1")
        target = next_centre(self._clock.now().ts)
        while not self._stop.is_set():
            now = self._clock.now().ts
            if target - now > 15_000:  # the wall clock was set back
                target = next_centre(now)
            if now >= target + _LATE_MS:
                target = next_centre(now)  # the machine slept: a sample now would stand in another slot
            if now >= target:
                self._sample_all()
                target = next_centre(self._clock.now().ts)
                continue
            self._turn()
            self._stop.wait(min((target - now) / 1000, _LONGEST_WAIT_S))
        notify("STOPPING=1")
        if machine_is_stopping():
            for node in self._nodes:
                node.leave_farewell()
        for node in self._nodes:
            node.stop()

    def _turn(self) -> None:
        notify("WATCHDOG=1")
        if self._release_asked:
            self._release_asked = False
            self.release(RELEASE_S)
        try:
            self._each_turn()
        except Exception:
            log.exception("a request from another process could not be carried out")

    def release(self, seconds: float) -> None:
        """Lets go of the driver for a while, so that a GPU can be reset."""
        log.warning("the driver is released for %.0f s", seconds)
        for node in self._nodes:
            for collector in node.collectors:
                release: Optional[Callable[[float], None]] = getattr(collector, "release", None)
                if release is not None:
                    release(time.monotonic() + seconds)

    def _sample_all(self) -> None:
        for node in self._nodes:
            try:
                node.sample()
            except Exception:
                log.exception("a sample of %s was lost", node.node_id)
        self._sampled += 1
        if self._sampled in _TIDY_AFTER or self._sampled % _TIDY_EVERY == 0:
            give_back()
