"""The supervisor: starts the parts in order, brings back what dies, and takes them down in order.

One thread, no dependency on any part's code. A part is a direct child in its own process group; when it ends, however
it ends, the whole group is ended before it starts again (granian's workers would outlive their parent and share its
port). Each state change is written to var/run/status.json, which `status`, `down` and the next `up` read.
"""

import contextlib
import dataclasses
import os
import select
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence

from . import processes
from .errors import LauncherError
from .var import Var

FIRST_DELAY_SECONDS = 0.2  # before a part that died starts again; doubles while it keeps dying
LONGEST_DELAY_SECONDS = 30.0
STEADY_SECONDS = 30.0  # a part that was up this long starts over with the first delay
PATIENCE_SECONDS = 10.0  # for a part to end by itself at a stop
DATABASES = ("valkey", "pg")  # stopped last
SETTLED = ("up", "done", "failed")  # nothing more comes of such a part by itself


@dataclasses.dataclass
class Part:
    """One process to keep alive, or with `once` to run to its end before the parts that need it."""

    name: str
    command: Sequence[str]
    needs: tuple[str, ...] = ()
    is_ready: Callable[[], bool] = lambda: True
    ready_words: str = ""  # or that it prints when it has loaded its code and settings
    before_start: Callable[[], object] = lambda: None
    env: Mapping[str, str] | None = None  # instead of the one that all parts share
    stop_signal: signal.Signals = signal.SIGTERM
    account: tuple[int, int] | None = None
    once: bool = False
    optional: bool = False  # of a `once`: the others go on when it fails

    state: str = "waiting"  # starting, up, down (dead, will start again), done or failed (of a `once`), stopped
    process: subprocess.Popen[bytes] | None = None
    started: float = 0.0  # seconds of the Unix clock
    starts: int = 0
    log_start: int = 0  # where this start's lines begin
    delay: float = FIRST_DELAY_SECONDS
    retry_at: float = 0.0  # seconds of the monotonic clock
    message: str = ""

    @property
    def is_alive(self) -> bool:
        return self.process is not None and self.process.returncode is None

    def describe(self) -> dict[str, object]:
        """The part in status.json."""
        return {
            "name": self.name,
            "state": self.state,
            "pid": self.process.pid if self.process and self.is_alive else None,
            "since": self.started,
            "restarts": max(0, self.starts - 1),
            "message": self.message,
        }


