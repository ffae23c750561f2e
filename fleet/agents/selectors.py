"""Reads of installations: the list of Settings and of the API, what of them is flagged, the keys for a pack."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from django.db.models import Q, prefetch_related_objects
from django.utils import timezone

from agent.wire import fingerprint
from fleet.agents.counts import NOW
from fleet.agents.models import AgentKey, AgentSeen
from fleet.sql import execute

RECENT = timedelta(days=7)
ON_PAGE = 100
FLAGS = {
    "copied": "One identity from two machines: a copied disk. Remove the agent's state directory on one of them.",
    "two_agents": "Another installation sends for this node at the same time. Stop one of the two.",
    "second_key": "Another key wants to speak for this installation. Accept it only if you know why.",
    "same_key": "The same signing key is enrolled for another node: a copied disk.",
    "bad_signature": "Some batches were not signed by the enrolled key.",
}
# Two stretches of samples overlap by more than a minute: one after the other is a new state directory, not a clone.
_OVERLAPS = """
with seen as {seen}
select a.agent_id, b.agent_id from seen a join seen b
    on {join} and least(a.last_at, b.last_at) - greatest(a.first_at, b.first_at) > interval '1 minute'
 where a.received_at > %b and b.received_at > %b
"""
_CONFLICTS = """
select distinct agent_id from fleet_inbox
 where is_seq_conflict and agent_id is not null and received_at > %b and sample_day >= %b::date
"""


@dataclass(frozen=True)
class Agent:
    """One installation with one of its keys (`key` None: it never enrolled one)."""

    agent_id: str
    key: AgentKey | None
    seen: tuple[AgentSeen, ...]
    flags: tuple[str, ...] = field(default=())

    @property
    def state(self) -> str:
        """`active`, `waiting`, `revoked`, or `not enrolled`."""
        return self.key.state if self.key else "not enrolled"

    @property
    def fingerprint(self) -> str:
        """The key as people compare it; empty without one."""
        return fingerprint(bytes(self.key.public_key)) if self.key else ""

    @property
    def node(self) -> str:
        """The node's name: where it was seen last, else as enrolled."""
        return self._last.node.name if self._last else self.key.node if self.key else ""

    @property
    def node_id(self) -> int | None:
        """The server's node; None while no batch of it was folded."""
        return self._last.node_id if self._last else None

    @property
    def cluster(self) -> str:
        """The cluster's name."""
        return self._last.node.cluster.name if self._last else self.key.cluster if self.key else ""

    @property
    def received_at(self) -> datetime | None:
        """When its newest batch came."""
        return self._last.received_at if self._last else None

    @property
    def agent_version(self) -> str:
        """Its build."""
        return (self._last.agent_version if self._last else "") or (self.key.agent_version if self.key else "")

    @property
    def counts(self) -> dict[str, int]:
        """Batches by what their signature says."""
        names = ("valid", "unsigned", "unknown_key", "bad", "revoked")
        return {name: sum(getattr(one, name) for one in self.seen) for name in names}

    @property
    def warnings(self) -> list[str]:
        """Its flags in words."""
        return [FLAGS[flag] for flag in self.flags]

    @property
    def _last(self) -> AgentSeen | None:
        return max(self.seen, key=lambda one: one.received_at, default=None)


def list_agents(clusters: Collection[str] = (), text: str = "", now: datetime | None = None) -> list[Agent]:
    """All installations of the current org, flagged ones first, then by cluster and node. `clusters`: only these."""
    seen: dict[str, list[AgentSeen]] = defaultdict(list)
    places_now = list(AgentSeen.objects.raw(f"select * from {NOW} seen"))  # noqa: S608 - made of names of ours
    prefetch_related_objects(places_now, "node__cluster")
    for one in places_now:
        seen[one.agent_id].append(one)
    keys: dict[str, list[AgentKey]] = defaultdict(list)
    for key in AgentKey.objects.order_by("enrolled_at"):
        keys[key.agent_id].append(key)
    flagged = find_flags(keys, now or timezone.now())
    found = []
    for agent_id in {*seen, *keys}:
        places = tuple(seen.get(agent_id, ()))
        flags = set(flagged.get(agent_id, ()))
        if any(place.bad for place in places):
            flags.add("bad_signature")
        own_keys: list[AgentKey | None] = [*keys.get(agent_id, ())] or [None]
        for own in own_keys:
            found.append(Agent(agent_id, own, places, tuple(name for name in FLAGS if name in flags)))
    wanted = [one for one in found if (not clusters or one.cluster in clusters) and _matches(one, text)]
    return sorted(wanted, key=lambda one: (not one.flags, one.cluster, one.node, one.agent_id, one.fingerprint))


