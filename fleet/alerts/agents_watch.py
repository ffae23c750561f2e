"""Nodes that more than one agent reports: one thread per cluster. Runs every minute, reads one small table.

Two agents that agree change no verdict; still one of them is there by mistake, or two machines have one name.
"""

from __future__ import annotations

from collections import defaultdict
from datetime import datetime, timedelta
from typing import Any

from fleet.alerts.models import Alert, Thread
from fleet.alerts.outbox import notify
from fleet.models import Cluster
from fleet.sql import execute

HEARD = timedelta(minutes=3)  # an agent uploads once a minute
LEAST_TOGETHER = timedelta(seconds=60)  # one that takes another's place is heard after it, not beside it
NAMES_TOLD = 20
NAMES_KEPT = 500  # of a thread, for programs: beyond it only the number says whether there are more
_TOGETHER = """
select n.cluster_id, n.name, min(a.last_at) - max(a.first_at)
  from (select agent_id, node_id, min(first_at) as first_at, max(last_at) as last_at
          from agents_agentrecent group by agent_id, node_id) a
  join fleet_node n on n.id = a.node_id
 where a.last_at > %b
 group by n.cluster_id, n.id, n.name having count(*) > 1
"""


def watch_agents(now: datetime) -> int:
    """Tell of the current org's clusters in which a node is reported by several agents, or no more; alerts written."""
    doubled: dict[int, dict[str, timedelta]] = defaultdict(dict)
    for cluster_id, name, together in execute(_TOGETHER, [now - HEARD]):
        doubled[cluster_id][name] = together if together is not None else timedelta(0)
    threads = {one.key: one for one in Thread.objects.filter(kind="agents")}
    if not doubled and not any(one.is_open for one in threads.values()):
        return 0
    waiting = set(Alert.objects.filter(kind="agents", routed_at=None).values_list("key", flat=True))
    told = 0
    for cluster in Cluster.objects.all():
        key = f"agents-{cluster.pk}"
        if key not in waiting:  # else the router has not seen the last one yet
            told += _tell(key, cluster, doubled[cluster.pk], threads.get(key), now)
    return told


def _tell(key: str, cluster: Cluster, doubled: dict[str, timedelta], thread: Thread | None, now: datetime) -> bool:
    """Write the alert of one cluster, if it needs one."""
    is_open = thread is not None and thread.is_open
    named = f"{cluster.name} (simulated)" if cluster.is_simulated else cluster.name
    more: dict[str, Any] = {"cluster": cluster.name, "path": "settings/agents/", "severity": "warning"}
    if not doubled:
        if is_open:
            notify("agents", key, "resolved", at=now, title=f"One agent a node again in {named}", **more)
        return is_open
    told = thread.facts if thread and is_open else {}
    known = set(told.get("nodes", ()))
    before = told.get("doubled", len(known))
    # what was told stays told while both are heard; what is new must have been heard together for a while
    nodes = sorted(name for name, together in doubled.items() if name in known or together >= LEAST_TOGETHER)
    is_more = len(nodes) > before if before > len(known) else not known.issuperset(nodes)
    if not is_more:
        return False
    names = ", ".join(nodes[:NAMES_TOLD]) + (f" and {len(nodes) - NAMES_TOLD} more" if len(nodes) > NAMES_TOLD else "")
    are = "node is" if len(nodes) == 1 else "nodes are"
    notify(
        "agents",
        key,
        "worsened" if is_open else "opened",
        at=now,
        title=f"{len(nodes)} {are} reported by more than one agent in {named}",
        text=(
            f"Samples of several agents come under {names}. Where they agree the worse one counts; where they"
            " contradict each other the time is unknown. Next: stop the agent that should not be there, or give each"
            " machine a name of its own."
        ),
        facts={"doubled": len(nodes), "nodes": nodes[:NAMES_KEPT]},
        **more,
    )
    return True
