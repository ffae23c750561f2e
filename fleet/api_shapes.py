"""What the API says of each thing, as JSON-ready maps. Weights 0..100, instants RFC 3339 in UTC, null = not known."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from fleet.domain.explain import Explained, ends_of, explain
from fleet.domain.rules import Reason, Rules
from fleet.domain.slots import HOUR_MS, SLOT_MS, SLOT_S
from fleet.domain.strips import StripRun
from fleet.domain.verdicts import State, Verdict
from fleet.evidence import Batch
from fleet.fleet_json import floored, when
from fleet.ingest import MAX_HOUR
from fleet.models import Incident, IncidentNote
from fleet.selectors_api import GpuLine, NodeLine, Span
from fleet.selectors_api_availability import KNOWN, Group, Tally
from fleet.selectors_api_facts import Fact
from fleet.selectors_api_time import HourLine, SlotRun
from fleet.selectors_live import Condition, Gpu, state_word, title_of


def stamp(at: datetime | None) -> str | None:
    """A stored instant, to the microsecond."""
    return None if at is None else at.astimezone(UTC).isoformat().replace("+00:00", "Z")


def precise(ms: int) -> str:
    """An instant to the millisecond."""
    return datetime.fromtimestamp(ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def slot_at(slot: int) -> str | None:
    """A slot's first instant."""
    return when(slot * SLOT_MS)


def node(line: NodeLine) -> dict[str, Any]:
    """A node now."""
    now = line.now
    return {
        "id": line.id,
        "name": line.name,
        "cluster": line.cluster,
        "simulated": line.is_simulated,
        "state": now.word,
        "silent": now.is_silent,
        "gpus": {"total": len(now.gpus), **now.counts},
        "open_incidents": line.open_incidents,
        "first_seen": when(line.first_seen_ms),
        "last_sample": when(line.last_sample_ms),
        "last_received": when(line.last_received_ms),
        "agent_version": line.agent_version or None,
        "driver_version": now.driver or None,
        "dropped_batches": line.dropped_total,
        "broken_sources": list(now.broken_sources),
        "causes": list(now.causes),
        "reasons": [condition(each) for each in now.conditions],
    }


def node_in_full(line: NodeLine) -> dict[str, Any]:
    """A node now, with its GPUs and ports."""
    return {**node(line), "gpu_list": [gpu(GpuLine(line, each)) for each in line.now.gpus], "ports": _ports(line.now)}


def governed(line: NodeLine, account: str) -> dict[str, Any]:
    """A node in the fields of NVIDIA's resource governance; what nothing here can know is null, never guessed."""
    is_known = line.now.counts["unknown"] < len(line.now.gpus)
    is_whole = line.now.counts["available"] == len(line.now.gpus)
    return {
        "node_id": line.name,
        "health": ("healthy" if is_whole else "unhealthy") if is_known else None,
        "instance_id": None,
        "created_at": when(line.first_seen_ms),
        "hardware_type": line.now.model or None,
        "gpu_count": len(line.now.gpus),
        "healthy_gpu_count": line.now.counts["available"],
        "account": account,
        "project": line.cluster,
        "in_use": None,
        "region": None,
    }


def _ports(now: Any) -> list[dict[str, Any]]:
    return [{"id": port.uuid or None, **_verdict_of(port)} for port in now.ports]


def gpu(found: GpuLine) -> dict[str, Any]:
    """A GPU's place now: what sits in it, what it is worth and why."""
    line, one = found.node, found.gpu
    return {
        "node_id": line.id,
        "node": line.name,
        "cluster": line.cluster,
        "simulated": line.is_simulated,
        "index": one.place,
        "uuid": one.uuid or None,
        "pci_bus_id": one.bus_id or None,
        "model": one.model or None,
        **_verdict_of(one),
        "last_sample": when(line.last_sample_ms),
    }


def _verdict_of(one: Gpu) -> dict[str, Any]:
    return {
        "state": one.word,
        "marks": list(one.marks),
        "weight": one.weight,
        "lower_loss_weight": one.lower,
        "higher_loss_weight": one.upper,
        "since": when(one.since_ms),
        "causes": list(one.causes),
        "reasons": [condition(each) for each in one.conditions],
    }


def condition(each: Condition) -> dict[str, Any]:
    """A reason that holds now."""
    return {
        "code": each.code,
        "title": each.title,
        "party": each.party,
        "weight": each.weight,
        "certain": each.is_certain,
        "since": when(each.since_ms),
        "action": each.action or None,
    }


def slot_run(run: SlotRun) -> dict[str, Any]:
    """A stretch of slots with one verdict."""
    verdict = run.verdict
    return {
        "from": slot_at(run.first_slot),
        "to": slot_at(run.end_slot),
        "slots": run.end_slot - run.first_slot,
        "state": str(verdict.state),
        "word": state_word(verdict.state.value, verdict.nominal),
        "weight": verdict.nominal,
        "lower_loss_weight": verdict.lower,
        "higher_loss_weight": verdict.upper,
        "certain": list(verdict.certain),
        "possible": list(verdict.possible),
        "rules": run.rules or None,
        "row": run.row,
    }


