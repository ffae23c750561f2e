"""Worked examples: a computation written down in JSON, so that the other side can repeat it by hand.

`read_example(example, variant)` gives contract and inputs, `figures` the numbers by the names that the examples use.
Slots are offsets from the period's first slot; every number is a text; fields that an example does not name have the
values of `NOT_NAMED`, with which the contract is complete. A field that is null is one that the contract omits.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Mapping, Sequence
from decimal import Decimal
from itertools import pairwise
from pathlib import Path
from typing import Any

from claims.domain import contract as terms
from claims.domain.completeness import Assessment, assess
from claims.domain.contract import Contract
from claims.domain.contract_load import contract_from
from claims.domain.facts import CATEGORIES, HEALTHY, FactRun, Facts, Reason, Standing
from claims.domain.periods import Period, ms_of
from claims.domain.plain import exact
from claims.domain.result import AutomaticCredit, Inputs
from claims.domain.rows import Row
from claims.domain.spans import Span
from claims.domain.worked_check import as_map, check, variants_of
from claims.errors import ClaimsError, InputsError
from fleet.domain.slots import SLOT_MS, SLOT_S, SLOTS_PER_HOUR

#: The value of a field that an example does not name (the examples' own "about").
NOT_NAMED = {
    "kind": "tiers", "scope": "node", "minute_rule": "slots", "exclusion_mode": "counted_as_up",
    "clock_start": "measured", "min_duration_s": "0", "min_duration_compare": ">=", "min_duration_test": "whole",
    "bridging_s": "0", "ambiguous_counts": "no", "stop_clock": "no", "denominator": "full_month", "pooling": "each",
    "owns_driver": "no", "owns_fabric": "no",
    "cap": "none", "minimum": "none", "fee_charged": "0", "allowance": "deducted", "steps": "full",
}  # fmt: skip
#: Observed and up before and after what an example says.
MARGIN_SLOTS = 31 * 24 * SLOTS_PER_HOUR
GPUS_PER_NODE = 8
#: How the codes of ports begin: with a weight above 0 they are a port's share of a GPU's weight.
PORT_CODES = "IB_PORT_"

_CHOICES = {
    "minute_rule": terms.MINUTE_RULES, "denominator": (*terms.DENOMINATORS, "full_period"),
    "clock_start": (*terms.CLOCK_STARTS, "fault", "reported", "confirmed"), "steps": terms.STEPS,
    "allowance": terms.ALLOWANCES, "auto_credit_rule": terms.AUTO_CREDIT_RULES, "rounding": terms.ROUNDINGS,
    "min_duration_test": (*terms.MIN_DURATION_TESTS, "whole_incident_before_clipping_to_the_period"),
    "exclusion_mode": terms.EXCLUSION_MODES, "kind": terms.KINDS, "pooling": terms.POOLINGS,
}  # fmt: skip
_COPIED = (
    "counts", "tiers", "commitment", "multiplier", "hourly_price", "limit_s", "step_s", "credit_percent_per_step",
    "clock_hour_rule", "fee_charged", "currency", "min_duration_s", "min_duration_compare", "bridging_s",
    "ambiguous_counts", "stop_clock", "minimum_coverage_percent", "maintenance_notice_h", "clock_end", "weights",
    "outage_table", "cap", "minimum", "excludes", "stacking_group", "decimals", "owns_driver", "owns_fabric",
)  # fmt: skip
#: The shape of an example that names none and has no tiers, by the field that only it has.
_KIND_BY_FIELD = {
    "outage_table": "outage_table", "credit_schedule": "outage_table", "limit_s": "repair_time",
    "multiplier": "multiplier", "allowance": "pro_rata", "clock_hour_rule": "clock_hour",
}  # fmt: skip
_STATES = {
    "pending": Standing.PENDING,
    "contested": Standing.CONTESTED,
    "held": Standing.HELD,
}
_KINDS = {
    "stop": "stopped", "owner_stop": "stopped", "stopped_by_owner": "stopped", "provider_record": "record",
    "notice": "record", "provider_notice": "record",
}  # fmt: skip


def read_example(example: Mapping[str, Any], variant: Mapping[str, Any] | None = None) -> tuple[Contract, Inputs]:
    """Contract and inputs of an example, with a variant's overrides. Raises ClaimsError."""
    merged = dict(as_map(example, "example"))
    as_map(merged.get("contract", {}), f"example {merged.get('id', '?')}.contract")
    for key, value in (variant or {}).items():
        if key not in ("name", "expect"):
            merged[key] = {**example.get("contract", {}), **as_map(value, key)} if key == "contract" else value
    check(merged)
    fields: dict[str, Any] = merged.get("contract", {})
    period = _period(merged["period"])
    timeline, overlays = list(merged.get("timeline", ())), list(merged.get("overlays", ()))
    if "events" in fields:
        _repair(fields["events"], period, timeline, overlays)
    facts = _facts(timeline, period, fields.get("counts", CATEGORIES))
    units = _units(merged, fields, timeline)
    rows = [_row(one, period) for one in overlays]
    rows += [_entitlement(one, period) for one in fields.get("entitlement", merged.get("entitlement", ()))]
    if not any(row.kind == "entitlement" for row in rows):
        names = {name for unit in units for name in (unit["name"], *unit["members"])}
        rows += [Row("entitlement", name, period.first_slot - MARGIN_SLOTS, None) for name in sorted(names)]
    first, end = period.first_slot - MARGIN_SLOTS, period.end_slot + MARGIN_SLOTS
    for name in {member for unit in units for one in (unit["name"], *unit["members"]) for member in _with_node(one)}:
        facts.setdefault(name, [FactRun(first, end, HEALTHY)])
    fees = {**fields.get("fees", {}), **{u["name"]: u["fee"] for u in units if "fee" in u}, **merged.get("fees", {})}
    automatic = fields.get("automatic_credits", merged.get("automatic_credits"))
    spend = fields.get("cap_previous_month_spend", fields.get("previous_month_spend"))
    witnessed: dict[str, list[Span]] | None = None
    if "witnesses" in merged:
        witnessed = {}
        for one in merged["witnesses"]:
            witnessed.setdefault(one["resource"], []).append(_span(one, period))
    inputs = Inputs(
        period, facts, rows, witnessed, first, end,
        fees={name: Decimal(fee) for name, fee in fees.items()},
        automatic=[AutomaticCredit(a["unit"], Decimal(a["amount"])) for a in automatic or ()],
        invoice_complete=automatic is not None,
        previous_month_spend=None if spend is None else Decimal(spend),
    )  # fmt: skip
    return contract_from(_document(merged, fields, units, period)), inputs


