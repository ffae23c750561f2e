"""The way into the alerts: one row, written in the transaction of what it tells of. Nothing is sent here."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from django.utils import timezone

from fleet.alerts.models import Alert
from fleet.domain.alerting.words import (
    KINDS,
    MAX_KEY_CHARS,
    MAX_TEXT_CHARS,
    MAX_TITLE_CHARS,
    SEVERITIES,
    WHATS,
    severity_of_weight,
)
from fleet.domain.slots import SLOT_S
from fleet.models import Incident

LATE_SLOTS = 3600 // SLOT_S  # what was over an hour before it became known is history, not news


def notify(
    kind: str,
    key: str,
    what: str,
    *,
    at: datetime,
    severity: str,
    title: str,
    text: str = "",
    cluster: str = "",
    party: str = "",
    path: str = "",
    facts: Mapping[str, Any] | None = None,
    dedup: str | None = None,
) -> bool:
    """Tell the current org's channels of something. False, and nothing happens, if `dedup` was told before of `key`.

    kind: `incident`, `silence`, `agents`, `budget`, `deadline`. what: `opened`, `worsened`, `acknowledged`, `resolved`,
    `reminder`. severity: `info`, `warning`, `critical`. `key` names the thread (such as `deadline-claim-7`): `opened`
    begins it, `resolved` ends it. `at` is when it happened. `path` is its page within the org, such as `claims/7/`.
    `facts` are JSON for programs. Call it inside the transaction of what it tells of; raises ValueError for a word that
    is none of these.
    """
    for word, known in ((kind, KINDS), (what, WHATS), (severity, SEVERITIES)):
        if word not in known:
            raise ValueError(f"{word!r} is none of {', '.join(known)}.")
    if not 0 < len(key) <= MAX_KEY_CHARS or at.tzinfo is None:
        raise ValueError("A key of 1 to 120 characters, and an aware instant.")
    row = Alert(
        key=key,
        kind=kind,
        what=what,
        at=at,
        severity=severity,
        title=" ".join(title.replace("\x00", "").split())[:MAX_TITLE_CHARS],
        text=text.replace("\x00", "")[:MAX_TEXT_CHARS],
        cluster=cluster,
        party=party,
        path=path,
        facts=dict(facts or {}),
        dedup=dedup,
    )
    if dedup is None:
        row.save(force_insert=True)
        return True
    if Alert.objects.filter(key=key, dedup=dedup).exists():
        return False
    # two at once: the unique constraint lets the first in, the other is dropped without an error
    Alert.objects.bulk_create([row], ignore_conflicts=True)
    return True


def told_of(key: str) -> list[tuple[str, Mapping[str, Any]]]:
    """What was told of a thread so far, oldest first: (what, facts)."""
    return list(Alert.objects.filter(key=key).order_by("pk").values_list("what", "facts"))


def tell_of_incident(incident: Incident, what: str) -> None:
    """Say that an incident changed. What is told of it the router reads from its row, or finds that it is gone."""
    Alert.objects.create(
        key=f"incident-{incident.pk}",
        kind="incident",
        what=what,
        at=timezone.now(),
        severity=severity_of_weight(incident.weight),
        facts={"incident": incident.pk},
    )


def is_news(incident: Incident) -> bool:
    """Whether an incident that just became known is still going on, or was within the last hour."""
    return incident.is_open or incident.end_slot >= int(timezone.now().timestamp()) // SLOT_S - LATE_SLOTS
