"""Keeps the incidents of a node in step with its strips, after each write of its hours."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from django.utils import timezone

from fleet.alerts.outbox import is_news, tell_of_incident
from fleet.bodies import load_row
from fleet.domain.incidents import (
    REOPEN_SLOTS,
    TOGETHER_SLOTS,
    CodeSpan,
    IncidentFacts,
    Part,
    first_bad,
    group,
    join,
    opens,
    parts_of,
)
from fleet.domain.rules import Rules
from fleet.domain.slots import first_slot, hour_of_slot
from fleet.domain.strips import HourRow, StripRun
from fleet.domain.verdicts import UNKNOWN_PROVISIONAL
from fleet.models import Incident, Node, NodeHour
from fleet.sql import execute

NEAR = 2 * REOPEN_SLOTS + TOGETHER_SLOTS  # a suspicion reaches back before the bad slot that may reopen a part
_NEAR = "select id from fleet_incident where node_id = any(%b::bigint[]) and end_slot >= %b and withdrawn_at is null"


def sync_incidents(written: Mapping[tuple[int, int], HourRow], rules: Rules) -> int:
    """Bring the incidents of the nodes whose hours were just written up to date; the number of nodes looked at.

    `written`: (node id, hour) -> row. Healthy nodes cost one look at their verdict tables and one query for all.
    """
    hours: dict[int, dict[int, HourRow]] = defaultdict(dict)
    for (node_id, hour), row in written.items():
        hours[node_id][hour] = row
    if not hours:
        return 0
    earliest = first_slot(min(hour for _, hour in written))
    near: dict[int, list[Incident]] = defaultdict(list)
    # mostly none, and the ORM takes twice as long to say so
    ids = [pk for (pk,) in execute(_NEAR, [sorted(hours), earliest - NEAR])]
    for incident in Incident.objects.filter(pk__in=ids) if ids else ():
        near[incident.node_id].append(incident)
    looked = 0
    for node_id, rows in hours.items():
        begin, end = first_slot(min(rows)), first_slot(max(rows) + 1)
        mine = [one for one in near[node_id] if one.end_slot >= begin - NEAR and one.first_slot <= end + NEAR]
        if mine or any(opens(code, rules) for row in rows.values() for code in row.reasons()):
            _sync_node(node_id, rows, mine, begin, end, rules)
            looked += 1
    return looked


@dataclass(frozen=True)
class _Settle:
    """Up to which slot an open incident need not be read again: the end of its last final hour.

    `at`: that end within the hours just read, if any; `since`: what held before; `before`: the parts up to there.
    """

    at: int | None
    since: Mapping[str, int]
    before: Mapping[str, Part]

    def slot_of(self, facts: IncidentFacts) -> int | None:
        """The incident's settled slot; None while it lies within hours that are not final."""
        slots = [self.since[part.subject] for part in facts.parts if part.subject in self.since]
        slot = max([self.at or 0, *slots])
        return slot if slot > facts.first_slot else None

    def part_before(self, part: Part) -> dict[str, Any] | None:
        """What this part was at the settled slot; None when it began later."""
        earlier = self.before.get(part.subject)
        return _plain(earlier) if earlier is not None and earlier.first_slot == part.first_slot else None


def _sync_node(
    node_id: int, rows: Mapping[int, HourRow], stored: list[Incident], begin: int, end: int, rules: Rules
) -> None:
    """Derive the incidents that touch [begin, end) anew and write what changed."""
    settled, start = _reach(node_id, stored, begin)
    stop = max([end, *(incident.end_slot for incident in stored)])
    all_rows = _rows(node_id, hour_of_slot(start), hour_of_slot(stop - 1), rows)
    final = [hour for hour, row in all_rows.items() if row.final]
    if _begins_before(all_rows.get(hour_of_slot(start)), settled, start, rules):
        earlier = hour_of_slot(start) - 1
        all_rows = {**_rows(node_id, earlier, earlier, rows), **all_rows}
    found, boundary = _parts(all_rows, settled, start, rules)
    settle_at = first_slot(final[-1] + 1) if final else None
    until_then = {hour: row for hour, row in all_rows.items() if settle_at and first_slot(hour) < settle_at}
    before, _ = _parts(until_then, settled, start, rules)
    settle = _Settle(
        settle_at, {subject: slot for subject, (slot, _) in settled.items()}, {p.subject: p for p in before}
    )
    _write(node_id, stored, group(found), boundary, settle, rules)


