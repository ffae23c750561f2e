"""What a computation rests on, read from the org's tables: facts, overlays, invoice, and their digests."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

from django.db.models import Q

from claims.document import document_of
from claims.domain.assemble import assemble
from claims.domain.contract import Contract as Terms
from claims.domain.contract import pick_version
from claims.domain.facts import UNREACHABLE, FactRun, ancestors
from claims.domain.periods import Period, build
from claims.domain.result import AutomaticCredit, Inputs
from claims.domain.rule_spans import RuleSpan, Translator, plain_spans
from claims.domain.spans import Spans
from claims.errors import ClaimsError, ContractError, InputsError
from claims.models import Contract, ContractVersion, Invoice, Overlay, ms_at
from claims.node_months import load_month, months_between, runs_of_months
from claims.windows import ticket_rows, window_rows
from claims.witnesses import witnessed_spans
from fleet.dated import get_org_dated
from fleet.domain.slots import HOUR_MS, SLOT_MS, SLOTS_PER_HOUR
from fleet.models import Node
from fleet.selectors_waiting import folded_through, unfolded_before

#: How far beyond the period facts are read, so that runs over its edges are whole.
MARGIN_MS = 31 * 86_400_000


@dataclass(frozen=True)
class Gathered:
    """Inputs of one computation. `frozen`: what a report keeps of them; `is_simulated`: a node of it is."""

    version: ContractVersion
    terms: Terms
    inputs: Inputs
    frozen: dict[str, Any]
    is_simulated: bool

    def document(self) -> dict[str, Any]:
        """result.json. Raises what the arithmetic raises."""
        frozen = self.frozen
        return document_of(
            self.terms, self.inputs, frozen["contract"], frozen["overlays"], self.is_simulated, frozen["computed_ms"]
        )


def version_for(contract: Contract, month: str) -> ContractVersion:
    """The version in force at the month's start; raises ContractError where none is."""
    versions = list(contract.versions.all())
    loaded = {id(terms): (one, terms) for one in versions for terms in [_with_dates(one)]}
    found = pick_version([terms for _, terms in loaded.values()], f"{month}-01")
    if found is None:
        first = min((str(one.valid_from) for one in versions if one.valid_from), default="")
        raise ContractError(
            f"No version of {contract.name} was in force on {month}-01"
            + (f": the first is from {first}." if first else ".")
        )
    if found.version_rule == "incident":
        _refuse_change(contract, found, month)
    same = [one for one, terms in loaded.values() if terms.effective_from == found.effective_from]
    return max(same, key=lambda one: one.number)


def _refuse_change(contract: Contract, terms: Terms, month: str) -> None:
    """Raise ContractError where the terms change inside the month and each incident is under those of its own day."""
    period = period_for(terms, month)
    first, end = (datetime.fromtimestamp(ms / 1000, UTC).date() for ms in (period.start_ms, period.end_ms))
    change = contract.versions.filter(valid_from__gt=first, valid_from__lt=end).order_by("valid_from").first()
    if change is not None:
        raise ContractError(
            f"The terms of {contract.name} change on {change.valid_from}, and each incident is under those of its own "
            "day: one computation can't say this month. Add each part as a contract of its own with its entitlement.",
            "version_rule",
        )


def _with_dates(version: ContractVersion) -> Terms:
    return replace(
        version.load(),
        effective_from=str(version.valid_from or ""),
        effective_to=str(version.valid_until or ""),
    )


def period_for(terms: Terms, month: str) -> Period:
    """The contract's period of a month; a contract that names no zone is read in UTC and stays incomplete."""
    return build(terms.period_kind, month, terms.zone or "UTC", terms.anchor_day)


def running_month(contract: Contract, now: datetime) -> str:
    """The label of the contract's period that runs: its zone and its billing day decide, not the month in UTC.

    The month in UTC where no version says.
    """
    at = now.astimezone(UTC)
    label = f"{at:%Y-%m}"
    for month in (
        label,
        f"{at.replace(day=1) - timedelta(days=1):%Y-%m}",
        f"{at.replace(day=28) + timedelta(days=7):%Y-%m}",
    ):
        try:
            period = period_for(version_for(contract, month).load(), month)
        except ClaimsError:
            continue
        if period.start_ms <= (ms_at(now) or 0) < period.end_ms:
            return month
    return label


