"""A contract as validated data. Names of fields and values are those of the worked examples.

A field that is None is one that the contract does not say; `claims.domain.completeness` decides whether that matters
(contract.md 9). `claims.domain.contract_load` reads and writes it; nothing here has a default that counts more.
"""

from __future__ import annotations

from calendar import monthrange
from dataclasses import dataclass, field
from datetime import date
from decimal import Decimal
from fractions import Fraction

NONE = "none"

KINDS = ("tiers", "outage_table", "pro_rata", "multiplier", "repair_time", "weighted", "clock_hour")
#: Shapes that take each outage whole, once, in the period of its start (contract.md 11).
PER_OUTAGE = ("outage_table", "repair_time")
#: Shapes that need the price of an hour.
HOURLY = ("outage_table", "multiplier", "clock_hour")
SCOPES = ("gpu", "node", "group", "domain")
POOLINGS = ("each", "slots")
COMPARES = (">=", ">")
MIN_DURATION_TESTS = ("whole", "clipped")
MINUTE_RULES = ("slots", "clock_minute", "elapsed_floor")
DENOMINATORS = ("full_month", "existence")
EXCLUSION_MODES = ("counted_as_up", "removed_from_denominator")
CLOCK_STARTS = ("measured", "ticket", "acknowledgement")
CLOCK_ENDS = ("measured", "ticket")
ALLOWANCES = ("deducted", "threshold")
STEPS = ("full", "started")
AUTO_CREDIT_RULES = ("subtract_from_credit", "reduce_base")
ROUNDINGS = ("floor", "half_up", "half_even", "ceiling")
LEVELS = ("unit", "claim", "period")
SHARES = ("fee", "base", "previous_month_spend")
MINIMUM_KINDS = ("nothing_up_to", "at_least")
DEADLINE_UNITS = ("days", "months")
DEADLINE_EVENTS = ("incident_start", "incident_end", "period_end")
VERSION_RULES = ("period_start", "incident", "renewal")


@dataclass(frozen=True, slots=True)
class Tier:
    """Uptime strictly below `below` percent gives `credit` percent of the fee."""

    below: Decimal
    credit: Decimal


@dataclass(frozen=True, slots=True)
class OutageStep:
    """An outage shorter than `below_s` seconds (None: any longer one) gives `credit_hours` at the hourly price."""

    below_s: int | None
    credit_hours: Decimal


@dataclass(frozen=True, slots=True)
class ClockHourRule:
    """An hour with more (`compare`) than `threshold_s` seconds down is not charged."""

    threshold_s: int
    compare: str
    zone: str


@dataclass(frozen=True, slots=True)
class Cap:
    """The most that is paid: `amount`, or `percent` of what `share_of` names, per `level` (contract.md 14)."""

    level: str
    amount: Decimal | None = None
    percent: Decimal | None = None
    share_of: str = "fee"


@dataclass(frozen=True, slots=True)
class Minimum:
    """`nothing_up_to` an amount, or a credit that is `at_least` it, per `level` (contract.md 14): `amount`, or
    `percent` of what `share_of` names.
    """

    kind: str
    level: str
    amount: Decimal | None = None
    percent: Decimal | None = None
    share_of: str = "fee"


@dataclass(frozen=True, slots=True)
class Deadline:
    """A claim must be filed within `count` days or months after the event that `after` names (contract zone)."""

    count: int
    unit: str
    after: str


@dataclass(frozen=True, slots=True)
class Unit:
    """What a percentage is judged by: a GPU, node, group or domain with its members; `min_healthy` of them must be
    healthy (None: as the contract says). Without members its own subject decides. `provider_id`: what the provider
    calls it, for the ticket.
    """

    name: str
    members: tuple[str, ...] = ()
    min_healthy: int | None = None
    provider_id: str = ""


