"""How much an org, a key and a node may send: counted in this process, before a byte of the body is read.

In this process and not in the broker: a broker that is away would have to open the door or shut it, and a round trip
costs more than all the rest of the check. What that leaves: each web process counts for itself, with its share of the
limit, and after a restart every bucket is full. The agent keeps what was refused and sends it when it was told to.
"""

from __future__ import annotations

import logging
import time

from django.conf import settings

from fleet.errors import QuotaExceeded
from orgs.buckets import Buckets, Rate
from orgs.keys import KeyInfo

BURST_S = 5.0  # seconds of its rate that who was quiet may send at once
KEPT_S = 1.0  # seconds of it that a backlog leaves for what is live
TELL_EVERY_S = 60.0

log = logging.getLogger(__name__)
buckets = Buckets()
_told_at: dict[int, float] = {}


def check(key: KeyInfo, size: int, is_backlog: bool = False) -> None:
    """Count an upload of `size` bytes against all quotas of its key. Raises QuotaExceeded → 429, counted for none."""
    kept_s = KEPT_S if is_backlog else 0.0
    whose = [("org", key.org_id, settings.GOODPUT_QUOTA_ORG)]
    if key.id:
        kind, limits = ("node", settings.GOODPUT_QUOTA_NODE) if key.node else ("key", settings.GOODPUT_QUOTA_KEY)
        whose.append((kind, key.id, limits))
    wanted = []
    for kind, number, limits in whose:
        for unit, limit, amount in zip(("batches", "bytes"), limits, (1.0, float(size)), strict=True):
            if limit > 0:
                share = limit / settings.GOODPUT_WEB_WORKERS
                wanted.append(((f"{kind} {unit}", number), Rate(share, share * BURST_S, share * kept_s), amount))
    wait_s = buckets.take(*wanted)
    if wait_s > 0:
        _tell(key)
        raise QuotaExceeded("This org, key or node sends more than its quota. Send this batch again later.", wait_s)


def _tell(key: KeyInfo) -> None:
    """One line a minute per org: the operator must see who is held back, and no flood of lines."""
    now = time.monotonic()
    if now - _told_at.get(key.org_id, -TELL_EVERY_S) >= TELL_EVERY_S:
        _told_at[key.org_id] = now
        log.warning("quota_exceeded org=%s key=%s: uploads are refused until it sends less", key.org_slug, key.prefix)
