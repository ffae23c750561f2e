"""A second implementation of the contract arithmetic, from contract.md, that imports nothing of the product.

It works slot by slot on flat lists with `fractions`. A case is a plain dict, see `months.py`. Slow and literal: where
the product has spans, this has a loop over slots.
"""

from __future__ import annotations

from datetime import UTC, datetime
from fractions import Fraction
from functools import cache
from zoneinfo import ZoneInfo

READINGS = ("lower", "nominal", "upper")
EXCLUSIONS = ("maintenance", "emergency", "force_majeure", "customer_cause", "suspension", "live_migration")


@cache
def chain(name):
    """n1/gpu0 → [n1/gpu0, n1]."""
    out = [name]
    while "/" in name:
        name = name[: name.rindex("/")]
        out.append(name)
    return out


class Case:
    def __init__(self, case):
        self.case, self.terms = case, case["contract"]
        self.lo, self.hi = case["lo"], case["hi"]
        self.first, self.end = case["first"], case["end"]
        self.flat = {}
        for name, runs in case["subjects"].items():
            line = [None] * (self.hi - self.lo)
            for a, b, facts in runs:
                for slot in range(max(a, self.lo), min(b, self.hi)):
                    line[slot - self.lo] = facts
            self.flat[name] = line
        self.reach = "unreachable" in self.terms["counts"]
        self.only_reach = self.terms["counts"] == ["unreachable"]
        self.memo = {}
        self.named = {}

    def rows(self, kind, name, slot, exact=False):
        key = (kind, name, exact)
        if key not in self.named:
            names = [name] if exact else chain(name)
            self.named[key] = [r for r in self.case["rows"] if r["kind"] == kind and r["resource"] in names]
        return [r for r in self.named[key] if r["a"] <= slot and (r["b"] is None or slot < r["b"])]

    # ---- one subject, one slot -------------------------------------------------------------------------------
    def counted(self, name, slot, reading):
        """The weights of the counted reasons of a slot, and whether it is unknown."""
        facts = self.flat[name][slot - self.lo] if name in self.flat else None
        if facts is None:
            return [], True
        weights = []
        for code, weight, category, party, standing in facts["reasons"]:
            if category not in self.terms["counts"] or party in ("customer", "none"):
                continue
            if self.terms["kind"] != "weighted" and weight not in self.terms["weights"]:
                continue
            if self.terms["kind"] != "weighted" and code.startswith("IB_PORT") and weight > 0:
                continue
            if reading == "upper":
                weights.append(weight)
                continue
            if party == "ambiguous" and not self.terms["ambiguous_counts"]:
                continue
            notes = self.rows("record", name, slot)
            inside = [row for row in notes if row["own"]]
            counts = standing == "certain"
            if reading == "nominal":
                counts = counts or standing in ("edge_bad", "held")
            if standing == "held":
                counts = counts or bool(notes) or bool(self.rows("ticket", name, slot))
            if code in ("NODE_UNREACHABLE", "NODE_LOST"):
                counts = counts or bool(inside)
            if counts:
                weights.append(weight)
        heard = self.only_reach and facts["cause"] in ("NVML_BLIND", "TWO_INSTALLATIONS")
        return weights, facts["blind"] and not heard

    def state(self, name, slot, reading):
        """'down', 'unknown' or 'up'; 'unknown' only in the nominal reading."""
        key = (name, slot, reading)
        if key not in self.memo:
            weights, blind = self.counted(name, slot, reading)
            if not blind and self.terms["counts"] == ["unreachable"] and "/" not in name:
                seen = self.case["witnessed"]
                blind = seen is not None and not any(a <= slot < b for a, b in seen.get(name, []))
            if weights:
                answer = "down"
            elif blind:
                answer = {"lower": "up", "nominal": "unknown", "upper": "down"}[reading]
            else:
                answer = "up"
            self.memo[key] = answer
        return self.memo[key]

    def without_blindness(self, name, slot, reading):
        return "down" if self.counted(name, slot, reading)[0] else "up"

    # ---- overlays --------------------------------------------------------------------------------------------
    def present(self, name, unit, slot):
        key = (name, unit)
        if key not in self.named:
            names = list(dict.fromkeys([*chain(name), unit]))
            owned = {r["resource"] for r in self.case["rows"] if r["kind"] == "entitlement"}
            self.named[key] = [n for n in names if n in owned]
        rows = self.named[key]
        if not rows or self.rows("stopped", name, slot):
            return False
        return all(self.rows("entitlement", n, slot, exact=True) for n in rows)

    def entitled(self, unit, within, slot):
        own = any(r["kind"] == "entitlement" and r["resource"] in chain(unit["name"]) for r in self.case["rows"])
        if own or not unit["members"]:
            return self.present(unit["name"], within, slot)
        if self.rows("stopped", unit["name"], slot):
            return False
        return any(self.present(member, unit["name"], slot) for member in unit["members"])

    def excluded(self, name, slot):
        for kind in self.terms["excludes"]:
            for row in self.rows(kind, name, slot):
                hours = self.terms["maintenance_notice_h"]
                short = row["notice_s"] is None or row["notice_s"] < (hours or 0) * 3600
                if kind == "maintenance" and hours and short:
                    continue
                return True
        return False

    # ---- a unit, one slot ------------------------------------------------------------------------------------
    def own_state(self, unit, slot, reading):
        answers = []
        for name in chain(unit["name"]):
            looked_at = name in self.flat or (name == unit["name"] and not unit["members"])
            if self.reach and self.terms["scope"] in ("gpu", "node") and "/" not in name:
                looked_at = True
            if looked_at:
                blind = name == unit["name"] or self.reach
                if self.only_reach and "/" in name:
                    blind = False
                answers.append(
                    self.state(name, slot, reading) if blind else self.without_blindness(name, slot, reading)
                )
        return worst(answers)

    def member_state(self, member, unit, slot, reading):
        if not self.present(member, unit["name"], slot):
            return "absent"
        if self.excluded(member, slot):
            return "up"
        node = chain(member)[-1]
        if self.only_reach and node != member and node in self.flat:
            answers = [self.without_blindness(member, slot, reading)]
        else:
            answers = [self.state(member, slot, reading)]
        for above in chain(member)[1:]:
            if above != unit["name"] and above in self.flat:
                answers.append(
                    self.state(above, slot, reading) if self.reach else self.without_blindness(above, slot, reading)
                )
        return worst(answers)

    def unit_state(self, unit, slot, reading):
        own = self.own_state(unit, slot, reading)
        if not unit["members"]:
            return own
        states = [self.member_state(member, unit, slot, reading) for member in unit["members"]]
        required = unit["min_healthy"] - states.count("absent")
        healthy, unknown = states.count("up"), states.count("unknown")
        if healthy >= required:
            members = "up"
        elif healthy + unknown < required:
            members = "down"
        else:
            members = "unknown"
        return worst([own, members])


