"""The probe knocks at real sockets, records what came of it, and knows when it is itself the one that is cut off."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django_tenants.utils import tenant_context

from fleet import probe
from fleet.dated import hour_at
from fleet.domain.verdicts import State
from fleet.models import Cluster, Node, NodeHour, NodeLive, ProbeRun, ProbeTarget
from fleet.probe import Knock, Target, judge, knock, probe_round, record_round
from fleet.selectors_waiting import orgs_with_probes
from fleet.services_dated import MAX_PROBES, DatedInvalid, add_probe, end_probe
from fleet.services_incidents import Actor
from fleet.silence import close_silence
from fleet.tests.test_dated import at, fold, node, probe_runs, send, verdict

pytestmark = pytest.mark.django_db
NOON = datetime(2026, 11, 28, 12, 30, tzinfo=UTC)
ROUND = timedelta(seconds=15)


@pytest.fixture
def inside(alpha: Any) -> Iterator[Any]:
    """The test runs inside alpha's schema."""
    with tenant_context(alpha):
        yield alpha


@pytest.fixture
def loopback(settings: Any) -> None:
    """Loopback may be probed."""
    settings.GOODPUT_PROBE_NETWORKS = ["127.0.0.0/8"]
    settings.GOODPUT_PROBE_CONTROL = ""