def hour(line: HourLine) -> dict[str, Any]:
    """An hour added up: seconds per state are 3600 together."""
    tally = Tally(counted=3600)
    if line.rollup is not None:
        tally.add_rollup(line.rollup)
    return {
        "from": when(line.hour * HOUR_MS),
        "to": when((line.hour + 1) * HOUR_MS),
        **figures(tally),
        "rules": line.rules or None,
        "row": line.row,
    }


def figures(tally: Tally) -> dict[str, Any]:
    """Floored percentages as text beside the integers that they come from."""
    unknown = tally.unknown
    lower, upper, counted = tally.lower + 100 * unknown, tally.upper, tally.known + unknown
    return {
        "availability_percent": floored(tally.nominal, 100 * tally.known),
        "availability_lower_loss_percent": floored(lower, 100 * counted),
        "availability_higher_loss_percent": floored(upper, 100 * counted),
        "coverage_percent": floored(tally.known, counted),
        "counted_seconds": counted,
        "known_seconds": tally.known,
        "unknown_seconds": unknown,
        **{f"{state.value}_seconds": tally.states[state] for state in KNOWN},
        "down_seconds": tally.down,
        "degraded_seconds": tally.degraded,
        "nominal_weight_seconds": tally.nominal,
        "lower_loss_weight_seconds": lower,
        "higher_loss_weight_seconds": upper,
    }


def group(one: Group, span: Span) -> dict[str, Any]:
    """A group's key and figures over its span."""
    return {**span.as_json(), **one.key, **figures(one.tally)}


def event(fact: Fact, line: NodeLine, rules: Rules) -> dict[str, Any]:
    """A kernel event: kind and numbers, never a line of a log."""
    places = {one.bus_id: one.place for one in line.now.gpus if one.bus_id}
    raw = fact.event
    kind = getattr(raw, "kind", "xid")
    code = raw.code
    reason = _reason_of(kind, code, getattr(raw, "severity", None), rules)
    bus_id = getattr(raw, "pci_bus_id", None)
    return {
        "at": precise(fact.ms),
        "node_id": line.id,
        "node": line.name,
        "cluster": line.cluster,
        "kind": kind,
        "code": code,
        "reason": reason.code if reason else None,
        "title": reason.title if reason else None,
        "party": reason.party if reason else None,
        "pci_bus_id": bus_id,
        "gpu_index": places.get(bus_id) if bus_id else None,
        **{name: getattr(raw, name, None) for name in EVENT_DETAILS},
        "clock_good": fact.is_clock_good,
        "batch_sha256": fact.sha256.hex(),
        "received_at": stamp(fact.received_at),
    }


EVENT_DETAILS = ("severity", "action", "unit", "link", "instance", "slices", "count", "backlog")


def _reason_of(kind: str, code: int | None, severity: str | None, rules: Rules) -> Reason | None:
    if code is None:
        return None
    if kind == "xid":
        return rules.by_xid.get((code, severity or "")) or rules.by_xid.get((code, ""))
    if kind == "sxid":
        return rules.sxid(code, severity)
    return None


def explained(each: Explained) -> dict[str, Any]:
    """A reason in words."""
    return {
        "code": each.code,
        "holds": each.holds,
        "title": each.title,
        "explanation": each.explanation,
        "party": each.party,
        "category": each.category,
        "weight": each.weight,
        "share": each.share,
        "needs": each.needs or None,
        "ends": each.ends or None,
        "action": each.action or None,
        "sources": list(each.sources),
    }


def incident(one: Incident) -> dict[str, Any]:
    """An incident in a list."""
    return {
        "id": one.pk,
        "node_id": one.node_id,
        "node": one.node.name,
        "cluster": one.cluster.name,
        "simulated": one.cluster.is_simulated,
        "scope": "cluster" if one.nodes_together > 1 else one.scope,
        "part_of": one.part_of_id,
        "nodes": one.nodes_together,
        "code": one.code,
        "title": title_of(one.code),
        "party": one.party,
        "weight": one.weight,
        "open": one.is_open,
        "opened": slot_at(one.first_slot),
        "resolved": None if one.is_open else slot_at(one.end_slot),
        "last_evidence": slot_at(one.end_slot),
        "lost_gpu_seconds": one.lost_gpu_seconds,
        "subjects": [part["subject"] for part in one.parts],
        "withdrawn": stamp(one.withdrawn_at),
        "acknowledged": stamp(one.acknowledged_at),
        "acknowledged_by": one.acknowledged_by or None,
        "ticket_number": one.ticket_number or None,
        "reported_at": stamp(one.reported_at),
        "provider_ack_at": stamp(one.provider_ack_at),
        "disposition": one.disposition or None,
    }


