"""Reads the worked tables of `docs/sla-arithmetic.md` and computes their lines.

A line is `slots | contract | rows | answer`. Slots: `n1 100-106 down`, with a state and words for the reason
(`reach`, `firmware`, `ambiguous`, `customer`, `w50`, `port88`). Offsets from the first slot of September 2026 UTC
unless `month` says else.
"""

from __future__ import annotations

from pathlib import Path

from claims.domain.completeness import assess
from claims.domain.periods import build, utc_text
from claims.domain.worked import figures, read_example

ROW_WORDS = {"ack": "acknowledged_slot", "notice": "notice_hours_before_start", "author": "author"}
DOCUMENT = Path(__file__).parents[3] / "docs" / "sla-arithmetic.md"


def lines(document: Path = DOCUMENT):
    """(heading, cells) of every line of a table whose first column is `slots`."""
    heading, inside = "", False
    for text in document.read_text().splitlines():
        if text.startswith("#"):
            heading, inside = text.lstrip("# "), False
        elif text.startswith("| slots |"):
            inside = True
        elif not text.startswith("|"):
            inside = False
        elif inside and not text.startswith("|---"):
            yield heading, [cell.strip().strip("`") for cell in text.strip("|").split("|")]


def reason_of(words):
    code, category, weight, party, owner = "XID_79", "hardware_failure", "0", "infrastructure", ""
    for word in words:
        if word == "reach":
            code, category = "NODE_UNREACHABLE", "unreachable"
        elif word == "lost":
            code = "NODE_LOST"
        elif word == "firmware":
            code, category, owner = "XID_119", "firmware", "driver"
        elif word in ("ambiguous", "customer"):
            party = word
        elif word.startswith("port"):
            code, category, weight = "IB_PORT_DOWN", "network", word[4:]
        elif word.startswith("w"):
            weight = word[1:]
        else:
            raise AssertionError(f"no word of a reason: {word}")
    return {"code": code, "weight": weight, "category": category, "party": party, "owner": owner}


def timeline_of(text):
    out = []
    for item in filter(None, (one.strip() for one in text.split(";"))):
        resource, span, state, *words = item.split()
        start, _, end = span.rpartition("-")
        line = {"resource": resource, "from_slot": start, "to_slot": end, "state": state}
        if state == "edge_bad":
            line.update(state="edge", own_sample_bad="yes")
        if state == "unknown":
            out.append({**line, "cause": " ".join(words)})
            continue
        reason = reason_of(words)
        if state == "possible":
            line["state"], reason["certain"] = "down", "no"
        line["reasons"] = [reason]
        out.append(line)
    return out


def rows_of(text):
    out = []
    for item in filter(None, (one.strip() for one in text.split(";"))):
        kind, resource, span, *words = item.split()
        start, _, end = span.partition("-")
        row = {"kind": kind, "resource": resource, "from_slot": start, "pauses": []}
        if end:
            row["to_slot"] = end
        for name, value in zip(words[::2], words[1::2], strict=True):
            if name == "pause":
                row["pauses"].append(value.split("-"))
            else:
                row[{"ack": "acknowledged_slot", "notice": "notice_hours_before_start", "author": "author"}[name]] = (
                    value
                )
        out.append(row)
    return out


def compute(slots, fields, rows):
    """The figures of a line."""
    contract = {"counts": ["hardware_failure"], "fee_charged": "10000.00", "tiers": [["99.9", "10"], ["99", "25"]]}
    month, zone, example = "2026-09", "UTC", {}
    for item in filter(None, (one.strip() for one in fields.split(";"))):
        key, _, value = item.partition("=")
        if key == "month":
            month = value
        elif key == "zone":
            zone = value
        elif key == "counts":
            contract["counts"] = value.split("+")
        elif key == "tiers":
            contract["tiers"] = [pair.split("→") for pair in value.split(",")]
        elif key == "table":
            contract["kind"] = "outage_table"
            contract["outage_table"] = [
                [None if pair.split("→")[0] == "else" else pair.split("→")[0], pair.split("→")[1]]
                for pair in value.split(",")
            ]
            contract["tiers"] = []
        elif key == "clock_hour":
            threshold, compare, place = value.split(",")
            contract["clock_hour_rule"] = {"threshold_s": threshold, "compare": compare, "zone": place}
        elif key == "members":
            example["units"] = [{"name": "u", "members": value.split(",")}]
        elif key == "witnesses":
            example["witnesses"] = [
                {"resource": "n1", "from_slot": a, "to_slot": b}
                for a, b in (one.split("-") for one in value.split(",") if one)
            ]
        else:
            contract[key] = None if value == "?" else value.split("+") if key in ("excludes", "weights") else value
    if contract.get("kind", "tiers") not in ("tiers", "weighted"):
        contract["tiers"] = []
    period = build("calendar_month", month, zone)
    example.update(
        id="table",
        period={
            "kind": "calendar_month",
            "zone": zone,
            "month": month,
            "start_utc": utc_text(period.start_ms),
            "end_utc": utc_text(period.end_ms),
        },
        timeline=timeline_of(slots),
        overlays=rows_of(rows),
        contract=contract,
    )
    terms, inputs = read_example(example)
    assessment = assess(terms, inputs)
    found = figures(assessment)
    for reading in ("lower", "nominal", "upper"):
        if f"down_seconds_{reading}" in found:
            found[reading] = found[f"down_seconds_{reading}"]
            found[f"percent_{reading}"] = found[f"credit_percent_{reading}"]
    found["missing"] = "+".join(assessment.missing)
    return found
