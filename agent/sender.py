"""The sender: one thread per node that delivers batches, live ones first, until each has its receipt.

Two lanes: a server that has no room for the backlog now says when to come again, and until then only what is live is
sent. A batch of the backlog says so in a header, so that such a server refuses it before a live one.
"""

from __future__ import annotations

import logging
import random
import sqlite3
import threading
import time
from typing import Any, Callable, Optional

from agent import contract, failpoints, wire
from agent.clock import Clock
from agent.enrol import Enrolment
from agent.errors import AgentError
from agent.outbox import Batch, Outbox
from agent.outbox_file import OutboxDamaged, OutboxFull
from agent.receipts import Receipts
from agent.schedule import retry_delay
from agent.store import Store
from agent.transport import Reply, Transport, TransportError

log = logging.getLogger("goodput.sender")

LIVE_MS = 90_000  # a batch younger than this goes before the backlog
IDLE_S = 5.0
OF_THE_SERVER = (429, 503)  # says nothing of the batch: a live one stays the next to be sent

Signer = Callable[[bytes], Optional[str]]
TokenReader = Callable[[], Optional[str]]


class Sender:
    """Delivers the batches of one store. `result` is the wire's word for the last upload: ok, fail or none."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        transport: Transport,
        token: TokenReader = lambda: None,
        sign: Signer = lambda message: None,
        rng: Optional[random.Random] = None,
        enrol: Optional[Enrolment] = None,
        receipts: Optional[Receipts] = None,
    ) -> None:
        self._store = store
        self._clock = clock
        self._transport = transport
        self._enrol = enrol
        self._receipts = receipts or Receipts()
        self._token = token if enrol is None else enrol.token
        self._sign = sign
        self._rng = rng or random.Random()
        self._wake = threading.Event()
        self._stop = threading.Event()
        self._failures = 0
        self._marked: dict[int, dict[str, Any]] = {}  # receipted, not yet recorded: the disk is full
        self._backlog_at = 0.0  # time.monotonic() before which only a live batch is sent
        self._only_backlog_waits = False  # whether what `step` said last holds for the backlog alone
        self.result = "none"
        self.last_error = ""
        self.not_before = 0.0  # time.monotonic() before which nothing is sent

    def wake(self, delay_s: float = 0.0) -> None:
        """There is something to send, `delay_s` from now at the earliest."""
        self.not_before = max(self.not_before, time.monotonic() + delay_s) if delay_s else self.not_before
        self._wake.set()

    def run(self) -> None:
        """The thread's body: until `stop`."""
        while not self._stop.is_set():
            wait = self.not_before - time.monotonic()
            if wait > 0:
                self._stop.wait(min(wait, 60.0))
                continue
            self._wake.clear()
            try:
                delay = self.step()
            except Exception:
                log.exception("sending failed in an unexpected way; going on")
                delay = retry_delay(5, self._rng)
            if delay is None:
                self._wake.wait(IDLE_S)
            elif delay > 0 and self._only_backlog_waits:
                self._wake.wait(delay)  # ended by a new batch
            elif delay > 0:
                self.not_before = time.monotonic() + delay

    def stop(self) -> None:
        """Asks the thread to end; a request under way is finished or times out."""
        self._stop.set()
        self._wake.set()

    def step(self) -> Optional[float]:
        """Tries one batch. Seconds to wait before the next try: 0 after progress, None when nothing waits."""
        now = self._clock.now()
        self._only_backlog_waits = False
        self._record_marked(now.ts)
        if self._marked:
            return retry_delay(self._failures + 3, self._rng)
        if self._enrol is not None:
            wait = self._enrol.step(self._store.outbox)
            if wait is not None:
                return wait
        held_s = self._backlog_at - time.monotonic()
        leased = self._store.lease(now.ts - LIVE_MS, live_only=held_s > 0)
        if leased is None:
            self._only_backlog_waits = held_s > 0
            return held_s if held_s > 0 else None
        outbox, batch = leased
        is_backlog = batch.made_at < now.ts - LIVE_MS
        failpoints.reach("before_send")
        try:
            reply = self._transport.post(batch.body, self._headers(outbox, batch, is_backlog))
        except (TransportError, AgentError) as error:  # no answer, or the key file cannot be read any more
            why = str(error)
            self.result, self.last_error = "fail", why
            self._settle(lambda: outbox.release(batch, now.ts, why, count=False))
            return self._failed(contract.Outcome(contract.RETRY, why))
        failpoints.reach("after_send")
        return self._apply(outbox, batch, reply, is_backlog)

    def _apply(self, outbox: Outbox, batch: Batch, reply: Reply, is_backlog: bool) -> Optional[float]:
        now = self._clock.now()
        outcome = contract.decide(reply.status, reply.headers, reply.body, batch.sha256, batch.seq, now.ts / 1000)
        if outcome.action == contract.DELIVERED:
            outcome = self._with_signature(outcome)
        if outcome.action == contract.DELIVERED:
            self._receipts.keep(now.ts, outcome.receipt or {})
            sync = {"received_at": outcome.received_at, "boottime": now.boottime, "boot_id": now.boot_id}
            self.result, self.last_error, self._failures = "ok", "", 0
            if not self._settle(lambda: outbox.delivered(batch, now.ts, sync)):
                self._marked[batch.id] = {"outbox": outbox, "batch": batch, "sync": sync}
                return retry_delay(3, self._rng)
            return 0.0
        self.last_error = outcome.why
        if reply.status in (401, 403) and self._enrol is not None:
            self._enrol.refused()
        if outcome.action == contract.SPLIT and not self._try_split(outbox, batch, now.ts):
            outcome = contract.Outcome(contract.QUARANTINE, "too large")
        if outcome.action == contract.QUARANTINE:
            log.error("batch %s was refused for good (%s) and is kept in quarantine", batch.seq, outcome.why)
            self._settle(lambda: outbox.quarantine(batch, now.ts, outcome.why))
            return 0.0
        if outcome.action == contract.SPLIT:
            return 0.0
        self.result = "fail"
        has_no_room = reply.status in OF_THE_SERVER
        counts = outcome.action == contract.RETRY and not has_no_room
        self._settle(lambda: outbox.release(batch, now.ts, outcome.why, count=counts))
        delay = self._failed(outcome)
        if has_no_room and is_backlog:
            self._backlog_at, self._only_backlog_waits = time.monotonic() + delay, True
        return delay

    def _with_signature(self, outcome: contract.Outcome) -> contract.Outcome:
        """The outcome of a receipt once its signature was looked at: one that is not the log's own settles nothing."""
        wrong = self._receipts.check(outcome.receipt or {})
        if not wrong:
            return outcome
        log.error("%s; the batch is kept", wrong)
        return contract.Outcome(contract.RETRY, wrong)

    def _try_split(self, outbox: Outbox, batch: Batch, now_ms: int) -> bool:
        done: list[bool] = []
        self._settle(lambda: done.append(outbox.split(batch, now_ms)))
        return done == [True]

    def _failed(self, outcome: contract.Outcome) -> float:
        self._failures += 1
        delay = retry_delay(self._failures, self._rng)
        if outcome.retry_after_s is not None:
            delay = outcome.retry_after_s * self._rng.uniform(1.0, 1.25)
        level = logging.WARNING if self._failures in (1, 10) or self._failures % 100 == 0 else logging.DEBUG
        log.log(level, "upload failed (%s), attempt %d; next in %.0f s", outcome.why, self._failures, delay)
        return delay

    def _settle(self, action: Callable[[], Any]) -> bool:
        """Records an outcome; False when the disk does not take it."""
        try:
            action()
        except (OutboxFull, OutboxDamaged) as error:
            log.warning("an outcome could not be recorded: %s", type(error).__name__)
            return False
        except sqlite3.ProgrammingError:
            pass  # the outbox in memory was given up meanwhile; its batches went to the disk
        return True

    def _record_marked(self, now_ms: int) -> None:
        for key, entry in list(self._marked.items()):
            if self._settle(lambda entry=entry: entry["outbox"].delivered(entry["batch"], now_ms, entry["sync"])):  # type: ignore[misc]
                del self._marked[key]

    def _headers(self, outbox: Outbox, batch: Batch, is_backlog: bool) -> dict[str, str]:
        headers = {"Content-Type": wire.CONTENT_TYPE, "Content-Encoding": "gzip", "User-Agent": "goodput-agent"}
        token = self._token()
        if token:
            headers["Authorization"] = f"Bearer {token}"
        dropped = outbox.dropped
        if dropped:
            headers[wire.HEADER_DROPPED] = str(dropped)
        signature = self._sign(wire.signed_message(bytes.fromhex(batch.sha256)))
        if signature:
            headers[wire.HEADER_SIGNATURE] = signature
        if is_backlog:
            headers[wire.HEADER_BACKLOG] = "1"
        return headers
