"""Who may see which contract: a person or key restricted to clusters sees those that lie wholly within them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from claims.domain.facts import ancestors
from claims.models import Contract
from fleet.models import Node


def within(contracts: Iterable[Contract], clusters: Sequence[str]) -> list[Contract]:
    """Those of the contracts that lie wholly within the clusters; all of them where there is no restriction.

    A contract of one cluster lies in that one. Else every node that any version of it names must be known in these
    clusters and nowhere else: a contract of nodes that nobody has heard of is not shown to restricted people. A node
    that was merged into another one lies where that one does.
    """
    found = list(contracts)
    if not clusters:
        return found
    names = {one.pk: node_names(one) for one in found if not one.cluster}
    lies: dict[str, set[str]] = {}
    wanted = {name for mine in names.values() for name in mine}
    for name, cluster, joined in Node.objects.filter(name__in=wanted).values_list(
        "name", "cluster__name", "merged_into__cluster__name"
    ):
        lies.setdefault(name, set()).add(joined or cluster)
    allowed = set(clusters)

    def is_within(one: Contract) -> bool:
        if one.cluster:
            return one.cluster in allowed
        mine = [lies.get(name) for name in names[one.pk]]
        return bool(mine) and all(places is not None and places <= allowed for places in mine)

    return [one for one in found if is_within(one)]


def may_see(contract: Contract, clusters: Sequence[str]) -> bool:
    """Whether a contract lies wholly within the clusters."""
    return bool(within([contract], clusters))


def node_names(contract: Contract) -> set[str]:
    """The nodes that any version of the contract names; a group's or domain's own name is none where it has members."""
    out: set[str] = set()
    for version in contract.versions.all():
        for unit in version.load().units:
            out.update(ancestors(name)[-1] for name in unit.members or (unit.name,))
    return out
