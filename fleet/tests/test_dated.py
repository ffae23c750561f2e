"""What dated rows say is part of the fold: through real ingest, from the upload to the node hour."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django_tenants.utils import tenant_context

from agent import wire
from fleet.bodies import load_row
from fleet.dated import failed_spans
from fleet.domain.verdicts import Verdict
from fleet.folding import fold_waiting
from fleet.ingest import receive
from fleet.models import Cluster, ExpectedHardware, Inbox, Node, NodeHour, NodeLive, ProbeRun, ProbeTarget
from fleet.peers import HOP_MS, peer_spans
from fleet.probe import mark_settled
from fleet.refolding import refold_dirty, refold_everything
from fleet.services_dated import DatedInvalid, assign_device, end_expected, expect_hardware, withdraw
from fleet.services_incidents import Actor
from fleet.silence import close_silence
from fleet.tests.bodies import SLOT_MS, batch, gpu, interval
from orgs.keys import KeyInfo
from orgs.models import AuditEntry

pytestmark = pytest.mark.django_db
HOUR_MS = 3_600_000
START = datetime(2026, 11, 28, 10, tzinfo=UTC)
START_MS = int(START.timestamp() * 1000)
NOW = START + timedelta(hours=6)


@pytest.fixture
def inside(alpha: Any) -> Iterator[Any]:
    """The test runs inside alpha's schema."""
    with tenant_context(alpha):
        yield alpha


@pytest.fixture
def actor(inside: Any) -> Actor:
    """Whoever writes."""
    return Actor("ada@alpha.example", inside)


def at(minute: float) -> datetime:
    """So many minutes after the start."""
    return START + timedelta(minutes=minute)


def send(
    org: Any, minute: float, *, node: str = "n1", slots: int = 4, gpus: int = 2, seq: int = 0, **more: Any
) -> None:
    """Receive one minute's batch as of its end, as a live agent sends it."""
    first = START_MS + int(minute * 60_000) + SLOT_MS // 2
    missing = more.pop("without", None)
    intervals = [interval(first + k * SLOT_MS, gpus) for k in range(slots)]
    for one in intervals if missing is not None else ():
        one["gpus"] = [gpu(index) for index in range(gpus) if index != missing]
        one["pci"] = {gpu(missing)["pci_bus_id"]: "dead"}
    names = {"node_id": node, "agent_id": f"agent-{node}", "seq": int(minute * 4)}
    body, _ = wire.pack(batch(first, intervals=intervals, **names, **more))
    key = KeyInfo(0, "test", frozenset({"ingest"}), "", None, org.pk, org.slug, org.schema_name)
    sha = receive(body, key, {}).batch_sha256
    taken = datetime.fromtimestamp((first + slots * SLOT_MS) / 1000, UTC)
    Inbox.objects.filter(sha256=bytes.fromhex(sha)).update(received_at=taken)


def fold(now: datetime = NOW) -> None:
    """Fold what waits and what is dirty."""
    fold_waiting(now)
    while refold_dirty(now):
        pass


def node(name: str = "n1") -> Node:
    """The node of this name."""
    return Node.objects.get(name=name)


