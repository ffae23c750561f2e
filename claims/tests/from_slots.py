"""The second implementation on a pack: its result from `slots.csv`, contract, rows and rules alone. For contracts of
steps on hardware, whose rules nobody amended.
"""

from __future__ import annotations

import csv
import io
import json
import tomllib
from fractions import Fraction
from typing import Any

from claims.tests.domain.oracle import solve

STANDINGS = {"observed": "certain", "edge": "edge_bad", "held": "held", "pending": "pending", "contested": "contested"}
UNSAID = (
    "clock_end", "stop_clock", "owns_driver", "maintenance_notice_h", "minimum_coverage_percent", "auto_credit_rule",
    "clock_hour_rule", "hourly_price", "min_duration_test", "min_duration_compare", "allowance", "commitment",
)  # fmt: skip


def case_of_pack(files: dict[str, bytes]) -> dict[str, Any]:
    """A pack's files as a case of the second implementation."""
    terms = {**dict.fromkeys(UNSAID), "weights": [0], "excludes": [], **json.loads(files["contract.json"])}
    for key in ("min_duration_s", "bridging_s"):
        terms[key] = int(terms[key])
    terms["weights"] = [int(one) for one in terms["weights"]]
    for key in ("cap", "minimum"):
        terms[key] = None if terms[key] == "none" else terms[key]
    rules = {}
    for name in sorted(files):
        if name.startswith("rules/") and name.endswith(".toml"):
            for one in tomllib.loads(files[name].decode()).get("reason", ()):
                rules[one["code"]] = one
    subjects: dict[str, list[Any]] = {}
    for row in csv.DictReader(io.StringIO(files["slots.csv"].decode())):
        if row["subject"] != "n" and not row["subject"].startswith("g"):
            continue
        name = row["node"] + ("" if row["subject"] == "n" else f"/gpu{row['subject'][1:]}")
        reasons = []
        for column in ("certain", "possible"):
            for code in row[column].split():
                rule = rules.get(code)
                if rule is not None:
                    is_sure = column == "certain" or row["state"] != "observed"
                    standing = STANDINGS.get(row["state"], "possible") if is_sure else "possible"
                    reasons.append((code, rule["weight"], rule["category"], rule["party"], standing))
        facts = {"reasons": reasons, "blind": row["state"] == "unknown", "cause": ""}
        subjects.setdefault(name, []).append((int(row["first_slot"]), int(row["end_slot"]), facts))
    period = json.loads(files["result.json"])["assessment"]["result"]["period"]
    first = int(period["first_slot"])
    end = first + int(period["slots"])
    rows = [
        {
            "kind": one["kind"], "resource": one["resource"], "a": int(one["first_slot"]),
            "b": None if one["end_slot"] is None else int(one["end_slot"]), "own": one["provider_word"],
            "notice_s": one["notice_s"], "ack": one["acknowledged_slot"], "pauses": [],
        }
        for one in json.loads(files["overlays.json"])
    ]  # fmt: skip
    units = [
        {"name": one["name"], "members": one.get("members", []), "min_healthy": int(terms["min_healthy"])}
        for one in terms["units"]
    ]
    low = max(first, min(one["a"] for one in rows if one["kind"] == "entitlement"))  # before it nothing is owed
    return {
        "contract": terms, "subjects": subjects, "lo": low, "hi": end, "first": first, "end": end, "rows": rows,
        "witnessed": None, "units": units, "fees": {one["name"]: terms["fee_charged"] for one in units},
        "automatic": None, "spend": None,
    }  # fmt: skip


def check(files: dict[str, bytes]) -> None:
    """Every reading of every unit, the coverage and the claim are those of result.json."""
    stated = json.loads(files["result.json"])["assessment"]["result"]
    found = solve(case_of_pack(files))
    assert found["status"] == stated["status"] == "ok"
    assert found["claim"] == Fraction(stated["claim"])
    assert (found["known"], found["owed"]) == tuple(int(stated["coverage"][k]) for k in ("known_slots", "owed_slots"))
    for unit in stated["units"]:
        for name, reading in unit["readings"].items():
            denominator, lost, percent, amount = found["units"][unit["name"], name]
            assert denominator == int(reading["denominator_slots"]), name
            assert lost * 15 == Fraction(reading["down_seconds"]), name
            assert percent == Fraction(reading["credit_percent"]), name
            assert amount == Fraction(reading["credit"]), name
