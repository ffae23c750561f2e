"""Reads of received batches by their hash."""

from __future__ import annotations

from django.db.models import Q

from fleet import evidence
from fleet.evidence import Batch
from fleet.models import Node
from fleet.sql import execute


def get_batch(sha256: bytes, scope: str, with_body: bool = False) -> Batch | None:
    """The batch with this hash, in the inbox or in a pack; None if there is none, or none that the key may see."""
    found = evidence.get_batch(sha256, bodies=with_body)
    return found if found is not None and scope in ("", found.row.cluster) else None


def is_waiting(one: Batch) -> bool:
    """Whether no worker has folded it yet."""
    statement = "select 1 from fleet_waiting where sample_day = %b and sha256 = %b"
    return bool(execute(statement, [one.sample_day, one.sha256]))


def keys_of(node_id: int) -> list[int]:
    """The keys that a node's batches carry: its own and those of nodes merged into it."""
    return list(Node.objects.filter(Q(pk=node_id) | Q(merged_into_id=node_id)).values_list("key", flat=True))
