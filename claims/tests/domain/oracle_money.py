"""The second implementation, third part: credit shapes, caps, minimums in fractions; nothing of the product."""

from __future__ import annotations

from datetime import UTC, datetime
from fractions import Fraction
from zoneinfo import ZoneInfo


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
