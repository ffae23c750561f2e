"""NVLink domains: the GPUs that NVML's fabric information names as one, over all their nodes.

A domain's figures are those of its GPUs added up, so that one node of 18 that reboots costs 4 of 72 GPUs and never the
other 68. Which domain a node is in is what its newest batch said.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import pairwise

from fleet.hour_sums import Sums, total
from fleet.reading import AnyPeriod, NodeRow, Period
from fleet.selectors import drawn_from_slot, natural, read_nodes, visible_clusters, worst_first
from fleet.selectors_hours import Stretch, load_bodies, merge, node_stretches
from fleet.selectors_live import WORDS
from fleet.strip_drawing import Strip, draw

MOST_STRIPS = 4  # domains whose strip a page draws: one of 18 nodes is 432 node hours


@dataclass(frozen=True)
class Domain:
    """A domain: its nodes, worst first, how its GPUs are now and what they were over the period."""

    key: str
    cluster: str
    nodes: tuple[NodeRow, ...]
    counts: dict[str, int]
    sums: Sums
    strip: Strip | None = None

    @property
    def gpus(self) -> int:
        """GPUs of all its nodes."""
        return sum(self.counts.values())

    @property
    def word(self) -> str:
        """The worst state of any GPU."""
        return next((word for word in WORDS if self.counts[word]), "unknown")

    @property
    def name(self) -> str:
        """Short enough to read: the head of the cluster's hash and the clique."""
        cluster, _, clique = self.key.removeprefix("d:").partition("/")
        return f"{cluster[:8]}/{clique}" if len(cluster) > 8 else f"{cluster}/{clique}"

    @property
    def away(self) -> tuple[NodeRow, ...]:
        """Nodes with a GPU that is not available."""
        return tuple(row for row in self.nodes if row.now.word != "available")


def list_domains(
    now: datetime,
    period: AnyPeriod = Period.DAY,
    within: str | Collection[str] | None = None,
    *,
    strips: bool = False,
    only: str = "",
) -> list[Domain]:
    """The domains of the clusters that the asker may see, worst first; `only` one of them. `strips`: the first few get
    theirs drawn, over 24 hours by the slot.
    """
    window = period.window(now)
    rows = [row for row in read_nodes(now, window, visible_clusters(within)) if row.now.domain]
    members: dict[tuple[str, str], list[NodeRow]] = defaultdict(list)
    for row in rows:
        if only in ("", row.now.domain):
            members[row.cluster, row.now.domain].append(row)
    found = [
        Domain(
            key,
            cluster,
            tuple(sorted(nodes, key=worst_first)),
            {word: sum(row.now.count(word) for row in nodes) for word in WORDS},
            total(row.sums for row in nodes),
        )
        for (cluster, key), nodes in members.items()
    ]
    found.sort(key=lambda one: (WORDS.index(one.word), -one.counts[one.word], natural(one.cluster), one.key))
    if not strips or period.hours > Period.DAY.hours:
        return found
    shown = found[:MOST_STRIPS]
    bodies = load_bodies(window, [row.id for one in shown for row in one.nodes]) if shown else {}
    drawn = []
    for one in shown:
        stretches = together([node_stretches(bodies.get(row.id, {}), row.bounds) for row in one.nodes])
        begins = min(row.bounds.first_slot for row in one.nodes)
        is_over = any(row.bounds.is_silent for row in one.nodes)
        ends = None if is_over else max(row.bounds.end_slot for row in one.nodes)
        drawn_from = drawn_from_slot(list(one.nodes), window)
        drawn.append(replace(one, strip=draw(stretches, drawn_from, window.now_slot, begins, ends)))
    return drawn + found[MOST_STRIPS:]


def together(nodes: Sequence[Iterable[Stretch]]) -> list[Stretch]:
    """Several nodes' stretches as one: the worst word of any GPU, how many GPUs are in it, how many are unknown."""
    lists = [list(one) for one in nodes]
    cuts = sorted({edge for one in lists for stretch in one for edge in (stretch.first, stretch.end)})
    at = [0] * len(lists)
    out: list[Stretch] = []
    for first, end in pairwise(cuts):
        here = []
        for index, one in enumerate(lists):
            while at[index] < len(one) and one[at[index]].end <= first:
                at[index] += 1
            if at[index] < len(one) and one[at[index]].first <= first:
                here.append(one[at[index]])
        if here:
            word = min((one.word for one in here), key=WORDS.index)
            affected = sum(one.affected for one in here if one.word == word)
            out.append(Stretch(first, end, word, affected, sum(s.total for s in here), sum(s.gone for s in here)))
    return merge(out)