def figures(assessment: Assessment) -> dict[str, str]:
    """The numbers of a computation by the examples' names, with the unit in front where there are several."""
    out = {"status": assessment.status}
    if assessment.result is None:
        return {**out, "missing": ", ".join(assessment.missing)}
    result = assessment.result
    out["coverage"] = "" if result.coverage.share is None else exact(result.coverage.share)
    out["known_slots"], out["owed_slots"] = str(result.coverage.known), str(result.coverage.owed)
    out["unknown_by_the_customer_slots"] = str(result.coverage.customer)
    out["automatic_credits"] = str(sum((unit.automatic for unit in result.units), Decimal(0)))
    out["claim"] = "" if result.claim is None else str(result.claim)
    for reading, amount in result.credits.items():
        out[f"credit_{reading}"] = str(amount)
    for unit in result.units:
        prefix = "" if len(result.units) == 1 else f"{unit.name}."
        out[f"{prefix}dropped_below_minimum_slots"] = str(unit.against.below_minimum)
        out[f"{prefix}excluded_slots"] = str(unit.against.excluded)
        for reading, value in unit.readings.items():
            name = "uptime_nominal" if reading == "nominal" else f"uptime_{reading}_downtime"
            out[f"{prefix}down_seconds_{reading}"] = exact(value.lost * SLOT_S)
            out[prefix + name] = "" if value.uptime is None else f"{value.uptime.numerator}/{value.uptime.denominator}"
            percent = value.credit.percent
            out[f"{prefix}credit_percent_{reading}"] = "" if percent is None else f"{percent:f}"
            if prefix:
                out[f"{prefix}credit_{reading}"] = str(value.credit.amount)
        out[f"{prefix}denominator_slots"] = str(unit.readings["lower"].denominator)
        out[f"{prefix}unknown_slots"] = str(unit.coverage.unknown)
    return out


