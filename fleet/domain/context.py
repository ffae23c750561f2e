"""What the fold must know and no batch says: declared hardware, witnesses, dates of an entitlement.

A context is made from dated rows; its digest is part of an hour's input digest.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import astuple, dataclass
from functools import lru_cache

Span = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Context:
    """Dated facts about one node, all instants ms, all spans half-open `[from, to)`.

    `gpus`: declared number of GPUs, None = learned. `ports`: declared ports as (key, index of the nearest GPU's place
    or None); None = learned. `probe_failed`: spans in which the probe failed. `peers_alive`: spans in which peers of
    the cluster were accepted throughout; None = no such witness exists. `assigned`: (place, instant) at which a
    healthy device was assigned to the place, on whatever node. `owns_driver`, `owns_fabric`: the provider owns the
    driver, the fabric.
    """

    gpus: int | None = None
    ports: tuple[tuple[str, int | None], ...] | None = None
    probe_failed: tuple[Span, ...] = ()
    peers_alive: tuple[Span, ...] | None = None
    assigned: tuple[tuple[int, int], ...] = ()
    entitled_from_ms: int | None = None
    entitled_to_ms: int | None = None
    owns_driver: bool = False
    owns_fabric: bool = False

    def digest(self) -> bytes:
        """SHA-256 of the canonical form."""
        return _digest(self)


@lru_cache(maxsize=65536)
def _digest(context: Context) -> bytes:
    return hashlib.sha256(json.dumps(astuple(context), separators=(",", ":")).encode()).digest()


EMPTY = Context()


def covers(spans: tuple[Span, ...] | None, from_ms: int, to_ms: int) -> bool:
    """Whether one of the spans holds `[from_ms, to_ms)` wholly. A witness counts only for what it observed."""
    return any(a <= from_ms and to_ms <= b for a, b in spans or ())
