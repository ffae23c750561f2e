"""History folded again under another rule set or amendment, beside what is stored; nothing is written.

One node after the other: its batches are folded from the first hour asked for, under the rules proposed from then on,
and the rows that come out are compared with the stored ones.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from fleet.bodies import load_row
from fleet.dated import Amended, NodeDated, OrgDated, RuleBook, dated_for, get_org_dated
from fleet.domain.comparison import HourChange, IncidentChange, compare_hour, compare_incidents, incidents_of, why
from fleet.domain.refold import refold
from fleet.domain.rules import Amendment, RuleChange, Rules, diff
from fleet.domain.slots import HOUR_MS
from fleet.domain.strips import HourRow
from fleet.models import Node, NodeHour
from fleet.refold_batches import NodeBatches
from fleet.refolding import StoredRows, last_hour, opening_state


@dataclass(frozen=True)
class Proposal:
    """What is proposed: a version (None: as now), amendments on top, from this hour (hours since 1970 UTC) on."""

    from_hour: int
    version: str | None = None
    amendments: tuple[Amendment, ...] = ()

    def book(self, now: RuleBook) -> RuleBook:
        """The org's rules with the proposal in them."""
        at_ms = self.from_hour * HOUR_MS
        adoptions = list(now.adoptions)
        if self.version is not None:
            adoptions = [one for one in adoptions if one[0] <= at_ms] + [(at_ms, self.version)]
        more = [Amended(-1 - i, None, one) for i, one in enumerate(self.amendments)]
        return RuleBook(adoptions, [*now.amendments, *more])


@dataclass
class NodeComparison:
    """What changes of one node."""

    node: Node
    hours: list[HourChange]
    incidents: list[IncidentChange]
    hours_folded: int

    @property
    def lost_s(self) -> tuple[int, int]:
        """What its GPUs lost in the hours that differ, before and after: weighted seconds of known time."""
        gpus = [change for change in self.hours if change.subject.startswith("g")]
        before = sum(change.known_before_s * 100 - change.nominal_before for change in gpus)
        return before // 100, sum(change.known_after_s * 100 - change.nominal_after for change in gpus) // 100


@dataclass
class Comparison:
    """What changes of an org. `changes`: the rules that differ at the beginning and now."""

    old: Rules
    new: Rules
    changes: tuple[RuleChange, ...]
    nodes: list[NodeComparison] = field(default_factory=list)
    hours_folded: int = 0

    def why(self, codes: Collection[str]) -> tuple[RuleChange, ...]:
        """The rules that give these codes and differ."""
        return why(codes, self.changes)