@pytest.fixture
def door() -> Iterator[int]:
    """The port of a listening socket."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener.getsockname()[1]


@pytest.fixture
def actor(inside: Any) -> Actor:
    """Whoever writes."""
    return Actor("ada@alpha.example", inside)


@pytest.fixture
def machine(inside: Any) -> Node:
    """A node that reported once."""
    cluster = Cluster.objects.create(name="c1")
    made = Node.objects.create(cluster=cluster, identity="name:n1", name="n1")
    NodeLive.objects.create(node=made)
    return made


def silent_address() -> str:
    """An address of the documentation net: packets to it are dropped or refused by the network, never answered."""
    return "192.0.2.1"


def test_an_open_port_and_a_refused_one_answer_and_a_foreign_network_is_never_asked(loopback: None, door: int) -> None:
    assert asyncio.run(knock("127.0.0.1", door)) == Knock(True)
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    assert asyncio.run(knock("127.0.0.1", port)) == Knock(True, "refused")
    forbidden = asyncio.run(knock(silent_address(), 80))
    assert forbidden.forbidden
    assert not forbidden.answered


def test_a_name_is_checked_where_it_leads(loopback: None, settings: Any, door: int) -> None:
    assert asyncio.run(knock("localhost", door)).answered
    settings.GOODPUT_PROBE_NETWORKS = ["10.0.0.0/8"]
    assert asyncio.run(knock("localhost", door)).forbidden


def test_silence_is_no_answer(loopback: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probe, "TIMEOUT_SECONDS", 0.3)
    with socket.socket() as full:  # a listener whose queue is full drops what comes
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        place = full.getsockname()
        waiting = [socket.socket() for _ in range(8)]
        for one in waiting:
            one.setblocking(False)
            one.connect_ex(place)
        found = asyncio.run(knock(*place))
        for one in waiting:
            one.close()
    assert found == Knock(False, "no answer")


def test_an_echo_comes_back_where_the_kernel_allows_it(loopback: None) -> None:
    found = asyncio.run(knock("127.0.0.1", None))
    assert found.answered or found == Knock(False, "this server may not send ICMP", True)


def test_a_round_in_which_nothing_answered_is_blind_and_the_control_decides() -> None:
    silent, heard = Knock(False, "no answer"), Knock(True)
    assert [outcome for outcome, _ in judge([silent, silent], None)] == ["blind", "blind"]
    assert [outcome for outcome, _ in judge([silent, heard], None)] == ["failed", "ok"]
    assert [outcome for outcome, _ in judge([silent], heard)] == ["failed"]
    assert [outcome for outcome, _ in judge([silent], silent)] == ["blind"]
    assert [outcome for outcome, _ in judge([Knock(False, "name not found", True), heard], None)] == ["blind", "ok"]


def test_rounds_that_say_the_same_are_one_run_within_an_hour(machine: Node) -> None:
    target = ProbeTarget.objects.create(node=machine, address="127.0.0.1", port=1, author="test")
    one = [Target(target.pk, machine.pk, "127.0.0.1", 1)]
    start = NOON.replace(minute=59)
    said = ["ok"] * 6 + ["failed"] * 3 + ["ok"]
    for position, outcome in enumerate(said):
        record_round(start + position * ROUND, one, [(outcome, "")])
    record_round(start + 30 * ROUND, one, [("ok", "")])  # rounds were missed: another run
    found = [(run.outcome, run.rounds, run.first_at, run.last_at) for run in ProbeRun.objects.order_by("first_at")]
    assert found == [
        ("ok", 4, start, start + 3 * ROUND),
        ("ok", 2, start + 4 * ROUND, start + 5 * ROUND),
        ("failed", 3, start + 6 * ROUND, start + 8 * ROUND),
        ("ok", 1, start + 9 * ROUND, start + 9 * ROUND),
        ("ok", 1, start + 30 * ROUND, start + 30 * ROUND),
    ]


def test_a_whole_round_over_real_sockets(machine: Node, actor: Actor, loopback: None, door: int) -> None:
    target = add_probe(machine, actor, kind="tcp", address="127.0.0.1", port=door, reason="ssh")
    assert orgs_with_probes([actor.org]) == [actor.org.pk]
    assert probe_round(target.from_at + ROUND) == 1
    run = ProbeRun.objects.get()
    assert (run.outcome, run.node_id) == ("ok", machine.pk)
    assert end_probe(target, actor)
    assert not end_probe(target, actor)
    assert probe_round(target.from_at + timedelta(days=1)) == 0
    assert orgs_with_probes([actor.org]) == []


def test_the_probe_is_off_until_an_operator_names_networks(machine: Node, actor: Actor, settings: Any) -> None:
    settings.GOODPUT_PROBE_NETWORKS = []
    with pytest.raises(DatedInvalid, match="off on this server"):
        add_probe(machine, actor, kind="tcp", address="127.0.0.1", port=22)
    ProbeTarget.objects.create(node=machine, address="127.0.0.1", port=1, author="test")
    assert probe_round(NOON) == 0
    assert not ProbeRun.objects.exists()


def test_what_may_not_be_probed_is_refused(machine: Node, actor: Actor, loopback: None) -> None:
    for address, port, kind, field in (
        ("192.0.2.1", 22, "tcp", "address"),
        ("http://127.0.0.1/", 22, "tcp", "address"),
        ("127.0.0.1", 0, "tcp", "port"),
        ("127.0.0.1", None, "tcp", "port"),
        ("127.0.0.1", 22, "udp", "kind"),
    ):
        with pytest.raises(DatedInvalid) as refused:
            add_probe(machine, actor, kind=kind, address=address, port=port)
        assert refused.value.field == field
    ProbeTarget.objects.bulk_create(
        ProbeTarget(node=machine, address="127.0.0.1", port=22, author="test") for _ in range(MAX_PROBES)
    )
    with pytest.raises(DatedInvalid, match="At most"):
        add_probe(machine, actor, kind="tcp", address="127.0.0.1", port=22)


def test_a_silent_node_shows_while_it_lasts_that_nobody_reaches_it(inside: Any) -> None:
    send(inside, 0)
    for minute in range(26):
        send(inside, minute, node="n2")
    fold(at(26))
    probe_runs(inside, ("failed", 5, 25))
    assert close_silence(at(25.5)) == 1
    assert NodeHour.objects.filter(node=node(), hour=hour_at(at(10))).exists()
    assert "NODE_UNREACHABLE" in verdict(10, "n").certain
    assert verdict(10).state is State.UNKNOWN  # it lowers no GPU
