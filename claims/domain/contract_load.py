"""Reading and writing contracts: TOML or JSON in, canonical bytes and their digest out.

Numbers may be texts, integers or decimals, never binary floats: a threshold of 99.9 must be exactly that.
"""

from __future__ import annotations

import hashlib
import json
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import fields
from datetime import date
from decimal import Decimal, InvalidOperation
from itertools import pairwise
from typing import Any

from claims.domain import contract as terms
from claims.domain.contract import (
    NONE,
    Cap,
    ClockHourRule,
    Contract,
    Deadline,
    Minimum,
    OutageStep,
    Tier,
    Unit,
)
from claims.domain.facts import CATEGORIES
from claims.domain.periods import PERIOD_KINDS, zone_of
from claims.domain.rows import EXCLUSIONS
from claims.errors import BadTiers, ContractError, MissingKey, UnknownKey

REQUIRED = ("name", "version", "kind", "counts", "scope")


def contract_from_toml(text: str) -> Contract:
    """The contract of a TOML text. Raises ContractError."""
    try:
        return contract_from(tomllib.loads(text, parse_float=Decimal))
    except tomllib.TOMLDecodeError as error:
        raise ContractError(f"The contract is no TOML: {error}") from error


def contract_from_json(text: str | bytes) -> Contract:
    """The contract of a JSON text. Raises ContractError."""
    try:
        document = json.loads(text, parse_float=Decimal)
    except ValueError as error:
        raise ContractError(f"The contract is no JSON: {error}") from error
    if not isinstance(document, dict):
        raise ContractError("The contract is no JSON object.")
    return contract_from(document)


def contract_from(document: Mapping[str, Any]) -> Contract:
    """The validated contract. Raises ContractError naming the field."""
    values: dict[str, Any] = {}
    for key, value in document.items():
        read = _READERS.get(key)
        if read is None:
            raise UnknownKey(f"A contract has no field {key!r}.", key)
        values[key] = read(key, value)
    for key in REQUIRED:
        if not values.get(key):
            raise MissingKey(f"A contract needs the field {key!r}.", key)
    contract = Contract(**values)
    validate(contract)
    return contract


def validate(contract: Contract) -> None:
    """Raise ContractError where fields contradict each other."""
    if contract.zone is not None:
        zone_of(contract.zone)
    if contract.period_kind == "billing_cycle" and contract.anchor_day is None:
        raise MissingKey("A billing cycle needs its anchor day.", "anchor_day")
    if contract.kind == "tiers" or contract.tiers:
        _check_tiers(contract)
    if contract.kind == "outage_table":
        _check_outage_table(contract.outage_table)
    if contract.kind == "pro_rata" and contract.commitment is None:
        raise MissingKey("A pro rata contract needs its commitment.", "commitment")
    if contract.kind == "multiplier" and contract.multiplier is None:
        raise MissingKey("A multiplier contract needs its multiplier.", "multiplier")
    if contract.kind == "clock_hour" and contract.clock_hour_rule is None:
        raise MissingKey("A clock-hour contract needs its rule.", "clock_hour_rule")
    if contract.kind == "repair_time":
        for key in ("limit_s", "step_s", "credit_percent_per_step"):
            if getattr(contract, key) is None:
                raise MissingKey(f"A repair-time contract needs {key}.", key)
        if contract.step_s == 0:
            raise ContractError("step_s must be more than 0.", "step_s")
    if contract.version_rule == "renewal":
        if not contract.term_starts or not contract.term_months:
            raise MissingKey("Terms that change at renewal need term_starts and term_months.", "term_starts")
        try:
            date.fromisoformat(contract.term_starts)
        except ValueError as error:
            raise ContractError("term_starts must be a day such as 2026-10-01.", "term_starts") from error
    if contract.maintenance_notice_h is not None and "maintenance" not in (contract.excludes or ()):
        raise ContractError("A notice is named, but maintenance is not excluded.", "maintenance_notice_h")
    names = [unit.name for unit in contract.units]
    if len(set(names)) != len(names):
        raise ContractError("Two units have one name.", "units")
    for unit in contract.units:
        required = contract.required(unit)
        if unit.members and required is not None and not 1 <= required <= len(unit.members):
            raise ContractError(f"{unit.name}: min_healthy must be 1 to {len(unit.members)}.", "min_healthy")