def verdict(minute: float, subject: str = "g0", name: str = "n1") -> Verdict:
    """The verdict of the slot in which this minute lies."""
    slot = (START_MS + int(minute * 60_000)) // SLOT_MS
    body = NodeHour.objects.get(node__name=name, hour=slot // 240).body
    return load_row(body).verdicts(subject)[slot % 240]


def bodies() -> dict[tuple[str, int], bytes]:
    """Every node hour as stored."""
    return {(row.node.name, row.hour): bytes(row.body) for row in NodeHour.objects.select_related("node")}


def same_after_a_whole_refold(now: datetime = NOW) -> None:
    """Everything folded again from the first batch on gives the same bytes."""
    before = bodies()
    refold_everything(now)
    assert bodies() == before


# Expected hardware


def test_a_declared_gpu_that_never_came_is_missing_in_its_own_place(inside: Any, actor: Actor) -> None:
    for minute in range(3):
        send(inside, minute, gpus=3)
    fold()
    assert "g3" not in load_row(NodeHour.objects.get().body).subjects()
    expect_hardware(node(), actor, gpus=4, from_at=START - timedelta(days=1), reason="order 4711")
    assert NodeLive.objects.get().dirty_hour == START_MS // HOUR_MS
    fold()
    assert "GPU_MISSING" in verdict(1, "g3").possible  # a place that no device has ever taken is pending (fold.md 23)
    assert verdict(1, "g2").nominal == 100
    assert NodeHour.objects.filter(hour=START_MS // HOUR_MS).get().gpus == 4
    same_after_a_whole_refold()


def test_a_declaration_is_owed_from_its_beginning_on_and_unknown_until_the_node_was_seen(
    inside: Any, actor: Actor
) -> None:
    send(inside, 0)
    fold()
    row = expect_hardware(node(), actor, gpus=2, from_at=START - timedelta(hours=2))
    fold()
    before = load_row(NodeHour.objects.get(hour=START_MS // HOUR_MS - 2).body)
    assert "NOT_SEEN" in before.reasons()
    assert before.subjects() == ["g0", "g1", "n"]
    withdraw(row, actor)
    fold()
    left = NodeHour.objects.filter(hour=START_MS // HOUR_MS - 2).first()
    assert left is None or load_row(left.body).subjects() == []
    assert verdict(0.5).nominal == 100


def test_a_lower_declaration_ends_the_missing_place_from_its_hour_on(inside: Any, actor: Actor) -> None:
    for minute in range(0, 120, 1):
        send(inside, minute, gpus=3, **({"without": 2} if minute >= 30 else {}))
    fold()
    assert verdict(90, "g2").nominal == 0
    row = expect_hardware(node(), actor, gpus=2, from_at=at(60), reason="two from eleven on, as the amendment says")
    fold()
    assert verdict(45, "g2").nominal == 0
    assert "g2" not in load_row(NodeHour.objects.get(hour=START_MS // HOUR_MS + 1).body).subjects() or (
        verdict(90, "g2").nominal is None
    )
    same_after_a_whole_refold()
    withdraw(row, actor)
    fold()
    assert verdict(90, "g2").nominal == 0
    assert [entry.action for entry in AuditEntry.objects.filter(target="n1").order_by("id")] == [
        "hardware.expected",
        "hardware.withdrawn",
    ]


def test_a_declared_port_is_a_subject_without_having_been_learned(inside: Any, actor: Actor) -> None:
    port = {"device": "mlx5_0", "port": 1, "state": "DOWN", "phys_state": "Polling", "guid_hash": "guid-0"}
    sources = {"nvml": "ok", "ib": "ok", "kmsg": "ok", "pci": "ok"}

    def send_with_port(minute: int) -> None:
        first = START_MS + minute * 60_000 + SLOT_MS // 2
        intervals = [interval(first + k * SLOT_MS, sources=sources, ib_ports=[port]) for k in range(4)]
        body, _ = wire.pack(batch(first, intervals=intervals, seq=minute, agent_id="a"))
        key = KeyInfo(0, "test", frozenset({"ingest"}), "", None, inside.pk, inside.slug, inside.schema_name)
        receive(body, key, {})

    for minute in range(3):
        send_with_port(minute)
    fold()
    assert load_row(NodeHour.objects.get().body).subjects() == ["g0", "g1", "n"]
    ports = [{"key": "guid-0", "gpu": 1, "rate_gbps": 400}]
    expect_hardware(node(), actor, gpus=2, ports=ports, from_at=START)
    fold()
    assert "IB_PORT_DOWN" in (verdict(2, "p:guid-0").certain + verdict(2, "p:guid-0").possible)
    assert verdict(2, "g1").nominal == 0
    assert verdict(2, "g0").nominal == 100


def test_of_several_declarations_the_newest_counts_and_an_end_gives_the_learned_back(inside: Any, actor: Actor) -> None:
    for minute in range(0, 180, 1):
        send(inside, minute)
    fold()
    expect_hardware(node(), actor, gpus=3, from_at=START)
    row = expect_hardware(node(), actor, gpus=4, from_at=START)
    fold()
    assert [hour.gpus for hour in NodeHour.objects.order_by("hour")] == [4, 4, 4]
    assert end_expected(row, at(60), actor)
    assert not end_expected(row, at(90), actor)
    fold()
    assert [hour.gpus for hour in NodeHour.objects.order_by("hour")][0] == 4
    assert "g3" not in {
        subject
        for subject, rollup in load_row(NodeHour.objects.get(hour=START_MS // HOUR_MS + 2).body).rollups().items()
        if rollup.known_s
    }
    same_after_a_whole_refold()


@pytest.mark.parametrize(
    ("field", "values"),
    [
        ("gpus", {"gpus": -1}),
        ("gpus", {"gpus": True}),
        ("devices", {"gpus": 1, "devices": ["GPU-0", "GPU-1"]}),
        ("devices", {"gpus": 2, "devices": ["GPU-0", "GPU-0"]}),
        ("ports", {"gpus": 2, "ports": [{"key": ""}]}),
        ("ports", {"gpus": 2, "ports": [{"key": "a", "gpu": 2}]}),
        ("until_at", {"gpus": 2, "until_at": START}),
    ],
)
def test_a_declaration_that_cannot_be_is_refused(inside: Any, actor: Actor, field: str, values: dict[str, Any]) -> None:
    send(inside, 0)
    fold()
    with pytest.raises(DatedInvalid) as refused:
        expect_hardware(node(), actor, from_at=START, **values)
    assert refused.value.field == field
    assert not ExpectedHardware.objects.exists()


# Assignments


def test_a_replacement_elsewhere_ends_what_was_held(inside: Any, actor: Actor) -> None:
    for minute in range(10):
        send(inside, minute, **({"without": 1} if minute >= 5 else {}))
    fold(at(11))
    close_silence(at(50))
    assert str(verdict(30, "g1").state) == "held"
    assign_device(node(), actor, place=1, device="GPU-spare", at=at(20), reason="moved to n9")
    fold(at(51))
    close_silence(at(52))
    assert str(verdict(15, "g1").state) == "held"
    assert str(verdict(30, "g1").state) == "unknown"


# Peers


def test_peers_make_an_unclean_boot_certain_and_their_silence_does_not(inside: Any) -> None:
    def die_and_come_back(name: str) -> None:
        for minute in range(5):
            send(inside, minute, node=name, boot_id="b1", boot_at=START_MS - 1000)
        alive = START_MS + 5 * 60_000
        more = {"last_shutdown": "unclean", "last_alive": alive}
        send(inside, 30, node=name, boot_id="b2", boot_at=START_MS + 29 * 60_000, **more)

    die_and_come_back("n1")
    for minute in range(31):
        send(inside, minute, node="n2")
    fold()
    assert verdict(15, "n").certain == ("NODE_LOST",)
    assert verdict(15).nominal == 0
    assert verdict(15).lower == 0  # certain: a contract counts it
    same_after_a_whole_refold()
    Cluster.objects.all().delete()
    with connection.cursor() as cursor:
        cursor.execute("delete from fleet_inbox")

    die_and_come_back("n1")
    for minute in (*range(8), *range(28, 31)):  # the server took nothing meanwhile, of nobody
        send(inside, minute, node="n2")
    fold()
    assert verdict(15).lower == 100
    assert "NODE_LOST" in verdict(15).possible
    same_after_a_whole_refold()


def test_receipts_of_peers_are_joined_hop_by_hop_and_its_own_count_for_nothing(inside: Any) -> None:
    for minute in (0, 1, 2, 4, 10, 11, 12):
        send(inside, minute, node="n2")
    for minute in (6, 8):
        send(inside, minute, node="n1")
    fold()
    taken = [START_MS + minute * 60_000 + 60_000 + SLOT_MS // 2 for minute in (0, 4, 10, 12)]
    found = peer_spans(node().pk, START_MS, START_MS + 15 * 60_000)
    assert found == ((taken[0], taken[1]), (taken[2], taken[3]))
    seen = taken[3] + HOP_MS // 2
    ended = peer_spans(node().pk, START_MS, seen - 1000, seen)
    assert ended == ((taken[0], taken[1]), (taken[2], seen - 1000))  # what ended its silence was taken as well
    assert peer_spans(node("n2").pk, START_MS, START_MS + 60_000 * 5) == ()
    Node.objects.filter(name="n2").delete()
    assert peer_spans(node().pk, START_MS, START_MS + 15 * 60_000) is None


def test_the_hot_path_asks_one_number_for_all_its_batches(inside: Any, actor: Actor) -> None:
    for name in ("n1", "n2", "n3"):
        send(inside, 0, node=name)
    fold()
    expect_hardware(node(), actor, gpus=2, from_at=START)
    fold()

    def statements(minute: int, nodes: tuple[str, ...]) -> list[str]:
        for name in nodes:
            send(inside, minute, node=name)
        with CaptureQueriesContext(
            connection,
        ) as caught:
            fold_waiting(NOW)
        return [query["sql"] for query in caught.captured_queries]

    one = statements(1, ("n1",))
    three = statements(2, ("n1", "n2", "n3"))
    assert sum("fleet_datedstamp" in text for text in one) <= 2  # a chunk with work and the empty one after it
    assert sum("fleet_datedstamp" in text for text in three) <= 2
    for table in ("fleet_expectedhardware", "fleet_amendment", "fleet_proberun", "fleet_deviceassignment"):
        assert not [text for text in three if table in text], table


# The probe


def probe_runs(org: Any, *runs: tuple[str, float, float]) -> ProbeTarget:
    """Recorded runs of one probe of n1: (outcome, first minute, last minute), a round every 15 s."""
    target = ProbeTarget.objects.create(node=node(), kind="tcp", address="127.0.0.1", port=22, author="test")
    for outcome, first, last in runs:
        rounds = round((last - first) * 4) + 1
        ProbeRun.objects.create(
            target=target, node=node(), outcome=outcome, first_at=at(first), last_at=at(last), rounds=rounds
        )
    from fleet.services_dated import touch_stamp

    touch_stamp()
    return target


def test_a_failed_probe_with_peers_is_an_unreachable_node_and_lowers_no_gpu(inside: Any) -> None:
    """The machine ran on and sent its backlog later; what a connectivity contract counts is that nobody reached it."""
    for minute in range(3):
        send(inside, minute)
        send(inside, minute, node="n2")
    fold()
    probe_runs(inside, ("ok", 0, 5), ("failed", 5.25, 20), ("ok", 20.25, 30))
    for minute in range(3, 31):
        send(inside, minute, node="n2")
        send(inside, minute)
    fold()
    assert verdict(10, "n").certain == ("NODE_UNREACHABLE",)
    assert verdict(3, "n").certain == ()
    assert verdict(25, "n").certain == ()
    assert verdict(10).nominal == 100
    assert mark_settled(at(60)) == 1
    fold()
    assert mark_settled(at(61)) == 0
    assert verdict(10, "n").certain == ("NODE_UNREACHABLE",)
    same_after_a_whole_refold()


def test_a_failed_probe_without_peers_is_only_possible(inside: Any) -> None:
    send(inside, 0)
    fold()
    probe_runs(inside, ("failed", 5, 20))
    for minute in range(1, 31):
        send(inside, minute)
    fold()
    assert verdict(10, "n").certain == ()
    assert verdict(10, "n").possible == ("NODE_UNREACHABLE",)


def test_a_silent_node_is_unreachable_where_the_probe_failed_and_unknown_elsewhere(inside: Any) -> None:
    for minute in range(41):
        send(inside, minute, node="n2")
    send(inside, 0)
    fold()
    probe_runs(inside, ("failed", 5, 20))
    send(inside, 40)
    fold()
    assert set(verdict(10, "n").certain) == {"NO_DATA", "NODE_UNREACHABLE"}
    assert "NODE_UNREACHABLE" not in verdict(30, "n").certain
    assert str(verdict(10).state) == "unknown"
    assert mark_settled(at(60)) == 1
    fold()
    same_after_a_whole_refold()


def test_one_failed_round_and_a_blind_probe_say_nothing() -> None:
    minute = 60_000
    assert failed_spans([(1, 0, 0, 1)]) == ()
    assert failed_spans([(1, 7_000, 22_000, 2)]) == ((0, 30_000),)
    assert failed_spans([(1, 0, minute, 5), (1, minute + 15_000, 2 * minute, 4)]) == ((0, 2 * minute + 15_000),)
    assert failed_spans([(1, 0, 0, 1), (1, minute, minute, 1)]) == ()
    assert failed_spans([(1, 0, 15_000, 2), (2, 30_000, 45_000, 2)]) == ((0, minute),)
