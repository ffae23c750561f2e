"""What is said of several nodes together: fewer ports than the neighbours, an NVLink domain, what asks for a look."""

from __future__ import annotations

import pytest

from fleet.domain.rules import load_rules
from fleet.domain.scenario import run
from fleet.domain.second_pass import NodePorts, Review, domain_of, domain_runs, reviews, shortfalls
from fleet.domain.slots import first_slot
from fleet.domain.strips import HourRow, StripRun
from fleet.domain.verdicts import HEALTHY, State, Verdict, unknown

DOWN = Verdict(State.OBSERVED, 0, 0, 0, ("GPU_MISSING",))


def nodes(*ports: int, gpus: int = 8, declared: bool = False) -> list[NodePorts]:
    return [NodePorts(f"n{i}", gpus, count, declared) for i, count in enumerate(ports)]


def test_a_node_with_fewer_ports_than_the_majority_of_its_kind_is_found() -> None:
    (found,) = shortfalls(nodes(8, 8, 8, 6))
    assert (found.node, found.expected, found.missing) == ("n3", 8, 2)


@pytest.mark.parametrize(
    "group",
    [nodes(8, 6), nodes(8, 8, 6, 6), nodes(8, 7, 6), nodes(8, 8, 9), nodes(8, 8, 8, 6, declared=True)],
    ids=["two nodes", "a tie", "no majority", "more than the others", "declared"],
)
def test_ties_small_groups_and_declared_numbers_say_nothing(group: list[NodePorts]) -> None:
    assert shortfalls(group) == []


def test_nodes_of_another_kind_are_no_peers() -> None:
    assert shortfalls([*nodes(8, 8, 8), *nodes(2, gpus=4)]) == []


def test_a_shortfall_lowers_the_upper_reading_alone() -> None:
    (found,) = shortfalls(nodes(8, 8, 8, 6))
    changed = found.change(HEALTHY)
    assert changed == Verdict(State.PENDING, 100, 100, 75, (), ("IB_PORT_PEERS",))
    assert found.change(DOWN) == DOWN._replace(possible=("IB_PORT_PEERS",))
    assert found.change(unknown("NO_DATA")) == unknown("NO_DATA")
    assert load_rules().reasons["IB_PORT_PEERS"].review


def test_one_reboot_in_a_domain_costs_its_four_gpus_and_not_the_others() -> None:
    members = {f"n{n}g{g}": [StripRun(0, 20, HEALTHY)] for n in range(18) for g in range(4)}
    for g in range(4):
        members[f"n3g{g}"] = [StripRun(0, 5, HEALTHY), StripRun(5, 15, DOWN), StripRun(15, 20, HEALTHY)]
    runs = domain_runs(members)
    assert [(r.first_slot, r.end_slot, r.verdict.nominal) for r in runs] == [(0, 5, 100), (5, 15, 94), (15, 20, 100)]
    assert runs[1].verdict.certain == ("GPU_MISSING",)


def test_unknown_members_of_a_domain_are_neither_up_nor_down() -> None:
    members = {"a": [StripRun(0, 10, HEALTHY)], "b": [StripRun(0, 4, HEALTHY), StripRun(4, 10, unknown("NO_DATA"))]}
    runs = domain_runs(members)
    assert runs[0] == StripRun(0, 4, HEALTHY)
    assert runs[1].verdict[:4] == (State.EDGE, 100, 100, 50)
    silent = domain_runs({"a": [StripRun(0, 4, unknown("NO_DATA"))]})
    assert silent == [StripRun(0, 4, unknown("NO_DATA"))]
    assert domain_runs({}) == []


def test_a_domain_is_named_by_its_fabric() -> None:
    assert domain_of("5f0c", "2") == "d:5f0c/2"
    assert domain_of(None, "2") == domain_of("", None) == ""


def test_what_asks_for_a_look_is_read_off_the_row() -> None:
    busy = {"0": {"gpu_utilization": 90, "power": 600_000}}
    bus = "0000:10:00.0"
    scenario = {
        "id": "reviews",
        "inputs": {
            "gpus": 1,
            "deliveries": [
                {
                    "samples": [
                        {"slots": [0, 9]},
                        {
                            "slots": [10, 12],
                            "gpu": busy,
                            "events": [
                                {"kind": "xid", "code": 9999, "pci_bus_id": bus, "at": [5, 0]},
                                {"kind": "xid", "code": 95, "pci_bus_id": bus, "at": [10, 1000]},
                            ],
                        },
                        {"slots": [13, 20], "gpu": busy},
                    ]
                }
            ],
        },
    }
    node = run(scenario).node
    (hour,) = node.rows
    zero = first_slot(hour)
    found = reviews(HourRow.from_bytes(node.rows[hour]), load_rules())
    assert found[0].code == "XID_UNKNOWN"
    assert Review("g0", "XID_95", zero + 11, zero + 20) in found  # slot 10 is touched by the event: an edge
