"""Overlays: dated rows with an author, applied to the slots here and nowhere else (contract.md 3)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from claims.domain.facts import ancestors
from claims.domain.spans import Span, normalise
from claims.errors import BadRow
from fleet.domain.slots import SLOT_MS

ENTITLEMENT = "entitlement"
STOPPED = "stopped"
MAINTENANCE = "maintenance"
TICKET = "ticket"
RECORD = "record"
CUSTOMER_BLINDNESS = "customer_blindness"
#: Classes of time that a contract may exclude; every other kind counts (sla.md trap 20).
EXCLUSIONS = (
    MAINTENANCE,
    "emergency",
    "force_majeure",
    "customer_cause",
    "suspension",
    "live_migration",
    "security_patch",
)
KINDS = (ENTITLEMENT, STOPPED, TICKET, RECORD, CUSTOMER_BLINDNESS, *EXCLUSIONS)
#: The end of a row that is still open.
FOREVER = 1 << 60


@dataclass(frozen=True, slots=True)
class Row:
    """One dated row about a resource and what lies in it: the absolute slots `[first_slot, end_slot)`.

    Tickets and records open at `first_slot` and close at `end_slot` (None: still open, or an entitlement without an
    end). `acknowledged_slot`: the provider confirmed. `pauses`: stop-clock spans. `notice_s`: how long before its
    start the provider announced a maintenance (None: not at all). `entered_at_ms`: when the row was written.
    `provider_word`: a record is the provider's own statement about that time, not the customer's note of it.
    """

    kind: str
    resource: str
    first_slot: int
    end_slot: int | None
    author: str = ""
    entered_at_ms: int | None = None
    acknowledged_slot: int | None = None
    pauses: tuple[Span, ...] = ()
    notice_s: int | None = None
    reference: str = ""
    provider_word: bool = True

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise BadRow(f"A row is one of {', '.join(KINDS)}, not {self.kind!r}.", "kind")
        if self.end_slot is not None and self.end_slot < self.first_slot:
            raise BadRow(f"The {self.kind} of {self.resource} ends before it begins.", "end_slot")
        if any(a > b for a, b in self.pauses):
            raise BadRow(f"A pause in the ticket of {self.resource} ends before it begins.", "pauses")

    @property
    def end(self) -> int:
        """Its end; FOREVER while it is open."""
        return FOREVER if self.end_slot is None else self.end_slot

    @property
    def span(self) -> Span:
        """Its slots."""
        return (self.first_slot, self.end)

    def entered_late(self) -> bool:
        """Whether it was written after the time that it is about had begun: shown, never silent (sla.md trap 19)."""
        return self.entered_at_ms is not None and self.entered_at_ms > self.first_slot * SLOT_MS


def slots_inside(from_ms: int, to_ms: int) -> Span:
    """The slots that lie wholly inside the instants: for entitlement, tickets, records."""
    first = -(-from_ms // SLOT_MS)
    return first, max(first, to_ms // SLOT_MS)


def slots_touched(from_ms: int, to_ms: int) -> Span:
    """The slots that the instants touch: for maintenance, exclusions, stops and pauses, which count against us."""
    return from_ms // SLOT_MS, max(from_ms // SLOT_MS, -(-to_ms // SLOT_MS))


class Overlays:
    """The rows of a contract, by kind and resource."""

    def __init__(self, rows: Iterable[Row]) -> None:
        self._by: dict[str, dict[str, list[Row]]] = {}
        for row in rows:
            self._by.setdefault(row.kind, {}).setdefault(row.resource, []).append(row)

    def rows(self, kind: str, resource: str) -> list[Row]:
        """Rows of a kind that name the resource or what it lies in."""
        found = self._by.get(kind)
        return [row for name in ancestors(resource) for row in found.get(name, ())] if found else []

    def of(self, kind: str, resource: str) -> list[Row]:
        """Rows of a kind that name exactly this resource."""
        return self._by.get(kind, {}).get(resource, [])

    def spans(self, kind: str, resource: str) -> list[Span]:
        """The slots of `rows`."""
        return normalise(row.span for row in self.rows(kind, resource))

    def has(self, kind: str) -> bool:
        """Whether there is any row of this kind."""
        return kind in self._by
