"""Reads of received batches by their hash."""

from __future__ import annotations

from fleet.models import Inbox


def get_batch(sha256: bytes, scope: str, with_body: bool = False) -> Inbox | None:
    """The batch with this hash; None if there is none, or none that the key may see.

    The hash alone does not say the partition: PostgreSQL skips through the few days of each (18), or scans its keys.
    """
    found = Inbox.objects.filter(sha256=sha256)
    if scope:
        found = found.filter(cluster=scope)
    if not with_body:
        found = found.defer("body")
    return found.order_by("sample_day").first()
