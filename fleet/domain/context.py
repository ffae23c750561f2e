"""What the fold must know and no batch says: declared hardware, witnesses, dates of an entitlement.

A context is made from dated rows; its digest is part of an hour's input digest.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import astuple, dataclass
from functools import lru_cache

from fleet.domain.rules import Rules

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


class Dated:
    """What dated rows say over time: the rule set and the context of each hour, the witnesses of a silence.

    This one says the same at all times and knows no other witnesses; the service's reads the org's rows.
    """

    def __init__(self, rules: Rules, context: Context = EMPTY) -> None:
        self._rules, self._context = rules, context

    def rules(self, hour: int) -> Rules:
        """The rule set in force in this hour (hours since 1970 UTC), amendments included."""
        return self._rules

    def context(self, hour: int, is_first: bool = False) -> Context:
        """The context of this hour's items; `is_first`: no sample of the node came before them."""
        return self._context

    def witnessed(
        self, context: Context, from_ms: int, to_ms: int, seen_ms: int | None, rebooted: bool = False
    ) -> Context:
        """`context` with the witnesses of `[from_ms, to_ms)`, in which nothing came from the node.

        `seen_ms`: when the server took what ended that silence, None while it lasts. Only what it had taken by then
        may count, so that a re-fold gives the same. `rebooted`: a new boot ended it.
        """
        return context


def dated_of(rules: Rules | Dated, context: Context = EMPTY) -> Dated:
    """`rules` if it is dated already, else this rule set and context for all times."""
    return rules if isinstance(rules, Dated) else Dated(rules, context)


def merged(spans: Iterable[Span]) -> tuple[Span, ...]:
    """The union of the spans, in order of time; those that touch are one.

    >>> merged([(5, 9), (0, 5), (20, 30)])
    ((0, 9), (20, 30))
    """
    out: list[Span] = []
    for a, b in sorted(spans):
        if out and a <= out[-1][1]:
            out[-1] = (out[-1][0], max(out[-1][1], b))
        else:
            out.append((a, b))
    return tuple(out)


def touches(spans: tuple[Span, ...], from_ms: int, to_ms: int) -> bool:
    """Whether one of the spans has an instant in common with `[from_ms, to_ms)`."""
    return any(a < to_ms and b > from_ms for a, b in spans)


def covers(spans: tuple[Span, ...] | None, from_ms: int, to_ms: int) -> bool:
    """Whether one of the spans holds `[from_ms, to_ms)` wholly. A witness counts only for what it observed."""
    return any(a <= from_ms and to_ms <= b for a, b in spans or ())
