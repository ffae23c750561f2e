"""What goes into a computation and what comes out of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from decimal import Decimal
from fractions import Fraction

from claims.domain.credit import Credit
from claims.domain.facts import FactRun
from claims.domain.outages import Outage
from claims.domain.periods import Period
from claims.domain.rows import Row
from claims.domain.spans import Spans

OK = "ok"
INCOMPLETE = "incomplete"
INSUFFICIENT_DATA = "insufficient_data"
NOT_MEASURABLE = "not_measurable"


@dataclass(frozen=True, slots=True)
class AutomaticCredit:
    """A row of the invoice: what the provider credited to a unit by itself (contract.md 13)."""

    unit: str
    amount: Decimal
    reference: str = ""


@dataclass(frozen=True, slots=True)
class Inputs:
    """Everything but the contract.

    `facts`: each subject's runs in slot order, absolute slots; what no run covers in `[first_slot, end_slot)` is
    unknown. That range reaches beyond the period, so that runs over its edges are whole. `witnessed`: for each node
    the slots in which a pair of witnesses was alive (contract.md 4); None says that every slot was witnessed and must
    be said. `fees`: what was charged for each unit, instead of the contract's `fee_charged`; a unit that is not among
    them was charged nothing. `automatic`, `invoice_complete`: the automatic credits of units and members, and whether
    the invoice is there although it has none.
    """

    period: Period
    facts: Mapping[str, Sequence[FactRun]]
    rows: Sequence[Row]
    witnessed: Mapping[str, Spans] | None
    first_slot: int
    end_slot: int
    fees: Mapping[str, Decimal] = field(default_factory=dict)
    automatic: Sequence[AutomaticCredit] = ()
    invoice_complete: bool = False
    previous_month_spend: Decimal | None = None


@dataclass(frozen=True, slots=True)
class Coverage:
    """Known and owed slots; `customer`: slots that are unknown because of the customer, never added to the known."""

    known: int
    owed: int
    customer: int

    @property
    def unknown(self) -> int:
        """Owed slots of which nothing is known."""
        return self.owed - self.known

    @property
    def share(self) -> Fraction | None:
        """Known / owed; None where nothing was owed."""
        return Fraction(self.known, self.owed) if self.owed else None


@dataclass(frozen=True, slots=True)
class Reading:
    """One reading of one unit: `lost` counted slots of `denominator`, the uptime (0..1, None: no slot) and credit."""

    denominator: int
    lost: Fraction
    uptime: Fraction | None
    credit: Credit


@dataclass(frozen=True, slots=True)
class Against:
    """Slots of the lower reading that were taken away from the claim, by rule. `excluded`: owed slots under an
    exclusion, up or down; `excluded_down`: the down ones of them; `outside_period`: they belong to a neighbour.
    """

    excluded: int = 0
    excluded_down: int = 0
    unentitled_down: int = 0
    outside_clock: int = 0
    outside_minutes: int = 0
    below_minimum: int = 0
    outside_period: int = 0

    def plus(self, other: Against) -> Against:
        """Both added."""
        return Against(*(getattr(self, one.name) + getattr(other, one.name) for one in fields(self)))


@dataclass(frozen=True, slots=True)
class UnitResult:
    """A unit's readings. `covered`: enough is known of it; a unit that is not gives no credit. `automatic`: what is
    taken as credited already, `invoiced` if the invoice says it (None: no invoice), else the `estimate`.
    """

    name: str
    readings: Mapping[str, Reading]
    coverage: Coverage
    covered: bool
    fee: Decimal
    charged_slots: int
    automatic: Decimal
    automatic_estimate: Decimal
    invoiced: Decimal | None
    outages: tuple[Outage, ...]
    against: Against

    @property
    def automatic_difference(self) -> Decimal | None:
        """Invoiced minus computed; to be listed where it is not 0."""
        return None if self.invoiced is None else self.invoiced - self.automatic_estimate


@dataclass(frozen=True, slots=True)
class Result:
    """The contract's result. `claim` is None unless the status is ok; `basis`: the reading that it rests on."""

    contract: str
    version: str
    currency: str
    period: Period
    status: str
    claim: Decimal | None
    basis: str
    credits: Mapping[str, Decimal]
    units: tuple[UnitResult, ...]
    coverage: Coverage
    fee_missing: bool = False

    def unit(self, name: str) -> UnitResult:
        """The unit of this name."""
        return next(unit for unit in self.units if unit.name == name)