def _document(
    merged: Mapping[str, Any], fields: Mapping[str, Any], units: Sequence[Mapping[str, Any]], period: Period
) -> dict[str, Any]:
    document: dict[str, Any] = {"name": str(merged["id"]), "version": "1", "zone": period.zone, "counts": CATEGORIES}
    document.update(NOT_NAMED)
    for key, allowed in _CHOICES.items():
        if key in fields:
            document[key] = _leading(fields[key], allowed)
    document.update({key: fields[key] for key in _COPIED if key in fields})
    document["excludes"] = fields.get("excludes", ["maintenance"])
    scope = str(fields.get("scope", "node"))
    document["scope"] = scope.split()[0]
    if "pooled" in scope:
        document["pooling"] = "slots"
    if "observed" in str(fields.get("denominator", "")):
        document["denominator"] = "existence"
    if "kind" not in fields and not fields.get("tiers"):
        document["kind"] = next((kind for key, kind in _KIND_BY_FIELD.items() if key in fields), "tiers")
    level = fields.get("cap_unit", "unit")
    if "cap_percent" in fields:
        share = fields.get("cap_of", "fee")
        document["cap"] = {"level": level, "percent": _number(fields["cap_percent"]), "share_of": share}
    if "cap_amount" in fields:
        document["cap"] = {"level": level, "amount": fields["cap_amount"]}
    if "cap_previous_month_spend" in fields:
        document["cap"] = {"level": "unit", "percent": "100", "share_of": "previous_month_spend"}
    least = fields.get("minimum_unit", "unit")
    if "minimum_exclusive" in fields:
        document["minimum"] = {"kind": "nothing_up_to", "amount": fields["minimum_exclusive"], "level": least}
    if "minimum_percent" in fields:
        document["minimum"] = {
            "kind": fields.get("minimum_kind", "nothing_up_to"), "percent": _number(fields["minimum_percent"]),
            "level": least, "share_of": fields.get("minimum_of", "fee"),
        }  # fmt: skip
    if "minimum_at_least" in fields:
        document["minimum"] = {"kind": "at_least", "amount": fields["minimum_at_least"], "level": least}
    if "credit_schedule" in fields:
        document["outage_table"] = [
            [None if one["outage_minutes_up_to"] in (None, "") else (int(one["outage_minutes_up_to"]) + 1) * 60,
             one["credit_hours"]]
            for one in fields["credit_schedule"]
        ]  # fmt: skip
    document["units"] = [
        {key: unit[key] for key in ("name", "members", "min_healthy") if key in unit} for unit in units
    ]
    if str(fields.get("min_healthy", "")).isdigit():
        document["min_healthy"] = fields["min_healthy"]
    return {key: value for key, value in document.items() if value is not None}


def _leading(value: Any, allowed: Sequence[str]) -> str | None:
    """The first allowed word of a text that also explains itself."""
    if value is None:
        return None
    word = re.split(r"[\s,(]", str(value), maxsplit=1)[0]
    return word if word in allowed else allowed[-1] if word == "observed" else str(value)


def _number(value: Any) -> str:
    return str(value).split()[0]


def _period(one: Mapping[str, Any]) -> Period:
    label = str(one.get("month", one["start_utc"][:7]))
    return Period(one.get("kind", "calendar_month"), one["zone"], label, ms_of(one["start_utc"]), ms_of(one["end_utc"]))