def canonical(contract: Contract) -> bytes:
    """One sequence of bytes for one contract: JSON with sorted keys, numbers as texts, what is not said left out."""
    return json.dumps(_plain(contract), sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()


def digest(contract: Contract) -> str:
    """SHA-256 of the canonical bytes, hex."""
    return hashlib.sha256(canonical(contract)).hexdigest()


def _plain(value: Any) -> Any:
    if isinstance(value, Decimal):
        return format(value.normalize(), "f")
    if value is None or isinstance(value, str | bool):
        return value
    if isinstance(value, int):
        return str(value)
    if isinstance(value, tuple):
        if value and isinstance(value[0], Tier):
            return [[_plain(tier.below), _plain(tier.credit)] for tier in value]
        if value and isinstance(value[0], OutageStep):
            return [[_plain(step.below_s), _plain(step.credit_hours)] for step in value]
        return [_plain(one) for one in value]
    plain = {one.name: getattr(value, one.name) for one in fields(value)}
    return {
        key: _plain(one)
        for key, one in plain.items()
        if one is not None and (one != () or key == "excludes") and one != ""
    }


def _check_tiers(contract: Contract) -> None:
    tiers = contract.tiers
    if not tiers:
        raise BadTiers("A contract with tiers needs at least one.", "tiers")
    for tier in tiers:
        if not 0 < tier.below <= 100 or not 0 < tier.credit <= 100:
            raise BadTiers(f"The tier below {tier.below} with {tier.credit} % lies outside 0 to 100.", "tiers")
    for before, after in pairwise(tiers):
        if after.below >= before.below:
            raise BadTiers(f"The tiers overlap: {after.below} comes after {before.below}.", "tiers")
        if after.credit <= before.credit:
            raise BadTiers(
                f"The tiers are not monotone: below {after.below} gives {after.credit} %, not more than above.", "tiers"
            )
    if contract.commitment is not None and contract.commitment != tiers[0].below:
        raise BadTiers(f"The first tier starts at {tiers[0].below}, the commitment is {contract.commitment}.", "tiers")


def _check_outage_table(table: tuple[OutageStep, ...]) -> None:
    if not table:
        raise BadTiers("An outage table needs at least one line.", "outage_table")
    bounds = [step.below_s for step in table]
    known = [bound for bound in bounds if bound is not None]
    if bounds[-1] is not None or None in bounds[:-1] or any(b <= a for a, b in pairwise(known)):
        raise BadTiers("The lengths of an outage table rise, and its last line has no upper bound.", "outage_table")
    hours = [step.credit_hours for step in table]
    if any(b < a for a, b in pairwise(hours)):
        raise BadTiers("A longer outage gives less than a shorter one.", "outage_table")


def _text(key: str, value: Any) -> str:
    if not isinstance(value, str):
        raise ContractError(f"{key} must be a text.", key)
    return value


def _decimal(key: str, value: Any) -> Decimal:
    if isinstance(value, bool | float) or not isinstance(value, str | int | Decimal):
        raise ContractError(f"{key} must be a number, written exactly.", key)
    try:
        number = Decimal(value)
    except InvalidOperation as error:
        raise ContractError(f"{key}: {value!r} is no number.", key) from error
    if not number.is_finite() or number < 0:
        raise ContractError(f"{key} must be a number from 0 on.", key)
    return number


def _integer(key: str, value: Any) -> int:
    number = _decimal(key, value)
    if number != number.to_integral_value():
        raise ContractError(f"{key} must be a whole number.", key)
    return int(number)


def _boolean(key: str, value: Any) -> bool:
    if value in (True, "yes"):
        return True
    if value in (False, "no"):
        return False
    raise ContractError(f"{key} must be yes or no.", key)


def _choice(*allowed: str, **also: str) -> Callable[[str, Any], str]:
    def read(key: str, value: Any) -> str:
        text = also.get(value, value) if isinstance(value, str) else value
        if text not in allowed:
            raise ContractError(f"{key} must be one of {', '.join(allowed)}, not {value!r}.", key)
        return str(text)

    return read


def _texts(allowed: tuple[str, ...] = ()) -> Callable[[str, Any], tuple[str, ...]]:
    def read(key: str, value: Any) -> tuple[str, ...]:
        if not isinstance(value, list | tuple) or not all(isinstance(one, str) and one for one in value):
            raise ContractError(f"{key} must be a list of texts.", key)
        for one in value:
            if allowed and one not in allowed:
                raise ContractError(f"{key} must be of {', '.join(allowed)}; {one!r} is none.", key)
        return tuple(value)

    return read


def _pairs(key: str, value: Any) -> list[tuple[Any, Any]]:
    if not isinstance(value, list | tuple) or not all(isinstance(one, list | tuple) and len(one) == 2 for one in value):
        raise ContractError(f"{key} must be a list of pairs.", key)
    return [(one[0], one[1]) for one in value]


def _tiers(key: str, value: Any) -> tuple[Tier, ...]:
    return tuple(Tier(_decimal(key, below), _decimal(key, credit)) for below, credit in _pairs(key, value))


def _outage_table(key: str, value: Any) -> tuple[OutageStep, ...]:
    return tuple(
        OutageStep(None if below in (None, NONE) else _integer(key, below), _decimal(key, hours))
        for below, hours in _pairs(key, value)
    )


def _table(key: str, value: Any, needed: tuple[str, ...], allowed: tuple[str, ...]) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise ContractError(f"{key} must be a table.", key)
    for name in value:
        if name not in (*needed, *allowed):
            raise UnknownKey(f"{key} has no field {name!r}.", f"{key}.{name}")
    for name in needed:
        if name not in value:
            raise MissingKey(f"{key} needs the field {name!r}.", f"{key}.{name}")
    return value


def _units(key: str, value: Any) -> tuple[Unit, ...]:
    if not isinstance(value, list | tuple):
        raise ContractError(f"{key} must be a list of tables.", key)
    out = []
    for one in value:
        table = _table(key, one, ("name",), ("members", "min_healthy", "provider_id"))
        members = _texts()(f"{key}.members", table.get("members", ()))
        if len(set(members)) != len(members):
            raise ContractError(f"{table['name']} names a member twice.", key)
        least = table.get("min_healthy")
        healthy = None if least is None else _integer(key, least)
        out.append(Unit(_text(key, table["name"]), members, healthy, _text(key, table.get("provider_id", ""))))
    return tuple(out)


def _cap(key: str, value: Any) -> Cap | str:
    if value == NONE:
        return NONE
    table = _table(key, value, ("level",), ("amount", "percent", "share_of"))
    return Cap(_choice(*terms.LEVELS)(f"{key}.level", table["level"]), *_how_much(key, table))


def _how_much(key: str, table: Mapping[str, Any]) -> tuple[Decimal | None, Decimal | None, str]:
    """(amount, percent, what it is a share of): one of the first two."""
    if ("amount" in table) == ("percent" in table):
        raise ContractError(f"A {key} is an amount or a percentage.", key)
    return (
        _decimal(f"{key}.amount", table["amount"]) if "amount" in table else None,
        _decimal(f"{key}.percent", table["percent"]) if "percent" in table else None,
        _choice(*terms.SHARES)(f"{key}.share_of", table.get("share_of", "fee")),
    )


def _minimum(key: str, value: Any) -> Minimum | str:
    if value == NONE:
        return NONE
    table = _table(key, value, ("kind", "level"), ("amount", "percent", "share_of"))
    return Minimum(
        _choice(*terms.MINIMUM_KINDS)(f"{key}.kind", table["kind"]),
        _choice(*terms.LEVELS)(f"{key}.level", table["level"]),
        *_how_much(key, table),
    )


def _deadline(key: str, value: Any) -> Deadline:
    table = _table(key, value, ("count", "unit", "after"), ())
    return Deadline(
        _integer(f"{key}.count", table["count"]),
        _choice(*terms.DEADLINE_UNITS)(f"{key}.unit", table["unit"]),
        _choice(*terms.DEADLINE_EVENTS)(f"{key}.after", table["after"]),
    )


def _clock_hour(key: str, value: Any) -> ClockHourRule:
    table = _table(key, value, ("threshold_s", "compare", "zone"), ())
    zone_of(_text(f"{key}.zone", table["zone"]))
    return ClockHourRule(
        _integer(f"{key}.threshold_s", table["threshold_s"]),
        _choice(*terms.COMPARES)(f"{key}.compare", table["compare"]),
        table["zone"],
    )


def _weights(key: str, value: Any) -> tuple[int, ...]:
    if not isinstance(value, list | tuple) or not value:
        raise ContractError(f"{key} must be a list of weights.", key)
    weights = tuple(sorted({_integer(key, one) for one in value}))
    if weights[-1] > 100:
        raise ContractError(f"{key}: a weight is 0 to 100.", key)
    return weights


_READERS: dict[str, Callable[[str, Any], Any]] = {
    "kind": _choice(*terms.KINDS),
    "counts": _texts(CATEGORIES),
    "scope": _choice(*terms.SCOPES),
    "units": _units,
    "period_kind": _choice(*PERIOD_KINDS),
    "anchor_day": _integer,
    "weights": _weights,
    "ambiguous_counts": _boolean,
    "owns_driver": _boolean,
    "owns_fabric": _boolean,
    "min_healthy": _integer,
    "pooling": _choice(*terms.POOLINGS),
    "min_duration_s": _integer,
    "min_duration_compare": _choice(*terms.COMPARES),
    "min_duration_test": _choice(*terms.MIN_DURATION_TESTS, whole_incident_before_clipping_to_the_period="whole"),
    "bridging_s": _integer,
    "minute_rule": _choice(*terms.MINUTE_RULES),
    "denominator": _choice(*terms.DENOMINATORS, full_period="full_month"),
    "exclusion_mode": _choice(*terms.EXCLUSION_MODES),
    "excludes": _texts(EXCLUSIONS),
    "maintenance_notice_h": _integer,
    "clock_start": _choice(
        *terms.CLOCK_STARTS, fault="measured", reported="ticket", confirmed="acknowledgement"
    ),
    "clock_end": _choice(*terms.CLOCK_ENDS),
    "stop_clock": _boolean,
    "tiers": _tiers,
    "commitment": _decimal,
    "allowance": _choice(*terms.ALLOWANCES),
    "multiplier": _decimal,
    "hourly_price": _decimal,
    "outage_table": _outage_table,
    "limit_s": _integer,
    "step_s": _integer,
    "term_months": _integer,
    "credit_percent_per_step": _decimal,
    "steps": _choice(*terms.STEPS),
    "clock_hour_rule": _clock_hour,
    "fee_charged": _decimal,
    "auto_credit_rule": _choice(*terms.AUTO_CREDIT_RULES),
    "cap": _cap,
    "minimum": _minimum,
    "deadline": _deadline,
    "rounding": _choice(*terms.ROUNDINGS),
    "decimals": _integer,
    "minimum_coverage_percent": _decimal,
    "version_rule": _choice(*terms.VERSION_RULES),
    "evidence": _texts(),
    **{
        name: _text
        for name in (
            "name", "version", "zone", "term_starts", "currency", "stacking_group", "effective_from", "effective_to",
            "provider", "customer", "source", "claim_deadline", "filing_channel", "filing_subject",
            "account", "contact",
        )
    },
}  # fmt: skip
