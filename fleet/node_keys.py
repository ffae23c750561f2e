"""Which node a batch is of: its cluster and the hardware, or the name where the agent can't tell the hardware."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cached_property


@dataclass(frozen=True)
class NodeKey:
    """What a batch says of where it comes from."""

    cluster: str
    name: str
    hw_id: str | None

    @property
    def identity(self) -> str:
        """The hardware where the agent knows it, else the name."""
        return f"hw:{self.hw_id}" if self.hw_id else f"name:{self.name}"

    @cached_property
    def number(self) -> int:
        """What batches and nodes are matched by."""
        return key_number(self.cluster, self.identity)


def key_number(cluster: str, identity: str) -> int:
    """64 bits of a hash over cluster and identity, signed.

    No text of a batch holds the separator (U+001F is a control), so no two pairs are spelt alike.
    """
    return int.from_bytes(hashlib.sha256(f"{cluster}\x1f{identity}".encode()).digest()[:8], "big", signed=True)