def _reach(node_id: int, stored: list[Incident], begin: int) -> tuple[dict[str, tuple[int, Part]], int]:
    """(subject -> where its strip is read from and what it was before, the first slot to read for the others).

    `stored` grows by every incident that overlaps what has to be read, so that none is derived a second time.
    """
    while True:
        whole = {one.pk for one in stored if one.settled_slot is None or one.settled_slot > begin}
        while True:  # a subject is read from one place only
            subjects = {part["subject"] for one in stored if one.pk in whole for part in one.parts}
            more = {one.pk for one in stored if any(part["subject"] in subjects for part in one.parts)} - whole
            if not more:
                break
            whole |= more
        start = min([begin, *(one.first_slot for one in stored if one.pk in whole)])
        missed = Incident.objects.filter(node_id=node_id, end_slot__gt=start, first_slot__lt=begin, withdrawn_at=None)
        added = list(missed.exclude(pk__in=[one.pk for one in stored]))
        if not added:
            break
        stored += added
    settled: dict[str, tuple[int, Part]] = {}
    for one in stored:
        if one.pk not in whole and one.settled_slot is not None:
            start = min(start, one.settled_slot)
            for part in one.parts:
                if part["settled"]:
                    settled[part["subject"]] = one.settled_slot, _part(part["subject"], part["settled"])
    return settled, start


def _rows(node_id: int, first_hour: int, last_hour: int, known: Mapping[int, HourRow]) -> dict[int, HourRow]:
    """The node's rows of these hours; those just written are not read again."""
    wanted = [hour for hour in range(first_hour, last_hour + 1) if hour not in known]
    rows = {hour: row for hour, row in known.items() if first_hour <= hour <= last_hour}
    for hour, body in NodeHour.objects.filter(node_id=node_id, hour__in=wanted).values_list("hour", "body"):
        rows[hour] = load_row(body)
    return dict(sorted(rows.items()))


def _since(subject: str, settled: Mapping[str, tuple[int, Part]], start: int) -> int:
    return settled[subject][0] if subject in settled else start


def _begins_before(row: HourRow | None, settled: Mapping[str, tuple[int, Part]], start: int, rules: Rules) -> bool:
    """Whether something is bad so soon in the first hour (`row`) that the hour before may have suspected it."""
    if row is None:
        return False
    for subject in row.subjects():
        bad = first_bad(row.runs(subject), rules, _since(subject, settled, start))
        goes_on = subject in settled and settled[subject][1].end_slot == bad
        if bad is not None and not goes_on and bad - REOPEN_SLOTS < first_slot(row.hour):
            return True
    return False


def _parts(
    rows: Mapping[int, HourRow], settled: Mapping[str, tuple[int, Part]], start: int, rules: Rules
) -> tuple[list[Part], dict[str, int]]:
    """(the parts of all subjects from `start` on, subject -> end of what has been closed of it)."""
    runs: dict[str, list[StripRun]] = defaultdict(list)
    boundary: dict[str, int] = {}
    for row in rows.values():
        for subject in row.subjects():
            since = _since(subject, settled, start)
            for run in row.runs(subject):
                if run.end_slot > since - REOPEN_SLOTS:
                    runs[subject].append(run)
                if run.end_slot > since and run.verdict != UNKNOWN_PROVISIONAL:
                    boundary[subject] = run.end_slot
    found: list[Part] = []
    for subject in sorted({*runs, *settled}):
        parts = parts_of(subject, runs[subject], rules, _since(subject, settled, start))
        if subject in settled:
            earlier = settled[subject][1]
            if parts and parts[0].first_slot - earlier.end_slot <= REOPEN_SLOTS:
                parts[0] = join(earlier, parts[0])
            else:
                parts.insert(0, earlier)
        found += parts
    return found, boundary


