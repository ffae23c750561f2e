"""Cases of the field that the server decides (ids of field-cases.jsonl): what a machine shows, to the verdict."""

from __future__ import annotations

import json
import shutil
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from django_tenants.utils import tenant_context

from agent.clock import UNSYNCHRONISED
from agent.tests.conftest import stub_driver, stub_libraries
from fleet.agents.selectors import list_agents
from fleet.domain.slots import SLOT_MS, hour_of
from fleet.domain.verdicts import State
from fleet.models import Inbox, Incident, NodeHour
from fleet.tests.machine import LAG_MS, Machine

__all__ = ["stub_driver", "stub_libraries"]  # fixtures
pytestmark = pytest.mark.django_db
FILE = Path(__file__).parents[2] / "agent/tests/data/field-cases.jsonl"
CASES = {case["id"]: case for case in map(json.loads, FILE.read_text().splitlines())}
DEAD = b"\xff\xff\xff\xff"
LOST, NOT_SUPPORTED = 15, 3
BUS = "0000:44:00"


def ms(text: str) -> int:
    """Milliseconds of an RFC 3339 instant."""
    return int(datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp() * 1000)


@pytest.fixture
def inside(alpha: Any) -> Any:
    """The test runs inside alpha's schema."""
    with tenant_context(alpha):
        yield alpha


def test_a_constant_skew_of_27_hours_is_taken_out(inside: Any, tmp_path: Any, stub_driver: Any) -> None:
    """D009: the outage stands at its receipt minus the lag, not in the month that the node's clock shows."""
    words = CASES["D009"]["input"]
    server, node = ms("2026-11-30T02:00:00Z"), ms("2026-11-28T23:00:00Z")
    assert all(word in words for word in ("2026-11-30T02:00:00Z", "2026-11-28T23:00:00Z", "XID_79"))
    machine = Machine(inside, tmp_path, stub_driver, server - 20 * 60_000, skew_ms=node - server)
    machine.clock_status, machine.clock_error_ms = UNSYNCHRONISED, None  # what the kernel says of such a clock
    machine.run(20)
    fault = machine.now_ms + 1_000
    machine.now_ms = fault
    machine.log(f"NVRM: Xid (PCI:{BUS}): 79, pid=1, name=x, GPU has fallen off the bus.")
    machine.nvml(gpu__0__handle__ret=LOST)
    machine.config(f"{BUS}.0", DEAD)
    machine.run(5)
    machine.fold()
    assert hour_of(server) * 3_600_000 == server
    hours = set(NodeHour.objects.values_list("hour", flat=True))
    assert hours == {hour_of(server) - 1, hour_of(server)}  # none of the node's own 28th of November
    (incident,) = Incident.objects.filter(weight=0)
    assert abs(incident.first_slot * SLOT_MS - fault) <= SLOT_MS + LAG_MS
    bad = machine.verdict("g0", fault + 60_000)
    assert bad is not None
    assert bad.nominal == 0
    assert "XID_79" in bad.certain  # the event stands beside its sample, wherever the node's own clock puts it
    stored = Inbox.objects.order_by("received_at").first()
    assert stored is not None  # the exact bytes are kept with the node's own time
    assert stored.sample_day == datetime.fromtimestamp(node / 1000 - 1200, UTC).date()


def test_no_restart_of_an_agent_ends_a_condition_and_none_holds_it(
    inside: Any, tmp_path: Any, stub_driver: Any
) -> None:
    """D016: Xid 94 costs its slot and no more; Xid 95 lasts over agent restarts until a reset ends it."""
    machine = Machine(inside, tmp_path, stub_driver, ms("2026-11-20T10:00:00Z"))
    # a GPU without a word of its own on recovery that nothing runs on: no sample tells whether it is back
    machine.nvml(**{"gpu__0__field.230.ret": NOT_SUPPORTED, "gpu__0__utilization.gpu": 0, "gpu__0__power": 60_000})
    machine.run(2)
    contained = machine.now_ms
    machine.log(f"NVRM: Xid (PCI:{BUS}): 94, pid=1, name=x, Contained: SM (0x1). RST: No, D-RST: No")
    machine.run(5)
    machine.restart_agent()
    machine.run(5)
    uncontained = machine.now_ms
    machine.log(f"NVRM: Xid (PCI:{BUS}): 95, pid=1, name=x, Uncontained: LTC TAG (0x2,0x0). RST: Yes, D-RST: No")
    machine.run(5)
    machine.restart_agent()
    machine.run(5)
    reset = machine.now_ms
    machine.log(f"nvidia {BUS}.0: reset done")
    machine.run(5)
    machine.fold()
    weights = {at: machine.verdict("g0", at) for at in range(contained, reset + 240_000, SLOT_MS)}
    lowered = [at for at, verdict in weights.items() if verdict is not None and verdict.nominal == 0]
    assert [at for at in lowered if at < uncontained - SLOT_MS] == [lowered[0]]  # one slot, not "until a restart"
    lasting = [at for at in lowered if at >= uncontained - SLOT_MS]
    assert len(lasting) * SLOT_MS == pytest.approx(reset - uncontained, abs=2 * SLOT_MS)  # beyond the restart
    after = machine.verdict("g0", reset + 120_000)
    assert after is not None
    assert (after.state, after.nominal) == (State.OBSERVED, 100)


