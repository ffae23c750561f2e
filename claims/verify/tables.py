"""slots.csv: the verdict runs of the month as a person can open them in a sheet."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from claims.verify.documents import read, runs

Files = Mapping[str, bytes]
SLOTS = ("node", "subject", "first_slot", "end_slot", "state", "nominal", "lower", "upper", "certain", "possible")


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