def _span(one: Mapping[str, Any], period: Period) -> Span:
    return period.first_slot + int(one["from_slot"]), period.first_slot + int(one["to_slot"])


def _names(resource: str) -> list[str]:
    """`n1/gpu0..1 (2 GPUs)` → n1/gpu0, n1/gpu1."""
    name = resource.split(" (")[0].strip()
    found = re.fullmatch(r"(.*?)(\d+)\.\.(\d+)", name)
    if found is None:
        return [name]
    return [f"{found[1]}{number}" for number in range(int(found[2]), int(found[3]) + 1)]


def _with_node(name: str) -> list[str]:
    return [name, name.split("/")[0]] if "/" in name else [name]


def _one(entry: Mapping[str, Any], counts: Sequence[str]) -> Facts:
    """The facts of one line of a timeline."""
    state = str(entry["state"])
    if state in ("observed", "healthy", "up"):
        return HEALTHY
    if state.startswith("weight "):
        weight = int(state.split()[1])
        category = "degraded" if "degraded" in counts else counts[0]
        reason = Reason("WEIGHT", weight, category, "infrastructure", Standing.CERTAIN)
        return Facts(False, (reason,), weight, weight, weight)
    standing = _STATES.get(state, Standing.CERTAIN)
    if state == "edge":
        standing = Standing.EDGE_BAD if entry.get("own_sample_bad") == "yes" else Standing.EDGE
    reasons = []
    for one in entry.get("reasons", ()):
        certain = one.get("certain", "yes") == "yes"
        if state == "unknown" and certain:
            continue  # a subject whose state is unknown has no certain reasons
        reasons.append(
            Reason(
                one["code"],
                int(one["weight"]),
                one["category"],
                one["party"],
                standing if certain else Standing.POSSIBLE,
                one["code"].startswith(PORT_CODES) and 0 < int(one["weight"]) < 100,
                one.get("owner", ""),
            )
        )
    blind = state == "unknown"
    weight = min((r.weight for r in reasons if r.party != "customer"), default=100)
    lower = weight if standing is Standing.CERTAIN and not blind else 100
    nominal = weight if standing in (Standing.CERTAIN, Standing.EDGE_BAD, Standing.HELD) else 100
    return Facts(
        blind, tuple(reasons), None if blind else nominal, lower, 0 if blind else weight, entry.get("cause", "")
    )


def _facts(timeline: Sequence[Mapping[str, Any]], period: Period, counts: Sequence[str]) -> dict[str, list[FactRun]]:
    """Every subject's runs; where lines overlap, their reasons stand together."""
    lines: dict[str, list[FactRun]] = {}
    for entry in timeline:
        facts = _one(entry, counts)
        for name in _names(entry["resource"]):
            lines.setdefault(name, []).append(FactRun(*_span(entry, period), facts))
    first, end = period.first_slot - MARGIN_SLOTS, period.end_slot + MARGIN_SLOTS
    return {name: _lay(runs, first, end) for name, runs in lines.items()}


def _lay(runs: Sequence[FactRun], first: int, end: int) -> list[FactRun]:
    cuts = sorted({first, end, *(run.first_slot for run in runs), *(run.end_slot for run in runs)})
    out = []
    for a, b in pairwise(cuts):
        here = [run.facts for run in runs if run.first_slot <= a and b <= run.end_slot]
        facts = HEALTHY
        if len(here) == 1:
            facts = here[0]
        elif here:
            blind = any(one.blind for one in here)
            reasons = tuple(dict.fromkeys(reason for one in here for reason in one.reasons))
            known = [one.nominal for one in here if one.nominal is not None]
            facts = Facts(
                blind, reasons, None if blind else min(known), min(one.lower for one in here),
                min(one.upper for one in here), next((one.cause for one in here if one.cause), ""),
            )  # fmt: skip
        out.append(FactRun(a, b, facts))
    return out


