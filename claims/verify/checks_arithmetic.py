"""Arithmetic: the numbers are what terms, rows, rules and the enclosed batches come to."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

from claims.domain.periods import ms_of
from claims.verify.documents import read
from claims.verify.embedded import embedded_files
from claims.verify.finding import NOT_PROVEN, PASS, Files, Wrong
from claims.verify.folding import other_fold
from claims.verify.recompute import result_of
from claims.verify.tables import INCIDENTS, SLOTS, incident_lines, is_sheet, slot_lines
from claims.verify.work import Work


def _canonical(document: Any) -> bytes:
    return json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()


def result_check(files: Files, known_key: str, work: Work) -> tuple[str, str]:
    found = result_of(files)
    if _canonical(found) != _canonical(read(files, "result.json")):
        where = _first_difference(found, read(files, "result.json"))
        raise Wrong(f"result.json is not what contract, rows, rules and verdicts come to: {where}")
    return PASS, "result.json is what contract, dated rows, rules and verdicts come to"


def _first_difference(one: Any, other: Any, path: str = "") -> str:
    if isinstance(one, dict) and isinstance(other, dict):
        for key in sorted({*one, *other}):
            if one.get(key) != other.get(key):
                return _first_difference(one.get(key), other.get(key), f"{path}.{key}")
    if isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        for number, (a, b) in enumerate(zip(one, other, strict=True)):
            if a != b:
                return _first_difference(a, b, f"{path}[{number}]")
    return f"{path.lstrip('.')}: computed {str(one)[:80]}, stated {str(other)[:80]}"


def amount_check(files: Files, known_key: str, work: Work) -> tuple[str, str]:
    claim, result = read(files, "claim.json"), read(files, "result.json")["assessment"]["result"]
    if result["status"] != "ok" or result["claim"] is None:
        raise Wrong("The result gives no claim.")
    if Decimal(claim["amount"]) > Decimal(result["claim"]) or claim["currency"] != result["currency"]:
        raise Wrong(f"Claimed are {claim['amount']} {claim['currency']}, the result is {result['claim']}.")
    if Decimal(result["claim"]) != min(Decimal(one) for one in result["credits"].values()):
        raise Wrong("The claim is not the least of the three readings.")
    return PASS, f"{claim['amount']} {claim['currency']} is not more than the least of the three readings"


def tables_check(files: Files, known_key: str, work: Work) -> tuple[str, str]:
    result = read(files, "result.json")["assessment"]["result"]
    incidents = list(incident_lines(result))
    if not is_sheet(files["incidents.csv"], INCIDENTS, incidents):
        raise Wrong("incidents.csv is not the list of result.json.")
    coverage = {"contract": result["coverage"], **{unit["name"]: unit["coverage"] for unit in result["units"]}}
    if read(files, "coverage.json") != coverage:
        raise Wrong("coverage.json is not what result.json says.")
    if read(files, "overlays.json") != read(files, "inputs.json")["overlays"]:
        raise Wrong("overlays.json is not what the report rests on.")
    if not is_sheet(files["slots.csv"], SLOTS, slot_lines(files)):
        raise Wrong("slots.csv is not the verdicts in runs/.")
    ticket = _canonical(read(files, "result.json")["ticket"]) if "ticket" in read(files, "result.json") else None
    if files.get("tickets.json") != ticket:
        raise Wrong("tickets.json is not what result.json says.")
    return (
        PASS,
        f"incidents.csv has the {len(incidents)} incidents of result.json; slots.csv, coverage and rows are the same",
    )


def pdf_check(files: Files, known_key: str, work: Work) -> tuple[str, str]:
    """The document carries the pack's own result."""
    if "claim.pdf" not in files:
        return PASS, "the pack has no PDF"
    found = embedded_files(files["claim.pdf"])
    if sorted(found) != sorted([files["result.json"], files["incidents.csv"]]):
        raise Wrong("claim.pdf does not carry the pack's result.json and incidents.csv.")
    return PASS, "claim.pdf carries the pack's own result.json and incidents.csv; its printed pages are not read"


def windows_check(files: Files, known_key: str, work: Work) -> tuple[str, str]:
    """Every counted incident lies in a window."""
    spans: dict[str, list[tuple[int, int]]] = {}
    for one in read(files, "windows.json"):
        spans.setdefault(one["node"], []).append((one["first_hour"] * 240, one["last_hour"] * 240))
    for unit in read(files, "result.json")["assessment"]["result"]["units"]:
        for one in unit["incidents"]:
            a, b = ms_of(one["start_utc"]) // 15_000, ms_of(one["end_utc"]) // 15_000
            for name in {subject.partition("/")[0] for subject in one["subjects"] or [unit["name"]]}:
                if not any(low <= a and b <= high for low, high in spans.get(name, ())):
                    raise Wrong(f"The incident of {name} at {one['start_utc']} has no enclosed batches.")
    return PASS, "every counted incident has its batches"


def fold_check(files: Files, known_key: str, work: Work) -> tuple[str, str]:
    slots = 0
    if other := other_fold(files):
        return NOT_PROVEN, f"the pack is of a fold of format {other}: fold it with the verifier of its own release"
    for found in work.folded():
        if found.wrong:
            raise Wrong(found.wrong)
        slots += found.slots
    if not slots:
        return NOT_PROVEN, "the pack encloses no batch to fold: its verdicts are the claimant's word"
    return PASS, f"the batches of the claimed time fold to the verdicts that the report used ({slots} slots)"
