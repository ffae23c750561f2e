"""The status contract: what a server's answer means for the batch that it answers (facts/reliability 1.4).

Only a receipt whose hash is the batch's own lets a batch leave. Everything that is not certainly a permanent refusal
by a Goodput server keeps it.
"""

from __future__ import annotations

import email.utils
import json
import math
import re
from datetime import datetime, timezone
from typing import Any, Mapping, NamedTuple, Optional

from agent.schedule import SLOW_RETRY_S, clamp_retry_after

DELIVERED = "delivered"
RETRY = "retry"  # keep, wait with jitter or as long as the server says
SLOW = "slow"  # keep, wait 15 minutes: a key can be issued again, a route repaired
QUARANTINE = "quarantine"  # the server will never take these bytes
SPLIT = "split"  # too large: halve it

_RFC3339 = re.compile(r"^(\d{4}-\d\d-\d\d)[Tt ](\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?(?:[Zz]|\+00:00)$")


class Outcome(NamedTuple):
    """What to do with a batch, and why in a few words that hold nothing the server sent but a checked code."""

    action: str
    why: str
    retry_after_s: Optional[float] = None
    received_at: Optional[int] = None
    receipt: Optional[dict[str, Any]] = None


def parse_rfc3339_ms(text: object) -> Optional[int]:
    """ms since 1970 of an RFC 3339 UTC instant, None if it is none."""
    match = _RFC3339.match(text) if isinstance(text, str) else None
    if match is None:
        return None
    day, clock, fraction = match.groups()
    try:
        whole = datetime.strptime(f"{day} {clock}", "%Y-%m-%d %H:%M:%S").replace(tzinfo=timezone.utc)  # noqa: UP017
    except ValueError:
        return None
    return int(whole.timestamp()) * 1000 + int((fraction or "0").ljust(3, "0")[:3])


def parse_retry_after(text: Optional[str], now_s: float) -> Optional[float]:
    """Seconds to wait, within 1 s and 15 min, from a number or an HTTP date; None for anything else."""
    if not text:
        return None
    try:
        seconds = float(text)
    except ValueError:
        try:
            seconds = email.utils.parsedate_to_datetime(text).timestamp() - now_s
        except (ValueError, TypeError, IndexError, OverflowError):
            return None
    return clamp_retry_after(seconds) if math.isfinite(seconds) else None


def parse_receipt(body: bytes, sha256: str, seq: Optional[int]) -> Optional[dict[str, Any]]:
    """A receipt for exactly this batch; None for anything else, however friendly it looks."""
    receipt = _json_map(body)
    if receipt is None or receipt.get("batch_sha256") != sha256 or not isinstance(receipt.get("node"), str):
        return None
    if receipt.get("seq") is not None and receipt["seq"] != seq:
        return None
    return None if parse_rfc3339_ms(receipt.get("received_at")) is None else receipt


def _json_map(body: bytes) -> Optional[dict[str, Any]]:
    try:
        value = json.loads(body)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _problem_code(headers: Mapping[str, str], body: bytes) -> Optional[str]:
    """The machine code of an application/problem+json answer; None if a proxy or a portal wrote it."""
    if headers.get("content-type", "").split(";")[0].strip().lower() != "application/problem+json":
        return None
    problem = _json_map(body)
    code = problem.get("code") if problem else None
    if not isinstance(code, str) or not re.fullmatch(r"[a-z0-9_.-]{1,64}", code):
        return None
    return None if problem is not None and problem.get("permanent") is False else code


def decide(
    status: int, headers: Mapping[str, str], body: bytes, sha256: str, seq: Optional[int], now_s: float
) -> Outcome:
    """The outcome of one upload. `headers` has lower-case names; `body` is cut at 64 kB."""
    retry_after = parse_retry_after(headers.get("retry-after"), now_s)
    if 200 <= status < 300 or status == 409:
        receipt = parse_receipt(body, sha256, seq)
        if receipt is not None:
            at = parse_rfc3339_ms(receipt["received_at"])
            return Outcome(DELIVERED, "receipt", received_at=at, receipt=receipt)
    code = _problem_code(headers, body)
    if status == 409 and code == "seq_conflict":
        return Outcome(QUARANTINE, "seq_conflict: another installation uses this identity")
    if status == 413:
        return Outcome(SPLIT, "too large")
    if status in (400, 415, 422) and code is not None:
        return Outcome(QUARANTINE, code)
    if status in (401, 403):
        return Outcome(SLOW, f"{status}: the key was refused", retry_after or SLOW_RETRY_S)
    if status in (404, 405, 410):
        return Outcome(SLOW, f"{status}: no Goodput server at this address", retry_after or SLOW_RETRY_S)
    if 200 <= status < 400:
        return Outcome(RETRY, f"{status} without a receipt", retry_after)
    return Outcome(RETRY, str(status), retry_after)
