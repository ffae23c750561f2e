"""Random periods for the product and the oracle: one plain dict, and its translation for the product.

Every shape, scope and state, windows, tickets, records, stops, and periods around changes of clocks.
"""

from __future__ import annotations

import random
from decimal import Decimal

from claims.domain.contract import NONE
from claims.domain.contract_load import contract_from
from claims.domain.facts import FactRun, Facts, Reason, Standing
from claims.domain.periods import Period
from claims.domain.result import AutomaticCredit, Inputs
from claims.domain.rows import Row

#: A change of clocks, in Unix seconds: both directions, a half-hour one, and none.
CHANGES = (
    ("Europe/Berlin", 1774746000),  # 2026-03-29T01:00Z
    ("Europe/Berlin", 1792890000),  # 2026-10-25T01:00Z
    ("America/New_York", 1793512800),  # 2026-11-01T06:00Z
    ("Australia/Lord_Howe", 1775314800),  # 2026-04-04T15:00Z, half an hour
    ("Asia/Kolkata", 1788201000),
    ("UTC", 1788220800),
)
STANDINGS = ("certain",) * 8 + ("edge_bad", "edge", "pending", "contested", "held", "held", "possible")
CODES = (
    ("XID_79", 0, "hardware_failure"),
    ("XID_74", 50, "hardware_failure"),
    ("NODE_LOST", 0, "hardware_failure"),
    ("NODE_UNREACHABLE", 0, "unreachable"),
    ("IB_PORT_DOWN", 0, "network"),
    ("IB_PORT_DOWN", 50, "network"),
    ("HW_THERMAL", 50, "degraded"),
    ("SW_THERMAL", 75, "degraded"),
    ("XID_119", 0, "firmware"),
)
OWNERS = {"XID_119": "driver"}
PARTIES = ("infrastructure",) * 6 + ("ambiguous", "customer", "none")
KINDS = ("tiers", "tiers", "outage_table", "pro_rata", "multiplier", "repair_time", "weighted", "clock_hour")


def case_of(seed, low=120, high=400, period=None):
    """The case of a seed; the period has between `low` and `high` slots, or is this one."""
    rng = random.Random(seed)
    zone, change = rng.choice(CHANGES)
    length = rng.randrange(low, high)
    first = change // 15 - rng.randrange(0, length)
    if period is not None:
        zone, first, length = "Europe/Berlin", period[0], period[1] - period[0]
    margin = rng.randrange(0, 60)
    case = {"zone": zone, "first": first, "end": first + length, "lo": first - margin, "hi": first + length + margin}
    scope = rng.choice(("gpu", "node", "node", "members", "group", "domain"))
    units, subjects = _units(rng, scope)
    case["units"] = units
    case["contract"] = terms = _terms(rng, "node" if scope == "members" else scope, zone)
    busy = rng.choice((0.15, 0.4, 0.8))
    case["subjects"] = {name: _line(rng, case, busy, terms) for name in subjects if rng.random() < 0.95}
    names = sorted({*subjects, *(unit["name"] for unit in units)})
    case["rows"] = _rows(rng, case, names, units)
    case["witnessed"] = None
    if rng.random() < 0.25:
        case["witnessed"] = {
            name: sorted(_span(rng, case, 200) for _ in range(rng.randrange(3)))
            for name in names
            if "/" not in name and rng.random() < 0.7
        }
        case["witnessed"] = {name: _merge(spans) for name, spans in case["witnessed"].items()}
    case["fees"] = {unit["name"]: str(Decimal(rng.randrange(1, 3_000_000)) / 100) for unit in units}
    case["automatic"] = None
    if rng.random() < 0.3:
        judged = sorted({name for unit in units for name in (unit["name"], *unit["members"])})
        case["automatic"] = {
            name: str(Decimal(rng.randrange(0, 20_000)) / 100) for name in judged if rng.random() < 0.7
        }
    case["spend"] = str(rng.randrange(0, 20_000))
    return case


def _units(rng, scope):
    if scope == "node":
        nodes = [f"n{i}" for i in range(1, rng.randrange(2, 4))]
        return [{"name": n, "members": [], "min_healthy": None} for n in nodes], nodes
    if scope == "gpu":
        gpus = ["n1/gpu0", "n1/gpu1", "n2/gpu0"][: rng.randrange(1, 4)]
        nodes = sorted({g.split("/")[0] for g in gpus}) if rng.random() < 0.6 else []
        return [{"name": g, "members": [], "min_healthy": None} for g in gpus], gpus + nodes
    if scope == "members":
        count = rng.randrange(1, 5)
        members = [f"n1/gpu{i}" for i in range(count)]
        unit = {"name": "n1", "members": members, "min_healthy": rng.randrange(1, count + 1)}
        return [unit], members + (["n1"] if rng.random() < 0.6 else [])
    if scope == "group":
        count = rng.randrange(2, 4)
        members = [f"n{i}" for i in range(1, count + 1)]
        return [{"name": "set", "members": members, "min_healthy": rng.randrange(1, count + 1)}], members
    members = ["n1/gpu0", "n1/gpu1", "n2/gpu0"]
    more = [name for name in ("dom1", "n1", "n2") if rng.random() < 0.4]
    return [{"name": "dom1", "members": members, "min_healthy": rng.randrange(1, 4)}], members + more


