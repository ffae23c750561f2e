"""Whole comparisons of rules in the background: asked for, worked off in slices, stopped. No verdict is written.

A slice compares node after node for some seconds, so that a worker is soon free for the fold again, and then sends the
next. What a dead worker left is taken up again by the job of each minute. A message says where its slice begins: of
two that say the same one begins a slice and the other nothing, so the slices that wait for a worker never grow in
number.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from django.db import IntegrityError, transaction
from django.db.models import F, Q
from django.utils import timezone

from fleet.comparing import Comparison, Proposal, compare, node_json, rule_change
from fleet.dated import get_org_dated, hour_at
from fleet.domain.rules import RulesError, amendment, versions
from fleet.domain.slots import HOUR_MS
from fleet.folding import sealed_hour
from fleet.models import Node, NodeHour, RuleComparison, RuleComparisonNode
from fleet.services_dated import DatedInvalid
from fleet.services_incidents import Actor
from orgs.services import record

SLICE_SECONDS = 10.0
MOST_SECONDS = 2 * 3600.0  # of work, then it stops with what it has
BEAT = timedelta(minutes=5)  # a worker that has not told for so long is gone
MOST_ATTEMPTS = 3
KEPT = 10  # comparisons; older ones go


def ask_for_comparison(
    actor: Actor, *, code: str = "", changes: Mapping[str, Any] | None = None, version: str = ""
) -> RuleComparison:
    """A comparison of all hours that are not sealed. Raises DatedInvalid for what no rule says, or beside another."""
    with transaction.atomic():
        first = NodeHour.objects.order_by("hour").values_list("hour", flat=True).first()
        if first is None:
            raise DatedInvalid("", "Nothing is folded yet: there is nothing to compare.")
        row = RuleComparison(
            code=code[:64],
            changes=dict(changes or {}),
            version=version,
            from_hour=max(first, sealed_hour()),
            until_hour=hour_at(timezone.now()) + 1,
            requested_by=actor.name[:254],
            nodes_total=_nodes().count(),
        )
        if version and version not in versions():
            raise DatedInvalid("version", f"One of {', '.join(versions())}.")
        try:
            _proposal(row).book(get_org_dated().book).at(row.until_hour - 1)
        except RulesError as error:
            raise DatedInvalid("changes", str(error)) from error
        try:
            with transaction.atomic():
                row.save()
        except IntegrityError as error:
            raise DatedInvalid("", "A comparison is at work: wait for its end, or stop it.") from error
        old = RuleComparison.objects.values_list("pk", flat=True)[KEPT:]
        RuleComparison.objects.filter(pk__in=list(old)).delete()
        after = {"id": row.pk, **({"version": version} if version else {"changes": row.changes})}
        record(
            "rules.compared",
            actor=actor.name,
            org=actor.org,
            target=version or code,
            address=actor.address,
            after=after,
        )
    return row


def stop_comparison(pk: int, actor: Actor) -> bool:
    """End a comparison before its end; what it has stays. False if it had ended."""
    with transaction.atomic():
        done = _end(pk, RuleComparison.State.STOPPED, f"{actor.name} stopped it."[:500])
        if done:
            record("rules.comparison_stopped", actor=actor.name, org=actor.org, target=str(pk), address=actor.address)
    return done


def waiting_comparison(now: datetime) -> tuple[int, int] | None:
    """(the comparison that no worker is at, the node after which it stands); None where there is none."""
    idle = Q(beat_at=None, requested_at__lt=now - timedelta(minutes=1)) | Q(beat_at__lt=now - BEAT)
    found: tuple[int, int] | None = (
        RuleComparison.objects.filter(idle, is_active=True).values_list("pk", "last_node_id").first()
    )
    return found


def work_on_comparison(pk: int, after: int, budget_s: float = SLICE_SECONDS) -> int | None:
    """Compare the nodes behind `after`, one after the other, for so long; the last of them if there is more to do.

    Nothing while another worker is at it, or where it stands elsewhere by now.
    """
    now = timezone.now()
    idle = Q(beat_at=None) | Q(beat_at__lt=now - BEAT)
    mine = RuleComparison.objects.filter(idle, pk=pk, is_active=True, last_node_id=after)
    if not mine.update(beat_at=now, state=RuleComparison.State.RUNNING, attempts=F("attempts") + 1):
        return None
    row = RuleComparison.objects.get(pk=pk)
    if row.attempts > MOST_ATTEMPTS:
        _end(pk, RuleComparison.State.FAILED, f"It failed {MOST_ATTEMPTS} times after node {row.last_node_id}.")
        return None
    ends = time.monotonic() + budget_s
    while True:
        began = time.monotonic()
        node = _nodes().filter(pk__gt=row.last_node_id).first()
        if node is None:
            _end(pk, RuleComparison.State.DONE, "")
            return None
        if row.spent_s > MOST_SECONDS:
            _end(pk, RuleComparison.State.STOPPED, f"It had worked for {MOST_SECONDS / 3600:.0f} hours.")
            return None
        try:
            found = compare(_proposal(row), row.until_hour, [node])
        except RulesError as error:
            _end(pk, RuleComparison.State.FAILED, str(error)[:500])
            return None
        if not _keep(row, node, found, time.monotonic() - began):
            return None  # somebody stopped it, or it was taken for dead and another worker was ahead
        if time.monotonic() > ends:
            RuleComparison.objects.filter(pk=pk, is_active=True).update(beat_at=None)
            return row.last_node_id


def _keep(row: RuleComparison, node: Node, found: Comparison, spent_s: float) -> bool:
    """Note what came of a node, and how far it is; False where the comparison was stopped or went on meanwhile."""
    here = RuleComparison.objects.filter(pk=row.pk, is_active=True, last_node_id=row.last_node_id)
    row.last_node_id = node.pk
    row.spent_s += spent_s
    with transaction.atomic():
        done = here.update(
            last_node_id=row.last_node_id,
            spent_s=row.spent_s,
            rules=[rule_change(change) for change in found.changes],
            nodes_done=F("nodes_done") + 1,
            hours_folded=F("hours_folded") + found.hours_folded,
            attempts=0,
            beat_at=timezone.now(),
        )
        for one in found.nodes if done else ():
            before, after = one.lost_s
            RuleComparisonNode.objects.create(
                comparison=row,
                node=node,
                hours=len({change.hour for change in one.hours}),
                seconds=sum(change.seconds for change in one.hours),
                lost_before_s=before,
                lost_after_s=after,
                incidents=len(one.incidents),
                body=node_json(one, found),
            )
    return bool(done)


def _nodes() -> Any:
    return Node.objects.filter(merged_into=None).select_related("cluster").order_by("pk")


def _proposal(row: RuleComparison) -> Proposal:
    """Raises RulesError."""
    if row.version:
        return Proposal(row.from_hour, row.version)
    one = amendment(row.code, row.changes, "proposed", row.from_hour * HOUR_MS)
    return Proposal(row.from_hour, None, (one,))


def _end(pk: int, state: str, why: str) -> bool:
    rows = RuleComparison.objects.filter(pk=pk, is_active=True)
    return bool(rows.update(state=state, is_active=None, beat_at=None, finished_at=timezone.now(), why=why))