def _write(
    node_id: int,
    stored: list[Incident],
    derived: Iterable[IncidentFacts],
    boundary: Mapping[str, int],
    settle: _Settle,
    rules: Rules,
) -> None:
    """Insert, update or withdraw: an incident keeps its row while any of its parts overlaps the one before."""
    left = list(stored)
    cluster_id: int | None = None
    for facts in derived:
        same = next((one for one in left if _overlap(one, facts)), None)
        if same is None:
            if cluster_id is None:
                cluster_id = Node.objects.values_list("cluster_id", flat=True).get(pk=node_id)
            same = Incident(node_id=node_id, cluster_id=cluster_id)
        else:
            left.remove(same)
        _fill(same, facts, boundary, settle, rules)
    for gone in left:
        if gone.is_open:
            tell_of_incident(gone, "resolved")
        is_grouped = gone.part_of_id is not None or gone.nodes_together > 1
        if is_grouped or gone.has_human_layer or gone.notes.exists():
            # of a cluster-wide one the second pass lets the others go first, and then removes it
            Incident.objects.filter(pk=gone.pk).update(
                withdrawn_at=timezone.now(), is_open=False, waits_for_grouping=is_grouped
            )
        else:
            gone.delete()


def _fill(
    incident: Incident,
    facts: IncidentFacts,
    boundary: Mapping[str, int],
    settle: _Settle,
    rules: Rules,
) -> None:
    """Copy the derived facts into a row and save it if anything changed."""
    is_open = any(part.end_slot >= boundary.get(part.subject, part.end_slot + 1) for part in facts.parts)
    settled_slot = settle.slot_of(facts) if is_open else None
    values = {
        "scope": facts.scope,
        "code": facts.leading_code(rules),
        "party": facts.party(rules, incident.part_of_id is not None or incident.nodes_together > 1),
        "weight": facts.weight,
        "first_slot": facts.first_slot,
        "end_slot": facts.end_slot,
        "is_open": is_open,
        "lost_gpu_seconds": facts.lost_gpu_seconds,
        "settled_slot": settled_slot,
        "parts": [
            {
                "subject": part.subject,
                **_plain(part),
                "settled": settle.part_before(part) if settled_slot else None,
            }
            for part in facts.parts
        ],
    }
    is_new = incident.pk is None
    if is_new or any(getattr(incident, name) != value for name, value in values.items()):
        if is_new or (incident.code, incident.first_slot) != (values["code"], values["first_slot"]):
            values["waits_for_grouping"] = True
        change = "opened" if is_new else _change(incident, values)
        for name, value in values.items():
            setattr(incident, name, value)
        # derived columns only: what people wrote meanwhile stays
        incident.save(update_fields=None if is_new else list(values))
        if change and (is_news(incident) or change == "resolved"):
            tell_of_incident(incident, change)


def _change(incident: Incident, values: Mapping[str, Any]) -> str:
    """What the new values mean to somebody who knows the old ones; empty: the same trouble goes on."""
    if incident.is_open != values["is_open"]:
        return "opened" if values["is_open"] else "resolved"
    is_worse = values["weight"] < incident.weight or len(values["parts"]) > len(incident.parts)
    return "worsened" if is_worse or values["party"] != incident.party else ""


def _overlap(incident: Incident, facts: IncidentFacts) -> bool:
    mine = {part["subject"]: part for part in incident.parts}
    return any(
        part.subject in mine
        and part.first_slot < mine[part.subject]["end_slot"]
        and mine[part.subject]["first_slot"] < part.end_slot
        for part in facts.parts
    )


def _plain(part: Part) -> dict[str, Any]:
    """A part as JSON, without its subject."""
    return {
        "first_slot": part.first_slot,
        "end_slot": part.end_slot,
        "bad_slots": part.bad_slots,
        "lost": part.lost,
        "weight": part.weight,
        "codes": {code: list(asdict(span).values()) for code, span in sorted(part.codes.items())},
    }


def _part(subject: str, plain: Mapping[str, Any]) -> Part:
    """A part from its JSON."""
    return Part(
        subject,
        plain["first_slot"],
        plain["end_slot"],
        {code: CodeSpan(*span) for code, span in plain["codes"].items()},
        plain["bad_slots"],
        plain["lost"],
        plain["weight"],
    )
