"""What other commands say to a running agent and read from it: small files in the state directory."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import sqlite3
import time
from pathlib import Path
from typing import Any, Callable

from agent.errors import AgentError
from agent.wire import canonical_bus_id

log = logging.getLogger("goodput.control")

_RELEASE = "release-until"
_FAULT = "inject.json"


class Control:
    """Requests that other processes left in the state directory."""

    def __init__(self, directory: Path) -> None:
        self._release = directory / _RELEASE
        self._fault = directory / _FAULT

    def poll(self, release: Callable[[float], None], inject: Callable[[dict[str, Any]], None]) -> None:
        """Carries out a waiting release request and a waiting test fault."""
        self._poll_release(release)
        try:
            text = self._fault.read_text()
            self._fault.unlink()  # before it is carried out: one that cannot be removed would come again and again
            event = json.loads(text)
        except (OSError, ValueError, RecursionError):
            return
        if _is_fault(event):
            inject(event)

    def _poll_release(self, release: Callable[[float], None]) -> None:
        try:
            until = float(self._release.read_text())
        except (OSError, ValueError):
            return
        with contextlib.suppress(OSError):
            self._release.unlink()
        seconds = until - time.time()
        if 0 < seconds <= 3600:
            release(seconds)


def _is_fault(event: object) -> bool:
    """Whether this is what `request_fault` leaves, and nothing else."""
    if not isinstance(event, dict) or set(event) != {"kind", "code", "pci_bus_id"} or event["kind"] != "xid":
        return False
    return type(event["code"]) is int and canonical_bus_id(str(event["pci_bus_id"])) == event["pci_bus_id"]


def refuse_fault(_event: dict[str, Any]) -> None:
    """What an agent that allows no test faults does with one."""
    log.error("a test fault was refused: this agent runs without --allow-inject yes")


def request_release(directory: Path, until: float) -> None:
    """Asks the running agent to let go of the driver until the instant (seconds since 1970)."""
    _leave(directory / _RELEASE, f"{until!r}\n")  # not rounded: rounding up would prolong what was asked for


def request_fault(directory: Path, event: dict[str, Any]) -> None:
    """Asks the running agent to take a test fault into its next sample."""
    _leave(directory / _FAULT, json.dumps(event) + "\n")


def _leave(path: Path, text: str) -> None:
    try:
        descriptor = os.open(str(path), os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
    except OSError as error:
        raise AgentError(f"cannot write {path}: {os.strerror(error.errno or 0)}") from None
    with os.fdopen(descriptor, "w") as file:
        file.write(text)


def resend(directory: Path, since_ms: int) -> int:
    """Queues the kept copies of batches delivered since then once more; their number. Safe beside a running agent."""
    from agent.outbox import Outbox

    count = 0
    for path in outboxes(directory):
        outbox = Outbox(path)
        count += outbox.resend(since_ms)
        outbox.close()
    return count


def outboxes(directory: Path) -> list[Path]:
    """Every outbox below a state directory. Raises AgentError if there is none."""
    files = sorted([*directory.glob("outbox.sqlite"), *directory.glob("*/outbox.sqlite")])
    if not files:
        raise AgentError(f"there is no outbox in {directory}; did the agent run with this --state-dir?")
    return files


def status(directory: Path) -> dict[str, Any]:
    """Figures of each outbox below a state directory, read without disturbing a running agent."""
    return {"nodes": [_figures(path) for path in outboxes(directory)]}


def _figures(path: Path) -> dict[str, Any]:
    figures: dict[str, Any] = {"outbox": str(path)}
    try:
        with contextlib.closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True, timeout=5)) as db:
            meta = dict(db.execute("SELECT key, value FROM meta").fetchall())
            states = dict(db.execute("SELECT state, count(*) FROM batches GROUP BY state").fetchall())
            oldest = db.execute("SELECT min(made_at) FROM batches WHERE state=0").fetchone()[0]
            samples, newest = db.execute("SELECT count(*), max(ts) FROM samples").fetchone()
            notes = db.execute(
                "SELECT seq, note FROM batches WHERE note!='' ORDER BY changed_at DESC LIMIT 3"
            ).fetchall()
    except sqlite3.Error as error:
        figures["error"] = str(error)
        return figures
    figures.update(
        agent_id=meta.get("agent_id", "").strip('"'),
        seq=int(meta.get("seq", 0)),
        delivered=int(meta.get("delivered", 0)),
        dropped=int(meta.get("dropped", 0)),
        samples_waiting=samples,
        newest_waiting_sample=newest,
        batches_queued=states.get(0, 0),
        batches_kept=states.get(1, 0),
        batches_quarantined=states.get(2, 0),
        oldest_queued_at=oldest,
        notes=[{"seq": seq, "note": note} for seq, note in notes],
        bytes=sum(p.stat().st_size for p in path.parent.glob("outbox.sqlite*") if ".damaged" not in p.name),
    )
    return figures