def _units(
    merged: Mapping[str, Any], fields: Mapping[str, Any], timeline: Sequence[Mapping[str, Any]]
) -> list[dict[str, Any]]:
    given = merged.get("units", fields.get("units"))
    if given:
        return [{"members": [], **one} for one in given]
    named = [*timeline, *fields.get("entitlement", ())]
    resources = [name for one in named for name in _names(one["resource"])]
    nodes = list(dict.fromkeys(name.split("/")[0] for name in resources)) or ["n1"]
    count = int(fields.get("gpus_per_node", GPUS_PER_NODE if any("/" in name for name in resources) else 0))
    if str(fields.get("scope", "node")).startswith("gpu"):
        return [{"name": f"{node}/gpu{index}", "members": []} for node in nodes for index in range(count or 1)]
    return [{"name": node, "members": [f"{node}/gpu{index}" for index in range(count)]} for node in nodes]


def _entitlement(one: Mapping[str, Any], period: Period) -> Row:
    return Row("entitlement", one["resource"], *_span(one, period), author="example")


def _row(one: Mapping[str, Any], period: Period) -> Row:
    kind = _KINDS.get(one["kind"], one["kind"])
    base = period.first_slot

    def slot(*names: str) -> int | None:
        return next((base + int(one[name]) for name in names if one.get(name) is not None), None)

    opened = slot("opened_slot", "from_slot")
    if opened is None:
        raise InputsError(f"An overlay of {one.get('resource')} has no beginning.", "from_slot")
    notice = one.get("notice_hours_before_start")
    return Row(
        kind,
        one["resource"],
        opened,
        slot("closed_slot", "to_slot"),
        author=one.get("author", "example"),
        provider_word=one.get("author", "provider") == "provider",
        acknowledged_slot=slot("acknowledged_slot"),
        pauses=tuple((base + int(a), base + int(b)) for a, b in one.get("pauses", ())),
        notice_s=None if notice is None else int(notice) * 3600,
    )


def _repair(
    events: Mapping[str, str], period: Period, timeline: list[dict[str, Any]], overlays: list[dict[str, Any]]
) -> None:
    """The events of a repair as a down stretch and its ticket."""
    at = {name: (ms_of(text) - period.start_ms) // SLOT_MS for name, text in events.items()}
    reason = {"code": "XID_79", "weight": "0", "category": "hardware_failure", "party": "infrastructure"}
    timeline.append(
        {"resource": "n1", "from_slot": at["fault"], "to_slot": at["replaced"], "state": "down", "reasons": [reason]}
    )
    paused = [(at["paused_from"], at["paused_to"])] if "paused_from" in at else []
    overlays.append(
        {
            "kind": "ticket",
            "resource": "n1",
            "opened_slot": at.get("reported"),
            "acknowledged_slot": at.get("confirmed"),
            "closed_slot": at["replaced"],
            "pauses": paused,
        }
    )


def main(arguments: Sequence[str]) -> int:
    """`python -m claims.domain.worked FILE [ID]`: the figures of every example and variant as JSON lines.

    The exit status is 1 where an example was refused (its line says why), 2 where the file can't be read.
    """
    try:
        document = json.loads(Path(arguments[0]).read_text())
        examples = document["examples"] if isinstance(document, dict) else document
    except (OSError, ValueError, RecursionError, KeyError, IndexError) as error:
        print(f"No worked examples can be read: {error!r}", file=sys.stderr)
        return 2
    refused = False
    for example in examples if isinstance(examples, list) else [examples]:
        name = example.get("id", "") if isinstance(example, dict) else ""
        if len(arguments) > 1 and name != arguments[1]:
            continue
        for variant in variants_of(example):
            try:
                contract, inputs = read_example(example, variant)
                found = figures(assess(contract, inputs))
            except ClaimsError as error:
                found, refused = {"status": error.code, "why": str(error)}, True
            print(json.dumps({"id": name, "variant": variant.get("name", ""), **found}))
    return int(refused)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