@dataclass(frozen=True, slots=True)
class Contract:
    """The terms that one computation replays. See `docs/sla-arithmetic.md` for each rule."""

    name: str
    version: str
    kind: str
    counts: tuple[str, ...]
    scope: str
    units: tuple[Unit, ...] = ()
    # the period
    period_kind: str = "calendar_month"
    zone: str | None = None
    anchor_day: int | None = None
    # what counts
    weights: tuple[int, ...] = (0,)
    ambiguous_counts: bool | None = None
    owns_driver: bool | None = None
    owns_fabric: bool | None = None
    min_healthy: int | None = None
    pooling: str | None = None
    # how long
    min_duration_s: int | None = None
    min_duration_compare: str | None = None
    min_duration_test: str | None = None
    bridging_s: int | None = None
    minute_rule: str | None = None
    # what is left out
    denominator: str | None = None
    exclusion_mode: str | None = None
    excludes: tuple[str, ...] | None = None
    maintenance_notice_h: int | None = None
    clock_start: str | None = None
    clock_end: str | None = None
    stop_clock: bool | None = None
    # the credit
    tiers: tuple[Tier, ...] = ()
    commitment: Decimal | None = None
    allowance: str | None = None
    multiplier: Decimal | None = None
    hourly_price: Decimal | None = None
    outage_table: tuple[OutageStep, ...] = ()
    limit_s: int | None = None
    step_s: int | None = None
    credit_percent_per_step: Decimal | None = None
    steps: str | None = None
    clock_hour_rule: ClockHourRule | None = None
    # money
    fee_charged: Decimal | None = None
    currency: str = ""
    auto_credit_rule: str | None = None
    cap: Cap | str | None = None
    minimum: Minimum | str | None = None
    rounding: str = "floor"
    decimals: int = 2
    stacking_group: str = ""
    minimum_coverage_percent: Decimal | None = None
    # paper
    version_rule: str = "period_start"
    term_starts: str = ""
    term_months: int | None = None
    effective_from: str = ""
    effective_to: str = ""
    provider: str = ""
    customer: str = ""
    source: str = ""
    claim_deadline: str = ""
    deadline: Deadline | None = None
    filing_channel: str = ""
    filing_subject: str = ""
    account: str = ""
    contact: str = ""
    evidence: tuple[str, ...] = field(default=())

    @property
    def binary(self) -> bool:
        """Whether slots are up or down; a weighted contract has no minimum duration and no minute rule."""
        return self.kind != "weighted"

    def required(self, unit: Unit) -> int | None:
        """How many of the unit's members must be healthy."""
        return unit.min_healthy if unit.min_healthy is not None else self.min_healthy

    def owns(self, what: str) -> bool:
        """Whether the contract says that the provider owns it: `driver` or `fabric`. Silence is no."""
        return bool(self.owns_driver if what == "driver" else self.owns_fabric if what == "fabric" else False)

    def clock_ends_with_ticket(self) -> bool:
        """Whether closing the ticket ends the clock; unless said otherwise where the ticket also starts it."""
        if self.clock_end is None:
            return self.clock_start != "measured"
        return self.clock_end == "ticket"

    def tier_credit(self, uptime: Fraction) -> Decimal:
        """Percent of the fee for this uptime (0..1): the lowest tier that it is strictly below, exactly compared."""
        credit = Decimal(0)
        for tier in self.tiers:
            if uptime * 100 < Fraction(tier.below):
                credit = tier.credit
        return credit


def pick_version(versions: list[Contract], day: str) -> Contract | None:
    """The version that decides a period which starts on the day (`2026-10-01`; contract.md 16); None: none is in force.

    Where the version in force says `renewal`, the one decides that was in force when the running term began.
    """
    found = _in_force(versions, day)
    if found is None or found.version_rule != "renewal":
        return found
    return _in_force(versions, term_start(found, day)) or found


def term_start(contract: Contract, day: str) -> str:
    """The first day of the term that the day lies in; the first term's for a day before it."""
    first = date.fromisoformat(contract.term_starts)
    at, number = first, 0
    while at.isoformat() <= day:
        start = at
        number += contract.term_months or 1
        month = first.month - 1 + number
        year, month = first.year + month // 12, month % 12 + 1
        at = date(year, month, min(first.day, monthrange(year, month)[1]))
    return (first if number == 0 else start).isoformat()


def _in_force(versions: list[Contract], day: str) -> Contract | None:
    """`effective_from` is inclusive, `effective_to` exclusive; an empty one is open. The latest start wins."""
    found = [
        version
        for version in versions
        if version.effective_from <= day and (not version.effective_to or day < version.effective_to)
    ]
    return max(found, key=lambda version: version.effective_from, default=None)
