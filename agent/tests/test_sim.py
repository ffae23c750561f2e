"""The simulated source: a pure function of seed, node, scenario and time."""

from __future__ import annotations

import pytest

from agent.collect.sim_world import EPISODE_SLOTS, FIRST_BOOT_MS, SCENARIOS, World
from agent.schedule import SLOT_MS
from agent.tests.rig import START_MS

FIRST = START_MS // SLOT_MS


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_the_same_seed_gives_the_same_facts_in_any_order(scenario):
    one, two = World(7, "n", scenario, 2), World(7, "n", scenario, 2)
    slots = list(range(FIRST, FIRST + 300, 7))
    forward = [(one.gpu(s, 3), one.port(s, 3), one.events(s), one.boot_at(s * SLOT_MS)) for s in slots]
    backward = [(two.gpu(s, 3), two.port(s, 3), two.events(s), two.boot_at(s * SLOT_MS)) for s in reversed(slots)]
    assert forward == backward[::-1]
    assert World(8, "n", scenario, 2).gpu(FIRST, 3) != one.gpu(FIRST, 3)


def test_a_demo_of_three_nodes_shows_a_fault_most_of_the_time():
    worlds = [World(1, f"sim-0{number + 1}", "demo", number) for number in range(3)]

    def hurt(world, slot):
        fault = world.fault(slot)
        return fault is not None and fault.start <= slot < fault.end

    shown = [any(hurt(world, slot) for world in worlds) for slot in range(FIRST, FIRST + 20 * EPISODE_SLOTS)]
    assert sum(shown) / len(shown) > 0.7
    assert not any(hurt(worlds[0], slot) for slot in range(FIRST, FIRST + EPISODE_SLOTS))  # one node is always well


def test_a_lost_gpu_comes_back_with_a_new_boot():
    world = World(1, "n", "xid79")
    fault = next(f for f in (world.fault(FIRST + n * EPISODE_SLOTS) for n in range(3)) if f)
    before, after = (fault.start - 1) * SLOT_MS, fault.end * SLOT_MS
    assert [e["code"] for e in world.events(fault.start)] == [79]
    assert world.missing(fault.start) == fault.index
    assert world.missing(fault.end) is None
    assert world.boot_at(before) < world.boot_at(after) == after
    assert world.boot_id(world.boot_at(before)) != world.boot_id(world.boot_at(after))


def test_a_month_has_quiet_days_and_faults_of_every_kind():
    world = World(1, "n", "month_mixed")
    kinds = [getattr(world.fault(FIRST + day * 5760), "kind", "healthy") for day in range(365)]
    assert kinds.count("healthy") > 180
    assert set(kinds) == {"healthy", "thermal", "ib_flap", "xid79", "ecc_storm", "driver_reload"}


def test_a_gpu_that_waits_for_its_reset_does_no_work_and_its_neighbours_go_on():
    world = World(1, "n", "ecc_storm")
    fault = next(f for f in (world.fault(FIRST + n * EPISODE_SLOTS) for n in range(3)) if f)
    slots = [slot for slot in range(fault.start, fault.end) if world.busy(slot)]
    assert slots
    for slot in slots:
        hurt = world.gpu(slot, fault.index)
        assert (hurt["gpu_utilization"], hurt["memory_utilization"], hurt["recovery_action"]) == (0, 0, 1)
        assert hurt["power"] < hurt["power_limit"] // 2
        assert hurt["throttle_reasons"] == 1
        others = [world.gpu(slot, index) for index in range(8) if index != fault.index]
        assert all(other["gpu_utilization"] > 90 for other in others)
    again = next(slot for slot in range(fault.end, fault.end + EPISODE_SLOTS) if world.busy(slot))
    assert world.gpu(again, fault.index)["gpu_utilization"] > 90


def test_the_neighbours_of_a_lost_gpu_go_on():
    world = World(1, "n", "xid79")
    fault = next(f for f in (world.fault(FIRST + n * EPISODE_SLOTS) for n in range(3)) if f)
    slot = next(slot for slot in range(fault.start, fault.end) if world.busy(slot))
    assert all(world.gpu(slot, index)["gpu_utilization"] > 90 for index in range(8) if index != fault.index)


def test_draws_stay_in_their_ranges():
    world = World(3, "n", "thermal")
    for slot in range(FIRST, FIRST + 400):
        gpu, port = world.gpu(slot, slot % 8), world.port(slot, slot % 8)
        assert 0 <= gpu["gpu_utilization"] <= 100
        assert gpu["sm_clock"] <= gpu["sm_clock_max"]
        assert gpu["power"] < gpu["power_limit"]
        assert sum(gpu["throttle_time"].values()) < 15_000
        assert port["counters"]["port_rcv_data"] < 6 << 30


def test_a_boot_never_gives_way_to_an_older_one():
    day = 86_400_000
    for seed in range(6):
        world = World(seed, "node", "month_mixed")
        boots = [world.boot_at(FIRST_BOOT_MS + number * day) for number in range(1, 400, 3)]
        assert boots == sorted(boots)
        assert len(set(boots)) > 1
