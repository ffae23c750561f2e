"""Enrolment: the server learns this installation's public key, once, and may give the node an ingest key of its own.

It happens before the first upload and stands in the way of none: a server that knows no enrolment, or refuses it, gets
batches like any other. What came of it is kept in a private file of the state directory.
"""

from __future__ import annotations

import base64
import hashlib
import json
import logging
import os
import random
import re
import time
from pathlib import Path
from typing import Any, Callable, Mapping, Optional

from agent import wire
from agent.errors import AgentError
from agent.identity import Signer, read_private, safe_file
from agent.outbox import Outbox
from agent.schedule import retry_delay
from agent.transport import Reply, Transport, TransportError

log = logging.getLogger("goodput.enrol")

FILE = "enrolled"
SLOW_S = 900.0  # after a refusal
UNKNOWN_S = 86_400.0  # a server that knows no enrolment
_FIRST_TRIES = 5  # for which a node that never delivered anything waits
_TOKEN = re.compile(r"[!-~]{1,256}")
_KEY = re.compile(r"[!-~]{1,300}\+[0-9a-f]{8}\+[A-Za-z0-9+/=]{44}")  # of C2SP: name, id, base64 of 33 bytes
_WORD = re.compile(r"[a-z_]{1,32}")


def kept(directory: Path) -> dict[str, Any]:
    """What the last enrolment left: `mark`, `state`, `server`, `log_key`, perhaps `token`; empty without one."""
    path = directory / FILE
    if not path.exists():
        return {}
    try:
        value = json.loads(read_private(path))
    except (ValueError, AgentError):
        return {}
    return value if isinstance(value, dict) else {}


def token_in_use(directory: Path, given: Optional[str]) -> Optional[str]:
    """The node's own ingest key if it got one for the given token; else the given token."""
    found = kept(directory)
    own = found.get("token")
    return own if isinstance(own, str) and found.get("given") == _digest(given) else given


def _digest(text: Optional[str]) -> str:
    return hashlib.sha256((text or "").encode()).hexdigest()


