"""What can only be said of several nodes together, from what was said of each: a second pass over verdicts.

Nothing of it is stored in a node's row: a row is a function of the node's own facts. Pure functions: in go verdicts or
counts of several nodes, out comes what changes.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, replace

from fleet.domain.installations import CODE as CONTRADICTION
from fleet.domain.rules import Rules
from fleet.domain.strips import HourRow
from fleet.domain.verdicts import State, Verdict

LEAST_NODES = 3  # fewer have no majority
PEERS = "IB_PORT_PEERS"


@dataclass(frozen=True, slots=True)
class NodePorts:
    """A node of a cluster: its GPUs and the ports that it is expected to have (declared, or learned)."""

    node: str
    gpus: int
    ports: int
    is_declared: bool = False


@dataclass(frozen=True, slots=True)
class Shortfall:
    """A node with fewer ports than the majority of its kind."""

    node: str
    gpus: int
    expected: int
    missing: int

    @property
    def upper(self) -> int:
        """What each of its GPUs would weigh at worst, as with any unmapped ports that are down (fold.md 18)."""
        return 100 - 100 * self.missing // max(self.expected, self.gpus)


def shortfalls(nodes: Iterable[NodePorts]) -> list[Shortfall]:
    """The nodes of one cluster that have fewer ports than more than half of the nodes with as many GPUs.

    Ties and groups of fewer than three say nothing; a declared number is never overruled (fold.md 16).
    """
    groups: dict[int, list[NodePorts]] = defaultdict(list)
    for node in nodes:
        groups[node.gpus].append(node)
    found = []
    for gpus, group in groups.items():
        expected, count = Counter(node.ports for node in group).most_common(1)[0]
        if len(group) < LEAST_NODES or 2 * count <= len(group):
            continue
        found += [
            Shortfall(node.node, gpus, expected, expected - node.ports)
            for node in group
            if node.ports < expected and not node.is_declared
        ]
    return sorted(found, key=lambda one: one.node)


def domain_of(cluster: str | None, clique: str | None) -> str:
    """The subject of an NVLink domain by NVML's fabric information; '' where a GPU is in none.

    >>> domain_of("5f0c", "1")
    'd:5f0c/1'
    """
    return f"d:{cluster}/{clique or 0}" if cluster else ""


@dataclass(frozen=True, slots=True)
class Review:
    """Something in a node's hour that asks for a person's look: a code whose rule says so, or a GPU that works though a
    rule says that it is down (`contested`). Absolute slots.
    """

    subject: str
    code: str
    first_slot: int
    end_slot: int


def reviews(row: HourRow, rules: Rules) -> list[Review]:
    """What of this hour asks for a look, in order of time."""
    asked = {verdict: codes for verdict in row.distinct() if (codes := _asking(verdict, rules))}
    found: list[Review] = []
    for subject in row.subjects() if asked else ():
        last: dict[str, int] = {}
        for first, end, verdict in row.runs(subject):
            for code in asked.get(verdict, ()):
                if code == CONTRADICTION and subject == "n":
                    continue  # asked where it lies: of the GPU or port
                at = last.get(code, -1)
                if at >= 0 and found[at].end_slot == first:
                    found[at] = replace(found[at], end_slot=end)
                else:
                    last[code] = len(found)
                    found.append(Review(subject, code, first, end))
    return sorted(found, key=lambda one: (one.first_slot, one.subject, one.code))


def _asking(verdict: Verdict, rules: Rules) -> list[str]:
    """The reasons of a verdict that ask for a look."""
    known = {code: reason for code in (*verdict.certain, *verdict.possible) if (reason := rules.of(code)) is not None}
    codes = {code for code, reason in known.items() if reason.review}
    if verdict.state is State.CONTESTED:
        codes.update(code for code in verdict.possible if code in known and known[code].lowers)
    if CONTRADICTION in verdict.certain:
        codes.add(CONTRADICTION)
    return sorted(codes)