def test_an_event_without_a_device_is_nobodys(inside: Any, tmp_path: Any, stub_driver: Any) -> None:
    """D018: a line of an old driver names no device that can be known; the event is kept and no GPU pays for it."""
    machine = Machine(inside, tmp_path, stub_driver, ms("2026-11-20T10:00:00Z"))
    machine.run(2)
    at = machine.now_ms
    code = json.loads(CASES["D018"]["input"])["xid"]
    machine.log(f"NVRM: Xid (0044:00): {code}, Timeout waiting for RPC from GSP!")
    machine.run(4)
    machine.fold()
    from fleet import decode

    events = [
        event
        for body in Inbox.objects.values_list("body", flat=True)
        for interval in decode.decode_trusted(decode.gunzip(bytes(body))).intervals
        for event in interval.events
    ]
    assert [(event.code, event.pci_bus_id) for event in events] == [(code, None)]
    for subject in ("g0", "g1"):
        verdict = machine.verdict(subject, at)
        assert verdict is not None
        assert (verdict.nominal, verdict.certain, verdict.possible) == (100, (), ())
    assert not Incident.objects.exists()


def test_four_witnesses_of_one_loss_are_one_interval(inside: Any, tmp_path: Any, stub_driver: Any) -> None:
    """D024: Xid 79, the kernel's line, NVML's error and the count each say it; one incident from the first on."""
    machine = Machine(inside, tmp_path, stub_driver, ms("2026-11-20T10:00:00Z"))
    machine.run(3)
    first = machine.now_ms
    assert "0000:44:00" in CASES["D024"]["input"]
    machine.log(f"NVRM: Xid (PCI:{BUS}): 79, pid=1, name=x, GPU has fallen off the bus.")
    machine.now_ms += 2_000
    machine.log(f"NVRM: GPU {BUS}.0: GPU has fallen off the bus.")
    machine.sample()  # both lines are read, and NVML still answers
    machine.now_ms = first + 30_000
    machine.nvml(gpu__0__handle__ret=LOST)
    machine.config(f"{BUS}.0", DEAD)
    machine.sample(2)
    machine.run(10)
    machine.fold()
    (incident,) = Incident.objects.all()
    assert (incident.code, incident.is_open, incident.scope) == ("XID_79", True, "gpu")
    assert abs(incident.first_slot * SLOT_MS - first) <= SLOT_MS
    assert [part["subject"] if isinstance(part, dict) else part for part in incident.parts] == ["g0"]
    healthy = machine.verdict("g1", first + 120_000)
    assert healthy is not None
    assert healthy.nominal == 100


def test_two_machines_cloned_from_one_image_are_two_nodes(inside: Any, tmp_path: Any, stub_driver: Any) -> None:
    """D012: the image brought the agent's state along. Each machine is known by its own hardware, not by the image."""
    assert CASES["D012"]["input"].count("machine_id=0f0f...") == 2
    template = Machine(inside, tmp_path / "a", stub_driver, ms("2026-11-20T10:00:00Z"), "node-a", "hw-a")
    template.run(2)
    template.node.stop()
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    one = Machine(inside, tmp_path / "a", stub_driver, template.now_ms, "node-a", "hw-a")
    two = Machine(inside, tmp_path / "b", stub_driver, template.now_ms, "node-b", "hw-b")
    two.boot = "boot-of-b"
    for _ in range(3):
        one.sample(4)
        two.sample(4)
        assert set(one.deliver()) == set(two.deliver()) == {202}
    one.fold()
    assert {node.identity for node in (one.row(), two.row())} == {"hw:hw-a", "hw:hw-b"}
    agents = dict(Inbox.objects.values_list("node", "agent_id"))
    assert agents["node-a"] != agents["node-b"]


def test_clones_that_cannot_be_told_apart_are_reported(inside: Any, tmp_path: Any, stub_driver: Any) -> None:
    """D012, where the machines tell no identity: the same numbers under other bytes are the proof."""
    template = Machine(inside, tmp_path / "a", stub_driver, ms("2026-11-20T10:00:00Z"), "node-a")
    template.run(2)
    template.node.stop()
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    one = Machine(inside, tmp_path / "a", stub_driver, template.now_ms, "node-a")
    two = Machine(inside, tmp_path / "b", stub_driver, template.now_ms, "node-b")
    two.boot = "boot-of-b"
    one.run(3)
    two.sample(4)
    assert 409 in two.deliver()
    assert Inbox.objects.filter(is_seq_conflict=True).count() >= 1
    assert two.store.outbox.counts()["batches_quarantined"] >= 1
    one.fold()
    assert one.row().identity == "name:node-a"
    assert {agent.flags for agent in list_agents(now=datetime(2026, 11, 20, 12, tzinfo=UTC))} == {("copied",)}