class Supervisor:
    """Runs `parts` until it is told to stop; `facts` are the caller's lines for status.json (url, expose)."""

    def __init__(self, parts: Sequence[Part], env: Mapping[str, str], var: Var, facts: Mapping[str, object]) -> None:
        self.parts = {part.name: part for part in parts}
        self.env = env
        self.var = var
        self.status = {"pid": os.getpid(), "started": processes.start_time(os.getpid()), "ready": False, **facts}
        self.stop_asked = 0
        self.written: dict[str, object] = {}

    def run(self, on_ready: Callable[[], None], say: Callable[[str], None]) -> None:
        """Start everything, call `on_ready` once all is up, and watch until a signal asks to stop.

        Raises LauncherError when a `once` part fails; all parts are down when this returns, however it does.
        """
        self.say = say
        wake, waker = socket.socketpair()
        wake.setblocking(False)
        waker.setblocking(False)
        signal.set_wakeup_fd(waker.fileno(), warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            if signal.getsignal(number) is not signal.SIG_IGN:  # nohup keeps SIGHUP ignored
                signal.signal(number, self._ask_to_stop)
        try:
            while not self.stop_asked:
                for part in self.parts.values():
                    self._step(part)
                self._report()
                if not self.status["ready"] and all(part.state in SETTLED for part in self.parts.values()):
                    self.status["ready"] = True
                    on_ready()
                    self._report()
                self._sleep(wake)
                self.var.rotate_logs()
        finally:
            self._stop_all()
            self.var.status_file.unlink(missing_ok=True)

    def _ask_to_stop(self, *_: object) -> None:
        self.stop_asked += 1

    def _sleep(self, wake: socket.socket) -> None:
        """Until a child ends, a signal comes, a part is to be tried again, or it is time to look at the logs."""
        now = time.monotonic()
        wait = 5.0
        for part in self.parts.values():
            if part.state in ("starting", "waiting"):
                wait = min(wait, 0.05)
            elif part.state == "down":
                wait = min(wait, max(0.0, part.retry_at - now))
        select.select([wake], [], [], wait)
        with contextlib.suppress(BlockingIOError):
            wake.recv(4096)

    def _step(self, part: Part) -> None:
        if part.process and part.state in ("starting", "up"):
            if part.process.poll() is not None:
                self._ended(part)
            elif part.state == "starting" and not part.once and self._is_ready(part):
                part.state, part.message = "up", ""
                self.say(f"  {part.name:<8} up")
            elif part.delay > FIRST_DELAY_SECONDS and time.time() - part.started > STEADY_SECONDS:
                part.delay = FIRST_DELAY_SECONDS
        elif part.state in ("waiting", "down") and time.monotonic() >= part.retry_at and self._has_what_it_needs(part):
            self._start(part)

    def _has_what_it_needs(self, part: Part) -> bool:
        """A part that is not ours to run (an external database) counts as there."""
        return all(self.parts[name].state in ("up", "done") for name in part.needs if name in self.parts)

    def _is_ready(self, part: Part) -> bool:
        if part.ready_words:
            with self.var.log(part.name).open("rb") as log:
                log.seek(part.log_start)
                return part.ready_words.encode() in log.read(1 << 20)
        return part.is_ready()

    def _start(self, part: Part) -> None:
        try:
            part.before_start()
            part.log_start = log.stat().st_size if (log := self.var.log(part.name)).exists() else 0
            part.process = processes.spawn(
                part.command,
                env=self.env if part.env is None else part.env,
                log=self.var.log(part.name),
                death_signal=part.stop_signal,
                account=part.account,
            )
        except (LauncherError, OSError) as error:
            if not part.starts:
                raise
            self._try_later(part, str(error))
            return
        part.state, part.started, part.starts = "starting", time.time(), part.starts + 1

    def _ended(self, part: Part) -> None:
        assert part.process
        status = part.process.returncode
        processes.end_group(part.process.pid, signal.SIGKILL)
        how = f"ended by {signal.Signals(-status).name}" if status < 0 else f"ended with exit status {status}"
        if status > 0:
            how += ": " + " / ".join(processes.tail(self.var.log(part.name), 1))
        if not part.once:
            self._try_later(part, how)
        elif status == 0:
            part.state = "done"
            self.say(f"  {part.name:<8} done")
        elif part.optional:
            part.state, part.message = "failed", how
            self.say(f"  {part.name:<8} {how}; the rest goes on (see {self.var.log(part.name)})")
        else:
            raise LauncherError(f"{part.name} {how}", f"All that it said stands in {self.var.log(part.name)}")

    def _try_later(self, part: Part, why: str) -> None:
        part.state, part.message = "down", why
        part.retry_at = time.monotonic() + part.delay
        self.say(f"  {part.name:<8} {why}; starting it again in {part.delay:.1f} s (see {self.var.log(part.name)})")
        part.delay = min(2 * part.delay, LONGEST_DELAY_SECONDS)

    def _report(self) -> None:
        status = {**self.status, "parts": [part.describe() for part in self.parts.values()]}
        if status != self.written:
            with contextlib.suppress(OSError):  # a full disk must not end the parts that still work
                self.var.write_status(status)
                self.written = status

    def _stop_all(self) -> None:
        """First whatever uses the databases, all at once, then the databases. A second Ctrl-C kills."""
        alive = [(part, part.process) for part in self.parts.values() if part.process and part.is_alive]
        if alive:
            self.say("Stopping ...")
        for last in (False, True):
            wave = [(part, process) for part, process in alive if (part.name in DATABASES) is last]
            for part, process in wave:
                process.send_signal(part.stop_signal)
            deadline = time.monotonic() + PATIENCE_SECONDS
            while any(process.poll() is None for _, process in wave):
                if time.monotonic() > deadline or self.stop_asked > 1:
                    break
                time.sleep(0.02)
            for part, process in wave:
                processes.end_group(process.pid, signal.SIGKILL)
                process.wait()
                part.state = "stopped"