def incident_in_full(
    one: Incident, slots_from: int, runs: dict[str, list[StripRun]], line: NodeLine | None, rules: Rules
) -> dict[str, Any]:
    """An incident with its parts, their exact slots, its reasons in words and its notes."""
    codes = sorted({code for part in one.parts for code in part["codes"]})
    gpus = {f"g{each.place}": each for each in line.now.gpus} if line else {}
    return {
        **incident(one),
        "members": sorted(one.members.filter(withdrawn_at=None).values_list("pk", flat=True)),
        "slots_from": slot_at(slots_from),
        "parts": [_part(part, runs.get(part["subject"], []), gpus) for part in one.parts],
        "reasons": [explained(each) for code in codes for each in _explain(code, rules)],
        "notes": [note(each) for each in one.notes.all()],
    }


def _explain(code: str, rules: Rules) -> tuple[Explained, ...]:
    return explain(Verdict(State.OBSERVED, 0, 0, 0, (code,)), rules)


def _part(part: dict[str, Any], runs: list[StripRun], gpus: dict[str, Gpu]) -> dict[str, Any]:
    device = gpus.get(part["subject"])
    return {
        "subject": part["subject"],
        "index": int(part["subject"][1:]) if part["subject"][0] == "g" else None,
        "uuid": device.uuid if device and device.uuid else None,
        "from": slot_at(part["first_slot"]),
        "to": slot_at(part["end_slot"]),
        "bad_slots": part["bad_slots"],
        "lost_gpu_seconds": part["lost"] * SLOT_S // 100 if part["subject"][0] == "g" else 0,
        "weight": part["weight"],
        "codes": [
            {"code": code, "from": slot_at(first), "to": slot_at(last + 1), "weight": weight}
            for code, (first, last, weight) in sorted(part["codes"].items())
        ],
        "slots": [
            {
                "from": slot_at(run.first_slot),
                "to": slot_at(run.end_slot),
                "slots": run.end_slot - run.first_slot,
                "state": str(run.verdict.state),
                "weight": run.verdict.nominal,
                "certain": list(run.verdict.certain),
                "possible": list(run.verdict.possible),
            }
            for run in runs
        ],
    }


def note(one: IncidentNote) -> dict[str, Any]:
    """A note."""
    return {"id": one.pk, "at": stamp(one.at), "author": one.author, "text": one.text}


def batch(one: Batch, is_waiting: bool) -> dict[str, Any]:
    """A received batch in full, without its bytes."""
    row = one.row
    return {
        "sha256": one.sha256.hex(),
        "cluster": row.cluster,
        "node": row.node,
        "node_id": one.node_id,
        "agent_id": row.agent_id,
        "seq": row.seq,
        "boot_id": row.boot_id,
        "sample_day": one.sample_day.isoformat(),
        "received_at": stamp(one.received_at),
        "signature": row.signature.hex() if row.signature else None,
        "has_suspect_clock": row.has_suspect_clock,
        "is_seq_conflict": row.is_seq_conflict,
        "is_folded": not is_waiting and one.is_evidence,
        "is_packed": one.entry is not None,
        "hours": _hours(one),
        "dropped_batches": row.dropped_total,
        "error": ": ".join(part for part in (one.reason.removeprefix("moved"), one.error) if part) or None,
        "body": f"/v1/batches/{one.sha256.hex()}/body",
    }


def _hours(one: Batch) -> dict[str, str | None] | None:
    """The hours that its items belong to, half-open; null where they could not be placed in time."""
    if one.reason == "suspect_clock" or one.last_hour >= MAX_HOUR:
        return None
    return {"from": when(one.first_hour * HOUR_MS), "to": when((one.last_hour + 1) * HOUR_MS)}


def rule(reason: Reason) -> dict[str, Any]:
    """A reason of a rule set, as the fold uses it."""
    return {
        "code": reason.code,
        "title": reason.title,
        "explanation": reason.explanation,
        "party": reason.party,
        "severity": reason.severity,
        "weight": reason.weight,
        "lowers": reason.lowers,
        "subject": reason.subject,
        "lasts": reason.lasts,
        "category": reason.category,
        "needs": list(reason.needs),
        "ends": list(reason.ends),
        "ends_without_action": list(reason.ends_without_action),
        "ends_in_words": ends_of(reason),
        "persistence_samples": reason.persistence_samples,
        "symptom_of": list(reason.symptom_of),
        "supersedes": list(reason.supersedes),
        "owner": reason.owner or None,
        "action": reason.action or None,
        "review": reason.review,
        "disagreement": reason.disagreement or None,
        "xid": reason.xid if reason.xid >= 0 else None,
        "sxids": list(reason.sxids) or ([reason.sxid] if reason.sxid >= 0 else []),
        "sources": list(reason.sources),
    }
