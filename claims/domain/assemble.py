"""The facts of several nodes from their verdict runs: what an input of a computation is made of."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from claims.domain.facts import FactRun, Translate
from claims.domain.month_runs import VerdictRun, facts_of_node

Runs = Mapping[str, Sequence[VerdictRun]]


def assemble(
    nodes: Iterable[tuple[str, Runs]], first: int, end: int, translate: Translate
) -> dict[str, Sequence[FactRun]]:
    """Each subject's facts in the slots `[first, end)`. Of two nodes of one name the later is the newer hardware."""
    runs: dict[str, Runs] = {}
    for name, mine in nodes:
        runs[name] = over(mine, runs[name]) if name in runs else mine
    out: dict[str, Sequence[FactRun]] = {}
    for name, lines in runs.items():
        for subject, line in facts_of_node(name, lines, translate).items():
            out[subject] = [
                FactRun(max(run.first_slot, first), min(run.end_slot, end), run.facts)
                for run in line
                if run.end_slot > first and run.first_slot < end
            ]
    return out


def over(newer: Runs, older: Runs) -> Runs:
    """The runs of a place whose hardware was replaced: from where the newer hardware is known, it decides."""
    out = dict(older)
    for subject, line in newer.items():
        if not line:
            continue
        first = line[0][0]
        before = [(a, min(b, first), verdict) for a, b, verdict in out.get(subject, ()) if a < first]
        out[subject] = [*before, *line]
    return out