def worst(answers):
    return "down" if "down" in answers else "unknown" if "unknown" in answers else "up"


def runs(slots):
    """Consecutive slots as lists."""
    out = []
    for slot in sorted(slots):
        if out and out[-1][-1] == slot - 1:
            out[-1].append(slot)
        else:
            out.append([slot])
    return out


def in_clock(world, unit, down, reading):
    terms = world.terms
    pieces = runs(down)
    tickets = [r for r in world.case["rows"] if r["kind"] == "ticket"]
    own = [r for r in tickets if r["resource"] in chain(unit["name"])]
    members = [r for r in tickets if r["resource"] in unit["members"]]

    def covers(row, slot):
        start = row["a"] if terms["clock_start"] == "ticket" else row["ack"]
        if start is None or slot < start:
            return False
        ends = terms["clock_end"] or "ticket"
        if ends == "ticket":
            return row["b"] is None or slot < row["b"]
        run = next(piece for piece in pieces if piece[0] <= slot <= piece[-1])
        return row["b"] is None or run[0] < row["b"]

    kept = set()
    if terms["clock_start"] == "measured" and terms["clock_end"] == "ticket":
        for run in pieces:
            here = set(run)
            on_it = [r for r in own + members if r["a"] <= run[-1] and (r["b"] is None or r["b"] > run[0])]
            if on_it and all(r["b"] is not None for r in on_it):
                here = {slot for slot in run if any(slot < r["b"] for r in on_it)}
            kept |= here
        down = set()
    for slot in down:
        if (
            terms["clock_start"] == "measured"
            or any(covers(row, slot) for row in own)
            or any(
                covers(row, slot) and world.member_state(row["resource"], unit, slot, reading) == "down"
                for row in members
            )
        ):
            kept.add(slot)
    if terms["stop_clock"]:
        for row in own + members:
            for a, b in row["pauses"]:
                kept -= set(range(a, b))
    return kept


def long_enough(terms, count):
    seconds = count * 15
    return (
        seconds > terms["min_duration_s"]
        if terms["min_duration_compare"] == ">"
        else seconds >= terms["min_duration_s"]
    )