def compare(
    proposal: Proposal,
    until_hour: int,
    nodes: Sequence[Node] | None = None,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> Comparison:
    """Fold the hours `[proposal.from_hour, until_hour)` under the proposal and compare. Raises RulesError.

    `progress(done, total)` is told after each node. Nothing is written.
    """
    org = get_org_dated()
    book = proposal.book(org.book)
    old, new = org.book.at(until_hour - 1), book.at(until_hour - 1)
    changes = {(one.code, one.keys): one for one in diff(old, new)}
    changes |= {(one.code, one.keys): one for one in diff(org.book.at(proposal.from_hour), book.at(proposal.from_hour))}
    out = Comparison(old, new, tuple(sorted(changes.values(), key=lambda one: one.code)))
    other = OrgDated(org.stamp, book, org.hardware, org.assigned, org.probed)
    wanted = list(Node.objects.filter(merged_into=None).select_related("cluster")) if nodes is None else list(nodes)
    for done, node in enumerate(wanted, 1):
        dated = dated_for([node.pk], other)(node.pk)
        found = _compare_node(node, proposal.from_hour, until_hour, dated, (old, new))
        if found is not None:
            out.hours_folded += found.hours_folded
            if found.hours or found.incidents:
                out.nodes.append(found)
        progress(done, len(wanted))
    return out


def _compare_node(
    node: Node, from_hour: int, until_hour: int, dated: NodeDated, rules: tuple[Rules, Rules]
) -> NodeComparison | None:
    stored = dict(_stored(node.pk, from_hour, until_hour))
    if not stored:
        return None
    first = min(stored)
    rows = StoredRows(node.pk)
    refolded = refold(
        opening_state(node.pk, first),
        first,
        min(last_hour(node.pk, first, until_hour), until_hour - 1),
        NodeBatches(node.pk).load,
        lambda hour: rows.load(hour) if hour < first else None,
        dated,
    )
    made = {hour: row for hour, row in refolded.rows.items() if from_hour <= hour < until_hour}
    if refolded.state is not None:  # what nothing has closed is said by the sweep over silent nodes, not by the fold
        for row in stored.values():
            row.clear_from(refolded.state.open_slot)
    hours = [one for hour in sorted({*stored, *made}) for one in compare_hour(hour, stored.get(hour), made.get(hour))]
    before, after = incidents_of(stored, rules[0]), incidents_of(made, rules[1])
    return NodeComparison(node, hours, compare_incidents(before, after, *rules), len(made))


def _stored(node_id: int, from_hour: int, until_hour: int) -> Iterator[tuple[int, HourRow]]:
    rows = NodeHour.objects.filter(node_id=node_id, hour__gte=from_hour, hour__lt=until_hour).order_by("hour")
    for hour, body in rows.values_list("hour", "body").iterator(chunk_size=200):
        yield hour, load_row(body)


def as_json(found: Comparison) -> dict[str, Any]:
    """The comparison as JSON; instants as hours since 1970 UTC × 3600 s, weights 0..100 times seconds."""
    return {
        "before": {"version": found.old.version, "digest": found.old.digest},
        "after": {"version": found.new.version, "digest": found.new.digest},
        "rules": [rule_change(one) for one in found.changes],
        "hours_folded": found.hours_folded,
        "nodes": [node_json(one, found) for one in found.nodes],
    }


def node_json(one: NodeComparison, found: Comparison) -> dict[str, Any]:
    """What changes of a node."""
    return {
        "node": one.node.name,
        "node_id": one.node.pk,
        "cluster": one.node.cluster.name,
        "hours": [_hour(change, found) for change in one.hours],
        "incidents": [_incident(change, found) for change in one.incidents],
    }


def rule_change(one: RuleChange) -> dict[str, Any]:
    """A rule that differs."""
    keys = [{"key": key, "before": _plain(old), "after": _plain(new)} for key, old, new in one.keys]
    return {"code": one.code, "kind": one.kind, "moves_verdicts": one.is_weighty, "keys": keys}


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def _hour(one: HourChange, found: Comparison) -> dict[str, Any]:
    return {
        "hour": one.hour,
        "subject": one.subject,
        "seconds": one.seconds,
        "nominal": {"before": one.nominal_before, "after": one.nominal_after},
        "claims": {"before": one.lower_before, "after": one.lower_after},
        "known_s": {"before": one.known_before_s, "after": one.known_after_s},
        "codes": list(one.codes),
        "why": [change.code for change in found.why(one.codes)],
    }


def _incident(one: IncidentChange, found: Comparison) -> dict[str, Any]:
    def side(facts: Any, rules: Rules) -> dict[str, Any] | None:
        if facts is None:
            return None
        return {
            "code": facts.leading_code(rules),
            "party": facts.party(rules),
            "scope": facts.scope,
            "first_slot": facts.first_slot,
            "end_slot": facts.end_slot,
            "weight": facts.weight,
            "lost_gpu_seconds": facts.lost_gpu_seconds,
        }

    return {
        "kind": one.kind,
        "before": side(one.before, found.old),
        "after": side(one.after, found.new),
        "codes": list(one.codes),
        "why": [change.code for change in found.why(one.codes)],
    }
