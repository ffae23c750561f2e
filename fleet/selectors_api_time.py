"""Reads of one GPU's past for the API: its strip as runs of equal verdicts, and its hours added up."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from fleet.bodies import decompress, load_row
from fleet.domain.slots import SLOTS_PER_HOUR, first_slot
from fleet.domain.strips import Rollup, read_rollups
from fleet.domain.verdicts import Verdict, unknown
from fleet.models import NodeHour
from fleet.selectors_api import Span

NO_ROW = unknown("NO_DATA")


@dataclass(frozen=True)
class SlotRun:
    """Absolute slots `[first_slot, end_slot)` with one verdict. `row`: final, provisional or none (no `rules` then)."""

    first_slot: int
    end_slot: int
    verdict: Verdict
    rules: str
    row: str


@dataclass(frozen=True)
class HourLine:
    """One hour of a GPU; `rollup` None when no row says anything of it: the whole hour is unknown."""

    hour: int
    rollup: Rollup | None
    rules: str
    row: str


def slot_runs(node_id: int, subject: str, span: Span) -> list[SlotRun]:
    """The subject's verdicts within the span, run-length; hours without a row are unknown. One query."""
    runs: list[SlotRun] = []
    for run in _runs(node_id, subject, span):
        first, end = max(run.first_slot, span.first_slot), min(run.end_slot, span.end_slot)
        if first >= end:
            continue
        last = runs[-1] if runs else None
        if last and (last.verdict, last.rules, last.row) == (run.verdict, run.rules, run.row):
            runs[-1] = SlotRun(last.first_slot, end, run.verdict, run.rules, run.row)
        else:
            runs.append(SlotRun(first, end, run.verdict, run.rules, run.row))
    return runs


def _runs(node_id: int, subject: str, span: Span) -> Iterator[SlotRun]:
    rows = {row[0]: row[1:] for row in _rows(node_id, span)}
    for hour in span.hours:
        base = first_slot(hour)
        if hour not in rows:
            yield SlotRun(base, base + SLOTS_PER_HOUR, NO_ROW, "", "none")
            continue
        body, is_final, rules = rows[hour]
        row = load_row(body)
        for run in row.runs(subject):
            yield SlotRun(run.first_slot, run.end_slot, run.verdict, rules, _word(is_final))


def hour_lines(node_id: int, subject: str, span: Span) -> list[HourLine]:
    """The subject's hours that the span touches. One query."""
    rows = {row[0]: row[1:] for row in _rows(node_id, span)}
    lines = []
    for hour in span.hours:
        if hour in rows:
            body, is_final, rules = rows[hour]
            rollup = read_rollups(decompress(body)).get(subject)
            lines.append(HourLine(hour, rollup, rules, _word(is_final)))
        else:
            lines.append(HourLine(hour, None, "", "none"))
    return lines


def _rows(node_id: int, span: Span) -> list[tuple[int, bytes | memoryview, bool, str]]:
    hours = span.hours
    found = NodeHour.objects.filter(node_id=node_id, hour__gte=hours.start, hour__lt=hours.stop)
    return list(found.values_list("hour", "body", "is_final", "rules"))


def _word(is_final: bool) -> str:
    return "final" if is_final else "provisional"
