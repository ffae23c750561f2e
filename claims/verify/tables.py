"""incidents.csv and slots.csv, made from the pack's own documents; and whether a sheet holds what it should."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from claims.verify.documents import read, runs

Files = Mapping[str, bytes]
INCIDENTS = ("unit", "start_utc", "end_utc", "counted_seconds", "reasons", "subjects")
SLOTS = ("node", "subject", "first_slot", "end_slot", "state", "nominal", "lower", "upper", "certain", "possible")


def incident_lines(result: Mapping[str, Any]) -> Iterator[tuple[str, ...]]:
    """What counted, a line for each incident of each unit."""
    for unit in result["units"]:
        for one in unit["incidents"]:
            reasons = " ".join(f"{code}={seconds}" for code, seconds in sorted(one["reasons"].items()))
            yield (
                unit["name"],
                one["start_utc"],
                one["end_utc"],
                one["counted_seconds"],
                reasons,
                " ".join(one["subjects"]),
            )


def slot_lines(files: Files) -> Iterator[tuple[str, ...]]:
    """A line for each run of each subject, clipped to the period, in the order of the report's node months."""
    period = read(files, "result.json")["assessment"]["result"]["period"]
    first = int(period["first_slot"])
    end = first + int(period["slots"])
    for one in read(files, "inputs.json")["node_months"]:
        for subject, line in sorted(runs(files[f"runs/{one['id']}-{one['month']}.json"]).items()):
            for a, b, verdict in line:
                a, b = max(a, first), min(b, end)
                if a < b:
                    weights = (_cell(verdict.nominal), _cell(verdict.lower), _cell(verdict.upper))
                    codes = (" ".join(verdict.certain), " ".join(verdict.possible))
                    yield (one["node"], subject, str(a), str(b), verdict.state.value, *weights, *codes)


def _cell(weight: int | None) -> str:
    """A weight; what nobody knows is an empty cell."""
    return "" if weight is None else str(weight)


def is_sheet(raw: bytes, head: Sequence[str], lines: Iterable[Sequence[str]]) -> bool:
    """Whether a CSV holds this head and these lines; a quote that keeps a spreadsheet from computing does not count."""
    said = csv.reader(io.StringIO(raw.decode(), newline=""))
    return [_bare(line) for line in said] == [_bare(line) for line in (head, *lines)]


def _bare(line: Iterable[str]) -> list[str]:
    return [one.removeprefix("'") for one in line]
