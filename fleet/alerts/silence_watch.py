"""Telemetry silence: one thread per cluster while nodes of it send nothing. Runs every minute, reads one table."""

from __future__ import annotations

from collections import defaultdict
from datetime import datetime, timedelta
from typing import Any

from django.conf import settings

from fleet.alerts.models import Alert, Thread
from fleet.alerts.outbox import notify
from fleet.models import Cluster, NodeLive

FORGOTTEN_AFTER = timedelta(days=7)  # a machine that was given back is no alarm for ever
NAMES_TOLD = 20


def watch_silence(now: datetime) -> int:
    """Tell of the current org's clusters in which a node fell silent, more did, or all are back; the alerts written."""
    silent_since = now - timedelta(minutes=settings.GOODPUT_ALERT_SILENCE_MINUTES)
    silent: dict[int, list[tuple[datetime, str]]] = defaultdict(list)
    reporting: dict[int, int] = defaultdict(int)
    rows = NodeLive.objects.filter(last_sample_at__gt=now - FORGOTTEN_AFTER, node__cluster__removed_at=None)
    for cluster_id, name, at in rows.values_list("node__cluster_id", "node__name", "last_sample_at"):
        if at is not None and at < silent_since:
            silent[cluster_id].append((at, name))
        else:
            reporting[cluster_id] += 1
    threads = {one.key: one for one in Thread.objects.filter(kind="silence")}
    waiting = set(Alert.objects.filter(kind="silence", routed_at=None).values_list("key", flat=True))
    told = 0
    for cluster in Cluster.objects.all():
        key = f"silence-{cluster.pk}"
        if key not in waiting:  # else the router has not seen the last one yet
            told += _tell(key, cluster, sorted(silent[cluster.pk]), reporting[cluster.pk], threads.get(key), now)
    return told


def _tell(
    key: str, cluster: Cluster, silent: list[tuple[datetime, str]], reporting: int, thread: Thread | None, now: datetime
) -> bool:
    """Write the alert of one cluster, if it needs one."""
    is_open = thread is not None and thread.is_open
    named = f"{cluster.name} (simulated)" if cluster.is_simulated else cluster.name
    more: dict[str, Any] = {
        "cluster": cluster.name,
        "path": "settings/clusters/",
        "severity": "warning" if reporting else "critical",
    }
    if not silent:
        if is_open:
            notify("silence", key, "resolved", at=now, title=f"Nodes of {named} report again", **more)
        return is_open
    before = thread.facts.get("silent", 0) if thread and is_open else 0
    if len(silent) <= before:
        return False
    names = ", ".join(name for _, name in silent[:NAMES_TOLD])
    names += f" and {len(silent) - NAMES_TOLD} more" if len(silent) > NAMES_TOLD else ""
    whole = len(silent) + reporting
    are = "node sends" if len(silent) == 1 else "nodes send"
    notify(
        "silence",
        key,
        "worsened" if is_open else "opened",
        at=silent[0][0],
        title=f"{len(silent)} of {whole} {are} nothing in {named}",
        text=(
            f"No sample for {settings.GOODPUT_ALERT_SILENCE_MINUTES} minutes or more from {names}. What happens there"
            " is unknown, neither healthy nor down. Next: check that the nodes are up and reach this server."
        ),
        facts={"silent": len(silent), "nodes": [name for _, name in silent[:500]]},
        **more,
    )
    return True