def _matches(agent: Agent, text: str) -> bool:
    words = (agent.node, agent.cluster, agent.agent_id, agent.fingerprint.replace(" ", ""), agent.fingerprint)
    return not text or any(text.lower() in word.lower() for word in words)


def find_flags(keys: dict[str, list[AgentKey]], now: datetime) -> dict[str, set[str]]:
    """What is wrong with whom, by agent_id."""
    since = now - RECENT
    flags: dict[str, set[str]] = defaultdict(set)
    for join, name in (
        ("a.agent_id = b.agent_id and a.node_id <> b.node_id", "copied"),
        ("a.node_id = b.node_id and a.agent_id <> b.agent_id", "two_agents"),
    ):
        for one, other in execute(_OVERLAPS.format(join=join, seen=NOW), [since, since]):
            flags[one].add(name)
            flags[other].add(name)
    for (agent_id,) in execute(_CONFLICTS, [since, (since - timedelta(days=14)).date()]):
        flags[agent_id].add("copied")
    places: dict[bytes, set[tuple[str, str | None]]] = defaultdict(set)
    for agent_id, own in keys.items():
        if any(key.state == AgentKey.State.WAITING for key in own):
            flags[agent_id].add("second_key")
        for key in own:
            if key.state == AgentKey.State.ACTIVE:
                places[bytes(key.public_key)].add((key.cluster, key.hw_id or key.node))
    for agent_id, own in keys.items():
        if any(key.state == AgentKey.State.ACTIVE and len(places[bytes(key.public_key)]) > 1 for key in own):
            flags[agent_id].add("same_key")
    return flags


def get_key(pk: int, clusters: Collection[str] = ()) -> AgentKey | None:
    """One enrolled key of the current org."""
    return AgentKey.objects.filter(Q(cluster__in=clusters) if clusters else Q(), pk=pk).first()


def keys_of(agent_ids: Iterable[str]) -> list[dict[str, Any]]:
    """Enrolled keys of these installations, for evidence: in hex, when enrolled, until when they are good."""
    rows = AgentKey.objects.filter(agent_id__in=set(agent_ids)).exclude(state=AgentKey.State.WAITING)
    return [
        {
            "agent_id": row.agent_id,
            "public_key": bytes(row.public_key).hex(),
            "node": row.node,
            "enrolled_at": row.enrolled_at,
            "revoked_at": row.changed_at if row.state == AgentKey.State.REVOKED else None,
        }
        for row in rows.order_by("agent_id", "enrolled_at")
    ]


def keys_until(until: datetime) -> list[tuple[str, bytes, datetime]]:
    """(agent_id, public key, when it came) of every key that was enrolled up to then and does not wait, for the log."""
    rows = AgentKey.objects.filter(enrolled_at__lte=until).exclude(state=AgentKey.State.WAITING)
    found = rows.order_by("enrolled_at", "pk").values_list("agent_id", "public_key", "enrolled_at")
    return [(agent_id, bytes(public_key), at) for agent_id, public_key, at in found]


def revocations_until(until: datetime) -> list[tuple[str, bytes, datetime]]:
    """(agent_id, public key, when it was revoked) of every key that was revoked up to then and is so still."""
    rows = AgentKey.objects.filter(changed_at__lte=until, state=AgentKey.State.REVOKED)
    found = rows.order_by("changed_at", "pk").values_list("agent_id", "public_key", "changed_at")
    return [(agent_id, bytes(public_key), at) for agent_id, public_key, at in found if at is not None]
