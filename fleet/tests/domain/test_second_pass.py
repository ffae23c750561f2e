"""What is said of several nodes together: fewer ports than the neighbours, an NVLink domain, what asks for a look."""

from __future__ import annotations

import pytest

from fleet.domain.rules import load_rules
from fleet.domain.scenario import run
from fleet.domain.second_pass import NodePorts, Review, domain_of, reviews, shortfalls
from fleet.domain.slots import first_slot
from fleet.domain.strips import HourRow


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


def test_a_shortfall_says_what_each_gpu_would_weigh_at_worst() -> None:
    (found,) = shortfalls(nodes(8, 8, 8, 6))
    assert found.upper == 75
    assert load_rules().reasons["IB_PORT_PEERS"].review


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
    assert found[0].code == "XID_9999"
    assert Review("g0", "XID_95", zero + 11, zero + 20) in found  # slot 10 is touched by the event: an edge