def _terms(rng, scope, zone):
    kind = rng.choice(KINDS)
    counts = rng.choice(
        (
            ["hardware_failure"],
            ["unreachable"],
            ["unreachable", "hardware_failure"],
            ["hardware_failure", "network", "degraded"],
            ["hardware_failure", "firmware"],
        )
    )
    hours = rng.random() < 0.3 or kind == "clock_hour"
    cap = minimum = None
    if rng.random() < 0.4:
        level = rng.choice(("unit", "claim", "period"))
        cap = {"level": level, "amount": str(rng.randrange(0, 9000))} if rng.random() < 0.3 else {
            "level": level, "percent": str(rng.choice((20, 50, 100))),
            "share_of": rng.choice(("fee", "base", "previous_month_spend")),
        }  # fmt: skip
    if rng.random() < 0.4:
        minimum = {
            "kind": rng.choice(("nothing_up_to", "at_least")),
            "level": rng.choice(("unit", "claim", "period")),
        }
        if rng.random() < 0.7:
            minimum["amount"] = str(Decimal(rng.randrange(0, 400_000)) / 100)
        else:
            minimum.update(percent=str(rng.choice((1, 10, 40))), share_of=rng.choice(("fee", "base")))
    tiers = rng.choice(
        ([["99.9", "10"]], [["99.5", "10"], ["99", "30"], ["95", "100"]], [["98", "5"], ["90", "25"], ["60", "60"]])
    )
    return {
        "kind": kind, "scope": scope, "counts": counts, "weights": rng.choice(([0], [0], [0, 50])),
        "ambiguous_counts": rng.random() < 0.5, "owns_driver": rng.random() < 0.5,
        "pooling": rng.choice(("each", "each", "slots")),
        "min_duration_s": rng.choice((0, 0, 30, 60, 120, 300)), "min_duration_compare": rng.choice((">=", ">")),
        "min_duration_test": rng.choice(("whole", "clipped")), "bridging_s": rng.choice((0, 0, 15, 60, 130, 600)),
        "minute_rule": rng.choice(("slots", "clock_minute", "elapsed_floor")),
        "denominator": rng.choice(("full_month", "existence")),
        "exclusion_mode": rng.choice(("counted_as_up", "removed_from_denominator")),
        "excludes": rng.choice(([], ["maintenance"], ["maintenance", "emergency"])), "maintenance_notice_h": None,
        "clock_start": rng.choice(("measured", "measured", "ticket", "acknowledgement")),
        "clock_end": rng.choice((None, "measured", "ticket")), "stop_clock": rng.random() < 0.5,
        "tiers": tiers if kind in ("tiers", "weighted") else [],
        "commitment": "99.9" if kind == "pro_rata" else None, "allowance": rng.choice(("deducted", "threshold")),
        "multiplier": "10" if kind == "multiplier" else None, "hourly_price": "32.25",
        "outage_table": [["600", "12"], ["1800", "24"], [None, "120"]] if kind == "outage_table" else [],
        "limit_s": rng.choice((0, 300, 1800)), "step_s": rng.choice((60, 450, 900)), "credit_percent_per_step": "10",
        "steps": rng.choice(("full", "started")),
        "clock_hour_rule": {"threshold_s": rng.choice((0, 360, 900)), "compare": rng.choice((">", ">=")), "zone": zone}
        if hours else None,
        "auto_credit_rule": rng.choice(("subtract_from_credit", "reduce_base")), "cap": cap, "minimum": minimum,
        "minimum_coverage_percent": rng.choice((None, None, "50", "95")),
    }  # fmt: skip


def _line(rng, case, busy, terms):
    """A subject's runs, with a gap now and then."""
    out, at = [], case["lo"]
    while at < case["hi"]:
        length = rng.choice((1, 2, 3, 4, 7, 8, 20, 21, 60, 150))
        end = min(case["hi"], at + length)
        roll = rng.random()
        if roll < 0.02:
            pass
        elif roll < 0.02 + 0.1 * busy:
            out.append(
                (
                    at,
                    end,
                    {
                        "blind": True,
                        "reasons": _reasons(rng, blind=True),
                        "cause": rng.choice(("", "customer", "NVML_BLIND")),
                    },
                )
            )
        elif roll < 0.1 + busy:
            out.append(
                (at, end, {"blind": False, "reasons": _reasons(rng, category=rng.choice(terms["counts"])), "cause": ""})
            )
        else:
            out.append((at, end, {"blind": False, "reasons": (), "cause": ""}))
        at = end
    return out