class Enrolment:
    """Of one node. `said` is what it tells beside its identity and key: cluster_id, node_id, hw_id, agent_version."""

    def __init__(
        self,
        directory: Path,
        transport: Transport,
        signer: Signer,
        given: Callable[[], Optional[str]],
        said: Mapping[str, Optional[str]],
        rng: Optional[random.Random] = None,
    ) -> None:
        self._directory = directory
        self._transport = transport
        self._signer = signer
        self._given = given
        self._said = dict(said)
        self._rng = rng or random.Random()
        self._kept = kept(directory)
        self._failures = 0
        self._not_before = 0.0
        self._doubts_log_key = False

    @property
    def log_key(self) -> Optional[str]:
        """The verifier key of the server's log as it told it; empty or None: it told none."""
        told = self._kept.get("log_key")
        return told if isinstance(told, str) else None

    def doubt_log_key(self) -> None:
        """A receipt does not bear the signature of the key that was told: asked for anew at the next step."""
        self._doubts_log_key = True

    def token(self) -> Optional[str]:
        """The key to send with: the node's own if it got one for the token of the file. Raises as the reader of it."""
        given = self._given()
        own = self._kept.get("token")
        return own if isinstance(own, str) and self._kept.get("given") == _digest(given) else given

    def refused(self) -> None:
        """The server does not take the node's own key (any more): asked for anew at the next step."""
        if "token" in self._kept:
            self._kept = {}

    def step(self, outbox: Outbox) -> Optional[float]:
        """Enrols if that is to be done. Seconds for which no upload is worth a try; None: go on."""
        path = self._transport.endpoint.path
        if self._signer.public_key is None or outbox.volatile or not path.endswith("/batches"):
            return None
        try:
            given = self._given()
        except AgentError:
            return None  # the upload tells of it
        body = self._body(outbox.agent_id)
        mark = hashlib.sha256(f"{self._transport.endpoint.url}\n{_digest(given)}\n".encode() + body).hexdigest()
        if self._kept.get("mark") == mark and "log_key" in self._kept and not self._doubts_log_key:
            return None
        wait = self._not_before - time.monotonic()
        if wait <= 0:
            wait = self._ask(path[: -len("batches")] + "enrol", body, given, mark)
        is_new = int(outbox.get("delivered", 0)) == 0
        return wait if wait > 0 and is_new and 0 < self._failures <= _FIRST_TRIES else None

    def _body(self, agent_id: str) -> bytes:
        said = {**self._said, "agent_id": agent_id, "public_key": self._signer.public_key}
        return json.dumps({key: said[key] for key in wire.ENROLMENT if said.get(key)}, sort_keys=True).encode()

    def _ask(self, path: str, body: bytes, given: Optional[str], mark: str) -> float:
        """Seconds until the next try; 0 when it is done."""
        headers = {"Content-Type": "application/json", "User-Agent": "goodput-agent"}
        headers[wire.HEADER_SIGNATURE] = self._signer.sign(wire.enrolment_message(body)) or ""
        if given:
            headers["Authorization"] = f"Bearer {given}"
        try:
            reply = self._transport.post(body, headers, path)
        except TransportError as error:
            return self._later(str(error))
        answer = _answer(reply)
        if reply.status == 200 and answer.get("agent_id") == json.loads(body)["agent_id"]:
            return self._done(answer, given, mark)
        if reply.status in (404, 405, 410, 501):
            log.info("the server knows no enrolment; batches are signed all the same")
            if self._doubts_log_key:  # an older server, whose log signs no receipts
                self._kept["log_key"], self._doubts_log_key = "", False
            return self._pause(UNKNOWN_S)
        if reply.status in (400, 401, 403, 409, 413, 415, 422):
            code = answer.get("code")
            word = code if isinstance(code, str) and _WORD.fullmatch(code) else ""
            log.warning("the server does not enrol this installation (%d %s)", reply.status, word)
            return self._pause(SLOW_S)
        return self._later(str(reply.status))

    def _later(self, why: str) -> float:
        self._failures += 1
        log.log(logging.WARNING if self._failures == 1 else logging.DEBUG, "enrolment failed (%s)", why)
        delay = max(1.0, retry_delay(self._failures, self._rng))
        self._not_before = time.monotonic() + delay
        return delay

    def _pause(self, seconds: float) -> float:
        self._failures = 0
        self._not_before = time.monotonic() + seconds
        return seconds

    def _done(self, answer: Mapping[str, Any], given: Optional[str], mark: str) -> float:
        self._failures = 0
        state, token = answer.get("state"), answer.get("token")
        found: dict[str, Any] = {"mark": mark, "server": self._transport.endpoint.url, "given": _digest(given)}
        found["state"] = state if isinstance(state, str) and _WORD.fullmatch(state) else "unknown"
        if isinstance(token, str) and _TOKEN.fullmatch(token):
            found["token"] = token
        told = answer.get("log_key")
        found["log_key"] = told if isinstance(told, str) and _KEY.fullmatch(told) else ""
        if self.log_key and self.log_key != found["log_key"]:
            log.warning("the server's log key was %s and is now %s", self.log_key, found["log_key"] or "not told")
        self._doubts_log_key = False
        self._kept = found
        try:
            self._write(found)
        except OSError as error:
            log.warning("the enrolment cannot be kept (%s); it is asked for again after a restart", error.strerror)
        shown = wire.fingerprint(base64.b64decode(self._signer.public_key or ""))
        log.info("enrolled (%s), key %s", found["state"], shown)
        return 0.0

    def _write(self, found: Mapping[str, Any]) -> None:
        path = self._directory / FILE
        safe_file(path)
        making = path.with_name(f"{FILE}.new")
        making.unlink(missing_ok=True)
        with open(os.open(str(making), os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600), "w") as file:
            json.dump(found, file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(str(making), str(path))


def _answer(reply: Reply) -> dict[str, Any]:
    try:
        value = json.loads(reply.body)
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}
