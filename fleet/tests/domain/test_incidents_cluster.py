"""Which incidents of several nodes are one fault of the cluster."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from fleet.domain.incidents import TOGETHER_SLOTS
from fleet.domain.incidents_cluster import SPREAD_SLOTS, NodeFault, cluster_faults, component


def faults(*begin: tuple[int, int]) -> list[NodeFault]:
    """Faults of (node, first slot), their keys counted from 1."""
    return [NodeFault(key, node, slot) for key, (node, slot) in enumerate(begin, 1)]


def grouped(found: list[NodeFault]) -> list[tuple[int, list[int]]]:
    """(head, members) of each cluster-wide fault, by key."""
    return [(one.head.key, [member.key for member in one.members]) for one in cluster_faults(found)]


def test_three_nodes_within_two_minutes_are_one() -> None:
    assert grouped(faults((1, 100), (2, 104), (3, 108))) == [(1, [1, 2, 3])]


def test_two_nodes_are_two_incidents_and_so_are_three_of_one_node() -> None:
    assert grouped(faults((1, 100), (2, 100))) == []
    assert grouped(faults((1, 100), (1, 101), (1, 102))) == []
    assert grouped(faults((1, 100), (1, 101), (2, 102))) == []


def test_the_third_a_slot_too_late_is_not_together() -> None:
    assert grouped(faults((1, 100), (2, 104), (3, 109))) == []


def test_the_first_may_stand_alone_before_three_that_are_together() -> None:
    assert grouped(faults((1, 100), (2, 105), (3, 112), (4, 113))) == [(2, [2, 3, 4])]


def test_it_spreads_node_by_node_for_ten_minutes() -> None:
    rolling = faults(*((node, 100 + 4 * node) for node in range(1, 20)))
    (first, *_) = cluster_faults(rolling)
    assert first.members[-1].first_slot - first.members[0].first_slot <= SPREAD_SLOTS
    assert first.nodes == 11


def test_a_drizzle_of_faults_is_not_one_for_ever() -> None:
    drizzle = faults(*((node, 100 + 4 * node) for node in range(200)))
    assert all(
        one.members[-1].first_slot - one.members[0].first_slot <= SPREAD_SLOTS for one in cluster_faults(drizzle)
    )


def test_a_head_stays_head_when_an_earlier_node_is_heard_late() -> None:
    known = [NodeFault(7, 1, 104, was_head=True), NodeFault(8, 2, 105), NodeFault(9, 3, 106)]
    (one,) = cluster_faults([*known, NodeFault(10, 4, 101)])
    assert (one.head.key, one.nodes) == (7, 4)
    two_heads = [NodeFault(12, 5, 107, was_head=True), *known]
    assert cluster_faults(two_heads)[0].head.key == 7


@given(
    st.lists(st.tuples(st.integers(1, 6), st.integers(0, 80)), max_size=30),
    st.integers(0, 2**32),
)
def test_order_of_arrival_changes_nothing(begin: list[tuple[int, int]], seed: int) -> None:
    found = faults(*begin)
    expected = grouped(found)
    random.Random(seed).shuffle(found)
    assert grouped(found) == expected
    members = [key for _, keys in expected for key in keys]
    assert len(members) == len(set(members))


@given(st.lists(st.tuples(st.integers(1, 6), st.integers(0, 200)), min_size=1, max_size=30), st.data())
def test_looking_at_one_stretch_finds_what_looking_at_all_finds(
    begin: list[tuple[int, int]], data: st.DataObject
) -> None:
    found = faults(*begin)
    touched = data.draw(st.sampled_from(found)).key
    inside = component(found, [touched])
    keys = {one.key for one in inside}
    assert [one for one in grouped(found) if set(one[1]) & keys] == grouped(inside)
    gaps = {abs(one.first_slot - other.first_slot) for one in inside for other in found if other.key not in keys}
    assert all(gap > TOGETHER_SLOTS for gap in gaps)
