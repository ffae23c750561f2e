"""A second implementation of the contract arithmetic, from contract.md, that imports nothing of the product.

It works slot by slot on flat lists with `fractions`. A case is a plain dict, see `months.py`. Slow and literal: where
the product has spans, this has a loop over slots. What a slot is, which outages count and what they cost stand in files
of their own.
"""

from __future__ import annotations

from fractions import Fraction

from claims.tests.domain.oracle_money import apply_minimum, cap_of, floor_cent, free_hours, shape
from claims.tests.domain.oracle_outages import outages, weighted_loss
from claims.tests.domain.oracle_slots import READINGS, Case


def solve(case):
    """Everything that must agree, as fractions."""
    world = Case(case)
    terms = case["contract"]
    period = range(world.first, world.end)
    parts = []
    for unit in case["units"]:
        group = []
        judged = [unit]
        if terms["kind"] == "weighted" and unit["members"]:
            judged = [{"name": m, "members": [], "min_healthy": None} for m in unit["members"]]
        for one in judged:
            entitled = {s for s in range(world.lo, world.hi) if world.entitled(one, unit["name"], s)}
            excluded = {s for s in range(world.lo, world.hi) if world.excluded(one["name"], s)}
            owed = [s for s in period if s in entitled]
            charged = len(owed)
            out = sum(1 for s in owed if s in excluded)
            if terms["exclusion_mode"] == "removed_from_denominator":
                owed = [s for s in owed if s not in excluded]
            if terms["denominator"] == "full_month" and terms["kind"] != "weighted":
                denominator = len(period) - (out if terms["exclusion_mode"] == "removed_from_denominator" else 0)
            else:
                denominator = len(owed)
            unknown = sum(1 for s in owed if s not in excluded and world.unit_state(one, s, "nominal") == "unknown")
            part = {
                "charged": charged,
                "denominator": denominator,
                "owed": len(owed),
                "unknown": unknown,
                "name": one["name"],
            }
            part["lost"], part["broken"] = {}, {}
            for reading in READINGS:
                if terms["kind"] == "weighted":
                    part["broken"][reading] = []
                    part["lost"][reading] = weighted_loss(world, one, reading, entitled, excluded)
                else:
                    part["broken"][reading] = outages(world, one, unit, reading, entitled, excluded)
                    part["lost"][reading] = Fraction(sum(len(run) for run in part["broken"][reading]))
            if case["automatic"] is not None:
                named = [one["name"], *one["members"]]
                part["automatic"] = sum((Fraction(case["automatic"].get(n, 0)) for n in named), Fraction(0))
            elif terms["clock_hour_rule"] and terms["kind"] not in ("clock_hour", "weighted"):
                slots = [s for run in part["broken"]["lower"] for s in run]
                part["automatic"] = free_hours(terms["clock_hour_rule"], slots) * Fraction(terms["hourly_price"] or 0)
            else:
                part["automatic"] = Fraction(0)
            group.append(part)
        parts.append((unit, group))
    every = [part for _, group in parts for part in group]
    if not any(part["charged"] for part in every):
        return {"status": "no_entitlement"}
    fees = {unit["name"]: Fraction(case["fees"].get(unit["name"], 0)) for unit, _ in parts}
    if terms["pooling"] == "slots":
        pools = [("*", every, sum(fees.values()))]
    else:
        pools = [(unit["name"], group, fees[unit["name"]]) for unit, group in parts]

    def enough(known, owed):
        if owed == 0:
            return True
        least = terms["minimum_coverage_percent"]
        return known > 0 and (least is None or Fraction(known * 100, owed) >= Fraction(least))

    apart = {}
    if terms["kind"] == "weighted" and case["automatic"] is not None:
        apart = {u["name"]: Fraction(case["automatic"].get(u["name"], 0)) for u in case["units"] if u["members"]}
    units = {}
    totals = dict.fromkeys(READINGS, Fraction(0))
    off_in_all = dict.fromkeys(READINGS, Fraction(0))
    for name, group, fee in pools:
        counted = (
            [part for part in group if part["charged"]] if len(group) > 1 or terms["pooling"] == "slots" else group
        )
        if terms["kind"] == "weighted" and terms["pooling"] != "slots" and group[0]["name"] != name:
            counted = [part for part in group if part["charged"]]
        automatic = sum(part["automatic"] for part in group) + sum(apart[u] for u in apart if name in (u, "*"))
        charged = sum(part["charged"] for part in group)
        covered = enough(sum(p["owed"] - p["unknown"] for p in group), sum(p["owed"] for p in group))
        for reading in READINGS:
            denominator = sum(p["denominator"] - (p["unknown"] if reading == "nominal" else 0) for p in counted)
            lost = sum((part["lost"][reading] for part in group), Fraction(0))
            broken = [run for part in group for run in part["broken"][reading]]
            base = fee
            if terms["auto_credit_rule"] == "reduce_base":
                base = max(Fraction(0), fee - automatic)
            if terms["kind"] == "clock_hour":
                # each part's hours by themselves
                percent, amount = (
                    None,
                    sum(
                        (
                            shape(terms, fee, base, denominator, charged, lost, part["broken"][reading])[1]
                            for part in group
                        ),
                        Fraction(0),
                    ),
                )
            else:
                percent, amount = shape(terms, fee, base, denominator, charged, lost, broken)
            if terms["cap"] and terms["cap"]["level"] == "unit":
                amount = min(amount, cap_of(terms["cap"], fee, base, case["spend"]))
            off = automatic if terms["auto_credit_rule"] == "subtract_from_credit" else Fraction(0)
            off = off if off < amount else amount
            amount -= off
            if terms["minimum"] and terms["minimum"]["level"] == "unit":
                amount = apply_minimum(terms["minimum"], amount, fee, base, case["spend"])
            amount = floor_cent(amount)
            units[name, reading] = (denominator, lost, percent, amount)
            if covered:
                totals[reading] += amount
                off_in_all[reading] += off
    fee = sum(fees.values())
    base = fee
    if terms["auto_credit_rule"] == "reduce_base":
        base = max(Fraction(0), fee - sum(part["automatic"] for part in every) - sum(apart.values()))
    for reading in READINGS:
        if terms["cap"] and terms["cap"]["level"] != "unit":
            # what was credited by itself and what is claimed share one cap
            together = min(totals[reading] + off_in_all[reading], cap_of(terms["cap"], fee, base, case["spend"]))
            totals[reading] = max(Fraction(0), together - off_in_all[reading])
        if terms["minimum"] and terms["minimum"]["level"] != "unit":
            totals[reading] = apply_minimum(terms["minimum"], totals[reading], fee, base, case["spend"])
        totals[reading] = floor_cent(totals[reading])
    owed = sum(part["owed"] for part in every)
    known = owed - sum(part["unknown"] for part in every)
    status = "ok"
    if not enough(known, owed):
        status = "not_measurable" if terms["counts"] == ["unreachable"] else "insufficient_data"
    claim = min(totals.values()) if status == "ok" else None
    return {"status": status, "claim": claim, "credits": totals, "units": units, "known": known, "owed": owed}