def gather(contract: Contract, month: str, now: datetime) -> Gathered:
    """Everything that the month's computation needs. Raises ContractError, PeriodError, InputsError."""
    version = version_for(contract, month)
    terms = version.load()
    period = period_for(terms, month)
    now_slot = (ms_at(now) or 0) // SLOT_MS
    first_ms = period.start_ms - MARGIN_MS
    end_ms = min(period.end_ms + MARGIN_MS, now_slot * SLOT_MS)
    nodes = covered_nodes(contract, terms)
    spans = rule_spans(first_ms, end_ms)
    facts, digests = _facts(nodes, first_ms, end_ms, spans)
    witnessed, witnesses = _witnesses(terms, nodes, first_ms, end_ms, ms_at(now) or 0)
    overlays = list(Overlay.objects.filter(Q(contract=contract) | Q(contract=None), withdrawn_at=None))
    planned = [*window_rows(nodes, first_ms, period.end_ms), *ticket_rows(nodes, first_ms, period.end_ms)]
    invoice = Invoice.objects.filter(contract=contract, month=month).first()
    inputs = Inputs(
        period,
        facts,
        [*(one.row() for one in overlays), *(row for row, _ in planned)],
        witnessed,
        first_ms // SLOT_MS,
        max(end_ms // SLOT_MS, first_ms // SLOT_MS),
        **_money(invoice),
    )
    rules = next(
        span.rules for span in reversed(spans) if span.first_slot <= max(period.first_slot, first_ms // SLOT_MS)
    )
    frozen = {
        "watermark": _watermark(),
        "rules": {"version": rules.version, "digest": rules.digest, "spans": plain_spans(spans)},
        "contract": {
            "name": contract.name,
            "version": str(version.number),
            "digest": version.digest,
            "valid_from": str(version.valid_from or ""),
            "cluster": contract.cluster,
        },
        "month": month,
        "computed_ms": ms_at(now) or 0,
        "looked_at": [inputs.first_slot, inputs.end_slot],
        "overlays": [*(plain_overlay(one) for one in overlays), *(plain for _, plain in planned)],
        "invoice": None if invoice is None else plain_invoice(invoice),
        "witnesses": witnesses,
        "witnessed": {name: [[str(a), str(b)] for a, b in found] for name, found in witnessed.items()},
        "node_months": digests,
    }
    return Gathered(version, terms, inputs, frozen, any(node.cluster.is_simulated for node in nodes))


def covered_nodes(contract: Contract, terms: Terms) -> list[Node]:
    """The nodes that the contract's units lie on, the longest known first; raises InputsError for a name of two.

    A name whose node was merged into another one means that one's history, and the node comes called as the contract
    calls it; not where the contract names the other as well, as one machine is not owed for twice.
    """
    wanted = {above for unit in terms.units for name in (unit.name, *unit.members) for above in ancestors(name)}
    known = Node.objects.select_related("cluster").filter(name__in=wanted, merged_into=None)
    nodes = known.order_by("first_seen_at", "pk")
    joined = Node.objects.select_related("merged_into__cluster").filter(name__in=wanted).exclude(merged_into=None)
    if contract.cluster:
        nodes, joined = (one.filter(cluster__name=contract.cluster) for one in (nodes, joined))
    found = list(nodes)
    there = {node.pk for node in found}
    for gone in joined.order_by("first_seen_at", "pk"):
        node = gone.merged_into
        if node is not None and node.pk not in there and gone.name not in {one.name for one in found}:
            there.add(node.pk)
            node.name = gone.name
            found.append(node)
    clusters: dict[str, set[str]] = {}
    for node in found:
        clusters.setdefault(node.name, set()).add(node.cluster.name)
    for name, names in clusters.items():
        if len(names) > 1:
            raise InputsError(
                f"There is a node {name} in {' and '.join(sorted(names))}: name the contract's cluster.", "cluster"
            )
    return found


def rule_spans(first_ms: int, end_ms: int) -> list[RuleSpan]:
    """The rule sets of the org's hours in `[first_ms, end_ms)`, from the first one on."""
    book = get_org_dated().book
    first, end = first_ms // HOUR_MS, -(-end_ms // HOUR_MS)
    hours = [first, *sorted({-(-at // HOUR_MS) for at in book.edges() if first < -(-at // HOUR_MS) < end})]
    out: list[RuleSpan] = []
    for hour in hours:
        at_ms = hour * HOUR_MS
        one = RuleSpan(
            hour * SLOTS_PER_HOUR, book.base(at_ms), tuple(one.one for one in book.in_force(at_ms)), book.at(hour)
        )
        if not out or out[-1].rules.digest != one.rules.digest:
            out.append(one)
    return out


def _witnesses(
    terms: Terms, nodes: Sequence[Node], first_ms: int, end_ms: int, now_ms: int
) -> tuple[dict[str, Spans], str]:
    """Each node's slots in which a pair of witnesses was alive, and that in words; asked only where it matters."""
    if UNREACHABLE not in terms.counts:
        return {}, "not asked: this contract does not count lost connectivity"
    found = witnessed_spans(nodes, first_ms, end_ms, now_ms)
    if not found:
        return {}, "none: no probe watched these nodes while others of their cluster were heard"
    return found, f"a probe and peers, for {len(found)} of {len(nodes)} nodes"


def _facts(
    nodes: Sequence[Node], first_ms: int, end_ms: int, spans: Sequence[RuleSpan]
) -> tuple[dict[str, Sequence[FactRun]], list[Any]]:
    """(facts by subject, the months that they are from: node by node, the longest known first)."""
    by_node: dict[int, list[Any]] = {node.pk: [] for node in nodes}
    kept: dict[int, list[Any]] = {node.pk: [] for node in nodes}
    names = {node.pk: node.name for node in nodes}
    for month in months_between(first_ms, end_ms) if nodes else ():
        for node_id, one in sorted(load_month(list(by_node), month).items()):
            by_node[node_id].append(one)
            kept[node_id].append({"node": names[node_id], "id": str(node_id), "month": month, "digest": one.digest})
    runs = [(node.name, runs_of_months(by_node[node.pk])) for node in nodes]
    return assemble(runs, first_ms // SLOT_MS, end_ms // SLOT_MS, Translator(spans).over), [
        one for node in nodes for one in kept[node.pk]
    ]


def _money(invoice: Invoice | None) -> dict[str, Any]:
    if invoice is None:
        return {}
    return {
        "fees": {unit: Decimal(amount) for unit, amount in invoice.fees.items()},
        "automatic": [
            AutomaticCredit(one["unit"], Decimal(one["amount"]), one.get("reference", "")) for one in invoice.automatic
        ],
        "invoice_complete": invoice.is_complete,
        "previous_month_spend": invoice.previous_month_spend,
    }


def _watermark() -> str | None:
    """Up to when received batches are in the strips."""
    last = folded_through()
    return None if last is None else last.isoformat()


def waiting(end_ms: int) -> int:
    """How many batches of the time before `end_ms` are received and not in the strips yet, and nodes whose late facts
    of that time wait. What comes of later days does not matter: a live org always has some.
    """
    return unfolded_before(-(-end_ms // HOUR_MS))


def plain_overlay(one: Overlay) -> dict[str, Any]:
    """An overlay for result.json: instants as ISO 8601, slots as the arithmetic took them."""
    row = one.row()
    return {
        "id": str(one.pk),
        "kind": one.kind,
        "resource": one.resource,
        "starts_at": one.starts_at.isoformat(),
        "ends_at": None if one.ends_at is None else one.ends_at.isoformat(),
        "first_slot": str(row.first_slot),
        "end_slot": None if row.end_slot is None else str(row.end_slot),
        "acknowledged_slot": None if row.acknowledged_slot is None else str(row.acknowledged_slot),
        "pauses": [[str(a), str(b)] for a, b in row.pauses],
        "notice_s": None if one.notice_s is None else str(one.notice_s),
        "reference": one.reference,
        "provider_word": one.provider_word,
        "author": one.author,
        "entered_at": one.entered_at.isoformat(),
        "entered_late": row.entered_late(),
    }


def plain_invoice(one: Invoice) -> dict[str, Any]:
    """An invoice for result.json."""
    spend = one.previous_month_spend
    return {
        "fees": one.fees,
        "automatic": one.automatic,
        "is_complete": one.is_complete,
        "previous_month_spend": None if spend is None else str(spend),
        "author": one.author,
    }


def canonical_json(document: Any) -> bytes:
    """One sequence of bytes for a document: sorted keys, no spaces, UTF-8."""
    return json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()