def _reasons(rng, category=None, blind=False):
    out = []
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        code, weight, kind = rng.choice([c for c in CODES if c[2] == category or rng.random() < 0.15] or CODES[:1])
        standing = "possible" if blind and kind != "unreachable" else rng.choice(STANDINGS)
        out.append((code, weight, kind, rng.choice(PARTIES), standing))
    return tuple(out) if not blind or rng.random() < 0.5 else ()


def _span(rng, case, most=120):
    a = rng.randrange(case["lo"] - 20, case["hi"])
    return a, a + rng.randrange(1, most)


def _merge(spans):
    out = []
    for a, b in sorted(spans):
        if out and a <= out[-1][1]:
            out[-1] = (out[-1][0], max(b, out[-1][1]))
        else:
            out.append((a, b))
    return out


def _row(kind, resource, a, b, **more):
    return {
        "kind": kind,
        "resource": resource,
        "a": a,
        "b": b,
        "ack": None,
        "pauses": [],
        "notice_s": None,
        "own": True,
        **more,
    }


def _rows(rng, case, names, units):
    rows = []
    owned = [unit["name"] for unit in units]
    if rng.random() < 0.3 and all(unit["members"] for unit in units):
        owned = [member for unit in units for member in unit["members"]]
    for name in owned:
        roll = rng.random()
        if roll < 0.6:
            rows.append(_row("entitlement", name, case["lo"] - 100, None))
        elif roll < 0.95:
            for _ in range(rng.randrange(1, 3)):
                a = rng.randrange(case["lo"] - 50, case["end"])
                rows.append(_row("entitlement", name, a, rng.choice((None, a + rng.randrange(1, 600)))))
    for name in names:
        if rng.random() < 0.1:
            a = rng.randrange(case["lo"], case["end"])
            rows.append(_row("entitlement", name, a, None))
        for kind, chance in (("stopped", 0.15), ("maintenance", 0.4), ("emergency", 0.2), ("record", 0.4)):
            while rng.random() < chance:
                rows.append(
                    _row(
                        kind, name, *_span(rng, case), notice_s=rng.choice((None, 3600, 10**6)), own=rng.random() < 0.6
                    )
                )
        while rng.random() < 0.55:
            a, b = _span(rng, case, 300)
            pauses = [sorted((a + rng.randrange(-5, 100), a + rng.randrange(0, 120))) for _ in range(rng.randrange(2))]
            ack = rng.choice((None, a + rng.randrange(0, 40)))
            rows.append(_row("ticket", name, a, rng.choice((None, b, b)), ack=ack, pauses=pauses))
    return rows


def translate(case):
    """Contract and inputs of the product."""
    terms = {key: value for key, value in case["contract"].items() if value is not None}
    terms.update(name="random", version="1", zone=case["zone"], units=[
        {key: value for key, value in unit.items() if value is not None} for unit in case["units"]
    ])  # fmt: skip
    if "maintenance" in terms["excludes"]:
        terms["maintenance_notice_h"] = 24
        case["contract"]["maintenance_notice_h"] = 24
    terms["cap"] = case["contract"]["cap"] or NONE
    terms["minimum"] = case["contract"]["minimum"] or NONE
    contract = contract_from(terms)
    period = Period("calendar_month", case["zone"], "2026-10", case["first"] * 15_000, case["end"] * 15_000)
    facts = {
        name: [FactRun(a, b, _facts(one)) for a, b, one in runs] for name, runs in case["subjects"].items()
    }  # fmt: skip
    rows = [
        Row(
            r["kind"], r["resource"], r["a"], r["b"], acknowledged_slot=r["ack"],
            pauses=tuple((a, b) for a, b in r["pauses"]), notice_s=r["notice_s"], provider_word=r["own"],
        )
        for r in case["rows"]
    ]  # fmt: skip
    automatic = case["automatic"]
    return contract, Inputs(
        period, facts, rows, case["witnessed"], case["lo"], case["hi"],
        fees={name: Decimal(fee) for name, fee in case["fees"].items()},
        automatic=[AutomaticCredit(name, Decimal(amount)) for name, amount in (automatic or {}).items()],
        invoice_complete=automatic is not None,
        previous_month_spend=Decimal(case["spend"]),
    )  # fmt: skip


def _facts(one):
    reasons = tuple(
        Reason(c, w, k, p, Standing(s), c.startswith("IB_PORT") and w > 0, OWNERS.get(c, ""))
        for c, w, k, p, s in one["reasons"]
    )
    weight = min((r.weight for r in reasons), default=100)
    return Facts(
        one["blind"], reasons, None if one["blind"] else weight, weight, 0 if one["blind"] else weight, one["cause"]
    )
