"""A node's verdicts by run length over many hours: collected from its hour rows, kept as compact bytes.

A month of 1,000 GPUs is 93,000 hour rows; a report reads these runs instead, made once when the hours are final.
Bytes: JSON of [format, verdict table, {subject: [first slot, length, index, length, index, …]}]; index −1 is a gap.
Equal runs give equal bytes.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from claims.domain.facts import FactRun, Translate, runs_of
from claims.errors import InputsError
from fleet.domain.strips import HourRow
from fleet.domain.verdicts import UNKNOWN_PROVISIONAL, State, Verdict

FORMAT = 1
GAP = -1
#: How the fold names the subjects of a node's hour.
NODE, GPU = "n", "g"
VerdictRun = tuple[int, int, Verdict]


def collect(rows: Iterable[HourRow]) -> dict[str, list[VerdictRun]]:
    """Each subject's runs from a node's hour rows in the order of their hours; equal neighbours are joined.

    What a row did not close (`UNKNOWN_PROVISIONAL`) and hours without a row are gaps: unknown to a contract.
    """
    out: dict[str, list[VerdictRun]] = {}
    for row in rows:
        for subject in row.subjects():
            runs = out.setdefault(subject, [])
            for first, end, verdict in row.runs(subject):
                if verdict == UNKNOWN_PROVISIONAL:
                    continue
                if runs and runs[-1][1] == first and runs[-1][2] == verdict:
                    runs[-1] = (runs[-1][0], end, verdict)
                elif runs and first < runs[-1][1]:
                    raise InputsError("The hour rows of a node are not in the order of their hours.", "hour")
                else:
                    runs.append((first, end, verdict))
    return out


def facts_of_node(
    node: str, runs: Mapping[str, Sequence[VerdictRun]], translate: Translate
) -> dict[str, list[FactRun]]:
    """A node's runs as facts under the names that contracts use: `n` is the node, `g3` its place `node/gpu3`.

    Ports are no subjects of a contract: what they take from a GPU stands in the GPU's own verdict.
    """
    out = {}
    for subject, line in runs.items():
        if subject == NODE:
            out[node] = runs_of(line, translate)
        elif subject.startswith(GPU):
            out[f"{node}/gpu{subject[len(GPU) :]}"] = runs_of(line, translate)
    return out


def encode(runs: Mapping[str, Sequence[VerdictRun]]) -> bytes:
    """The canonical bytes of these runs (sorted, not overlapping)."""
    table = sorted({verdict for line in runs.values() for _, _, verdict in line}, key=repr)
    index = {verdict: number for number, verdict in enumerate(table)}
    lines: dict[str, list[int]] = {}
    for subject in sorted(runs):
        line = runs[subject]
        if not line:
            continue
        numbers = [line[0][0]]
        at = line[0][0]
        for first, end, verdict in line:
            if first > at:
                numbers += [first - at, GAP]
            numbers += [end - first, index[verdict]]
            at = end
        lines[subject] = numbers
    return json.dumps([FORMAT, table, lines], separators=(",", ":"), ensure_ascii=False).encode()


def decode(raw: bytes) -> dict[str, list[VerdictRun]]:
    """The runs of these bytes. Raises InputsError for bytes that are none."""
    try:
        form, table, lines = json.loads(raw)
        if form != FORMAT:
            raise InputsError(f"Runs of format {form} can't be read.", "format")
        verdicts = [_verdict(one) for one in table]
        return {subject: _line(numbers, verdicts) for subject, numbers in lines.items()}
    except (ValueError, TypeError, IndexError, KeyError) as error:
        raise InputsError(f"These bytes hold no runs: {error}", "runs") from error


def _verdict(one: Sequence[Any]) -> Verdict:
    state, nominal, lower, upper, certain, possible = one
    return Verdict(State(state), nominal, lower, upper, tuple(certain), tuple(possible))


def _line(numbers: Sequence[int], verdicts: Sequence[Verdict]) -> list[VerdictRun]:
    out = []
    at = numbers[0]
    for length, number in zip(numbers[1::2], numbers[2::2], strict=True):
        if length <= 0 or number < GAP:
            raise ValueError("a run has a length of at least one slot and a verdict")
        if number != GAP:
            out.append((at, at + length, verdicts[number]))
        at += length
    return out