def outages(world, unit, within, reading, entitled, excluded):
    """Lists of counted slots, one per outage."""
    terms = world.terms
    down = {
        slot
        for slot in range(world.lo, world.hi)
        if slot in entitled and slot not in excluded and world.unit_state(unit, slot, reading) == "down"
    }
    kept = in_clock(world, unit, down, reading)
    if terms["minute_rule"] == "clock_minute":
        kept = {slot for slot in kept if all(slot // 4 * 4 + i in kept for i in range(4))}
    joined = []
    for run in runs(kept):
        if joined:
            gap = range(joined[-1][-1] + 1, run[0])
            if len(gap) * 15 <= terms["bridging_s"] and all(slot in entitled for slot in gap):
                joined[-1] += run
                continue
        joined.append(run)
    inside = range(world.first, world.end)
    if terms["min_duration_test"] == "clipped":
        pieces = []
        for run in joined:
            for test in (lambda s: s < world.first, lambda s: s in inside, lambda s: s >= world.end):
                piece = [slot for slot in run if test(slot)]
                if piece:
                    pieces.append(piece)
        joined = pieces
    joined = [run for run in joined if long_enough(terms, len(run))]
    if terms["kind"] in ("outage_table", "repair_time"):
        whole = runs(down)
        number = {slot: index for index, run in enumerate(whole) for slot in run}
        groups = []
        for run in joined:
            if groups and number[groups[-1][-1]] == number[run[0]]:
                groups[-1] = groups[-1] + run
            else:
                groups.append(run)
        joined = [run for run in groups if run[0] in inside]
    else:
        joined = [[slot for slot in run if slot in inside] for run in joined]
    if terms["minute_rule"] == "elapsed_floor":
        joined = [run[: len(run) // 4 * 4] for run in joined]
    return [run for run in joined if run]


def weighted_loss(world, unit, reading, entitled, excluded):
    lost = Fraction(0)
    touched = {}
    for slot in range(world.lo, world.hi):
        if slot not in entitled or slot in excluded:
            continue
        weights, unknown = [], False
        for name in chain(unit["name"]):
            looked_at = name in world.flat or name == unit["name"]
            if world.reach and world.terms["scope"] in ("gpu", "node") and "/" not in name:
                looked_at = True
            if looked_at:
                weights += world.counted(name, slot, reading)[0]
        unknown = world.own_state(unit, slot, "nominal") == "unknown"
        if reading == "upper" and unknown:
            weights.append(0)
        if weights:
            touched[slot] = min(weights)
    for slot in in_clock(world, unit, set(touched), reading):
        if world.first <= slot < world.end:
            lost += Fraction(100 - touched[slot], 100)
    return lost


def floor_cent(amount):
    return Fraction(amount * 100 // 1, 100)


def free_hours(rule, slots):
    zone = ZoneInfo(rule["zone"])
    down = {}
    for slot in slots:
        local = datetime.fromtimestamp(slot * 15, UTC).astimezone(zone)
        key = (local.strftime("%Y-%m-%d %H"), local.utcoffset())
        down[key] = down.get(key, 0) + 15
    over = [
        n for n in down.values() if (n > rule["threshold_s"] if rule["compare"] == ">" else n >= rule["threshold_s"])
    ]
    return len(over)


def shape(terms, fee, base, denominator, charged, lost, broken):
    """(percent or None, exact credit)."""
    kind = terms["kind"]
    hourly = Fraction(terms["hourly_price"] or 0)
    if kind in ("tiers", "weighted"):
        percent = Fraction(0)
        if denominator and charged:
            for below, credit in terms["tiers"]:
                if (denominator - lost) * 100 < Fraction(below) * denominator:
                    percent = Fraction(credit)
        return percent, base * percent / 100
    if kind == "pro_rata":
        if not charged:
            return None, Fraction(0)
        allowance = (100 - Fraction(terms["commitment"])) * denominator / 100
        credited = (
            max(Fraction(0), lost - allowance)
            if terms["allowance"] == "deducted"
            else (lost if lost > allowance else 0)
        )
        return None, base * credited / charged
    if kind == "multiplier":
        return None, lost * 15 / 3600 * hourly * Fraction(terms["multiplier"])
    if kind == "outage_table":
        hours = Fraction(0)
        for run in broken:
            for below, credit in terms["outage_table"]:
                if below is None or len(run) * 15 < int(below):
                    hours += Fraction(credit)
                    break
        return None, hours * hourly
    if kind == "clock_hour":
        return None, free_hours(terms["clock_hour_rule"], [s for run in broken for s in run]) * hourly
    percent = Fraction(0)
    for run in broken:
        over = len(run) * 15 - terms["limit_s"]
        if over > 0:
            periods = over // terms["step_s"] if terms["steps"] == "full" else -(-over // terms["step_s"])
            percent += periods * Fraction(terms["credit_percent_per_step"])
    return percent, base * percent / 100


def cap_of(cap, fee, base, spend):
    if cap.get("amount") is not None:
        return Fraction(cap["amount"])
    return (
        Fraction(cap["percent"])
        / 100
        * {"fee": fee, "base": base, "previous_month_spend": Fraction(spend or 0)}[cap["share_of"]]
    )


def apply_minimum(minimum, amount, fee, base, spend):
    least = cap_of(minimum, fee, base, spend)
    if minimum["kind"] == "nothing_up_to":
        return amount if amount > least else Fraction(0)
    return max(amount, least) if amount > 0 else amount


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
