"""What an incident's change means to people: read from the incident as it stands, the whole of a cluster-wide one."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from fleet.alerts.models import Alert, Thread
from fleet.alerts.outbox import is_news
from fleet.domain.alerting.words import MAX_TEXT_CHARS, MAX_TITLE_CHARS, SEVERITIES, severity_of_weight
from fleet.domain.slots import SLOT_S
from fleet.models import Incident
from fleet.selectors_incidents import lines_of


@dataclass(frozen=True)
class News:
    """A change of a thread. `is_quiet`: the thread's row is brought up to date, nobody is told."""

    key: str
    kind: str
    what: str
    at: datetime
    severity: str
    title: str
    text: str
    began_at: datetime
    ended_at: datetime | None = None
    party: str = ""
    cluster: str = ""
    path: str = ""
    facts: dict[str, Any] = field(default_factory=dict)
    is_quiet: bool = False

    @classmethod
    def of(cls, row: Alert) -> News:
        """Of a row that says everything itself."""
        ended_at = row.at if row.what == "resolved" else None
        return cls(
            key=row.key,
            kind=row.kind,
            what=row.what,
            at=row.at,
            severity=row.severity,
            title=row.title,
            text=row.text,
            began_at=row.at,
            ended_at=ended_at,
            party=row.party,
            cluster=row.cluster,
            path=row.path,
            facts=row.facts,
        )


def news_of_incident(row: Alert, now: datetime) -> Iterable[News]:
    """What is to be told about the incident that a row names; nothing where nothing changed for people."""
    pk = row.facts["incident"]
    incident = Incident.objects.filter(pk=pk).first()
    if incident is None or incident.withdrawn_at is not None:
        yield from _ended_otherwise(row.key, now, "Newer evidence says that there was no such fault.")
        return
    if incident.part_of_id is not None:
        text = f"It goes on as part of the cluster-wide incident {incident.part_of_id}."
        yield from _ended_otherwise(row.key, now, text)
        incident = Incident.objects.get(pk=incident.part_of_id)
    members = [incident, *incident.members.filter(withdrawn_at=None)]
    thread = Thread.objects.filter(key=f"incident-{incident.pk}").first()
    found = _as_it_stands(incident, members, now)
    if row.what == "acknowledged":
        if thread is not None and thread.is_open:
            yield _with(found, "acknowledged", row.at)
        return
    is_open = found.ended_at is None
    if thread is None or not thread.is_open:
        if thread is not None and not is_open:
            return
        if any(is_news(one) for one in members):
            yield _with(found, "opened", found.began_at if thread is None else now)
            if not is_open:
                yield _with(found, "resolved", found.ended_at or now)
        return
    if not is_open:
        yield _with(found, "resolved", found.ended_at or now)
        return
    yield _with(found, "worsened", now, is_quiet=not _is_worse(thread, found))


def _is_worse(thread: Thread, found: News) -> bool:
    """Whether more broke, or it weighs more, or it became the provider's."""
    return (
        SEVERITIES.index(found.severity) > SEVERITIES.index(thread.severity)
        or found.facts["parts"] > thread.facts.get("parts", 0)
        or found.facts["nodes"] > thread.facts.get("nodes", 1)
        or (found.party != thread.party and found.party == "infrastructure")
    )


def _ended_otherwise(key: str, now: datetime, text: str) -> Iterable[News]:
    """The end of a thread whose incident is none any more."""
    thread = Thread.objects.filter(key=key, is_open=True).first()
    if thread is not None:
        yield News(
            key=key,
            kind=thread.kind,
            what="resolved",
            at=now,
            severity=thread.severity,
            title=thread.title,
            text=text,
            began_at=thread.began_at,
            ended_at=now,
            party=thread.party,
            cluster=thread.cluster,
            path=thread.path,
            facts=thread.facts,
        )


def _with(found: News, what: str, at: datetime, is_quiet: bool = False) -> News:
    values = {**found.__dict__, "what": what, "at": at, "is_quiet": is_quiet}
    if what != "resolved":
        values["ended_at"] = None
    return News(**values)


def _as_it_stands(incident: Incident, members: list[Incident], now: datetime) -> News:
    """The incident with all its members, as News without a change."""
    incident = Incident.objects.select_related("node", "cluster").get(pk=incident.pk)
    (line,) = lines_of(now, [incident])
    weight = min(one.weight for one in members)
    is_open = any(one.is_open for one in members)
    ended = None if is_open else datetime.fromtimestamp(max(one.end_slot for one in members) * SLOT_S, UTC)
    nodes = len({one.node_id for one in members})
    where = line.where if nodes == 1 else f"{nodes} nodes of {incident.cluster.name}"
    lost = sum(one.lost_gpu_seconds for one in members)
    devices = [f"{one.label} {one.device}".strip() for one in line.affected]
    shown = [
        ["Where", where],
        ["Hardware", ", ".join(devices[:8]) + (f" and {len(devices) - 8} more" if len(devices) > 8 else "")],
        ["Lost so far" if is_open else "Lost", f"{lost / 3600:.2f} GPU-hours"],
        ["Reason", incident.code],
    ]
    text = f"{line.explanation}\nNext: {line.action}." if line.action else line.explanation
    return News(
        key=f"incident-{incident.pk}",
        kind="incident",
        what="",
        at=now,
        severity=severity_of_weight(weight),
        title=f"{where}: {line.title}{' (simulated)' if incident.cluster.is_simulated else ''}"[:MAX_TITLE_CHARS],
        text=text[:MAX_TEXT_CHARS],
        began_at=datetime.fromtimestamp(min(one.first_slot for one in members) * SLOT_S, UTC),
        ended_at=ended,
        party="infrastructure" if any(one.party == "infrastructure" for one in members) else incident.party,
        cluster=incident.cluster.name,
        path=f"incidents/{incident.pk}/",
        facts={
            "incident": incident.pk,
            "code": incident.code,
            "where": where,
            "node": incident.node.name,
            "nodes": nodes,
            "parts": sum(len(one.parts) for one in members),
            "weight": weight,
            "lost_gpu_seconds": lost,
            "gpus": [{"index": one.index, "uuid": one.device} for one in line.affected if one.kind == "gpu"],
            "shown": shown,
        },
    )
